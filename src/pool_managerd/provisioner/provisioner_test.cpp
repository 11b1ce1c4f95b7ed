// What pulls do, with servers that do what no honest one does. tests/e2e/test_pull.py has the rest.
#include "pool_managerd/provisioner/provisioner.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/file.h"
#include "pool_managerd/provisioner/testing/download_directory.h"
#include "pool_managerd/provisioner/testing/fake_server.h"

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

struct BrokenClock final : base::Clock {
  base::Time now() const override { throw std::length_error("as a library would"); }
};

TEST_F(DownloadDirectory, AnExceptionEndsOnePull) {
  const auto clock = std::make_shared<BrokenClock>();
  const auto provisioner =
      Provisioner::make({.cache = dir_, .web = {.egress = {.enabled = true, .allowed_hosts = {}}}, .clock = clock});
  for (const char* source : {"https://127.0.0.1/a.gguf", "https://127.0.0.1/b.gguf", "https://127.0.0.1/c.gguf",
                             "https://127.0.0.1/d.gguf"}) {
    const auto begun = provisioner->start({.source = source}, {});
    ASSERT_TRUE(begun);
    std::optional<wire::PullStatus> now;
    do {
      std::this_thread::yield();
      now = provisioner->status(begun->pull_id);
      ASSERT_TRUE(now);
    } while (now->state != wire::PullState::kFailed);
    EXPECT_EQ(now->error_code, "INTERNAL");
  }
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
  const auto clock = std::make_shared<base::SystemClock>();
  const auto provisioner = Provisioner::make({.cache = dir_, .clock = clock});
  EXPECT_EQ(base::read_file(model, 100).value(), "whole");
  EXPECT_FALSE(fs::exists(partial / "whole.part") || fs::exists(partial / "whole.map") ||
               fs::exists(partial / "whole.json"));
  for (const char* stem : {"half", "begun"}) {
    for (const char* extension : {".part", ".map", ".json"}) EXPECT_TRUE(fs::exists(partial / stem += extension));
  }
}

wire::PullStatus ended(const std::shared_ptr<Provisioner>& provisioner, const std::string& pull_id) {
  for (;;) {
    const wire::PullStatus now = provisioner->status(pull_id).value();
    if (now.state == wire::PullState::kDone || now.state == wire::PullState::kFailed ||
        now.state == wire::PullState::kCancelled) {
      return now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Pulls : public DownloadDirectory {
 protected:
  ProvisionerOptions options() const { return {.cache = dir_, .web = kOnlyHere, .clock = clock_}; }
  std::vector<std::string> files_of(const std::string& digest) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(dir_ / digest)) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  const std::shared_ptr<base::SystemClock> clock_ = std::make_shared<base::SystemClock>();
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
    const auto provisioner = Provisioner::make(options());
    const std::string checksum = "sha256:" + digest;
    const auto begun = provisioner->start({.source = server.url() + "/tale.gguf",
                                           .checksum = checksum,
                                           .peers = {{"pool-2", server.url(), checksum, "a-grant"}}},
                                          {});
    ASSERT_TRUE(begun);
    const wire::PullStatus done = ended(provisioner, begun->pull_id);
    EXPECT_EQ(done.state, wire::PullState::kDone) << done.error_message.value_or("");
    EXPECT_FALSE(done.peer_pool_id);  // its source has given it
    EXPECT_EQ(done.model_ref, "file:" + (dir_ / digest / "tale.gguf").string()) << name;
    EXPECT_EQ(sha256_of(base::read_file(dir_ / digest / "tale.gguf", 100).value()), digest) << name;
    EXPECT_TRUE(provisioner->remove(digest));
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
  const auto provisioner = Provisioner::make(options());
  const auto begun = provisioner->start({.source = server.url() + "/tale.gguf",
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
  const auto provisioner = Provisioner::make(std::move(with_hub));
  const auto begun = provisioner->start({.source = "hf:org/tales"}, {});
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
  const auto provisioner = Provisioner::make(std::move(with_hub));
  const auto begun = provisioner->start({.source = "hf:org/tales"}, {});
  ASSERT_TRUE(begun);
  EXPECT_EQ(ended(provisioner, begun->pull_id).error_code, "UNTRUSTED_ARTIFACT");
}

TEST_F(Pulls, WhatARemovalLeftBehindIsRemovedWithTheNext) {
  const std::string digest(64, 'a');
  const auto provisioner = Provisioner::make(options());
  for (const fs::path& directory : {dir_ / digest, dir_ / ".partial" / (digest + ".gone")}) {
    fs::create_directories(directory);
    std::ofstream(directory / "m.gguf") << "tale";
  }
  const auto bytes = provisioner->remove(digest);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, 4);
  EXPECT_FALSE(fs::exists(dir_ / digest));
  EXPECT_TRUE(fs::is_empty(dir_ / ".partial"));
}

// Whoever was told that it would not happen may use the model by now.
TEST_F(Pulls, ARemovalThatIsForbiddenDoesNotBegin) {
  const std::string digest(64, 'a');
  const auto provisioner = Provisioner::make(options());
  fs::create_directories(dir_ / digest);
  std::ofstream(dir_ / digest / "m.gguf") << "tale";
  const auto forbidden = provisioner->remove(digest, [] { return false; });
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(fs::exists(dir_ / digest / "m.gguf"));
  EXPECT_TRUE(provisioner->remove(digest, [] { return true; }));
  EXPECT_FALSE(fs::exists(dir_ / digest));
}

// A node runs for years.
TEST_F(Pulls, WhatWasAbandonedGoesWithTheNextPull) {
  const auto provisioner = Provisioner::make(options());
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
  const auto begun = provisioner->start({.source = server.url() + "/m.gguf"}, {});
  ASSERT_TRUE(begun);
  EXPECT_EQ(ended(provisioner, begun->pull_id).state, wire::PullState::kFailed);
  for (const char* extension : {".part", ".map", ".json"}) {
    EXPECT_FALSE(fs::exists(partial / "abandoned" += extension)) << extension;
    EXPECT_TRUE(fs::exists(partial / "slow" += extension)) << extension;
  }
}

// Two processes may have one cache.
TEST_F(Pulls, WhatAnotherProcessHoldsIsNotAbandoned) {
  const auto provisioner = Provisioner::make(options());
  const fs::path stem = dir_ / ".partial" / "held";
  fs::create_directories(stem.parent_path());
  const FakeServer server([](const std::string&, const std::string&) { return FakeServer::Answer{.status = 404}; });
  const auto files_after_a_pull = [&] {
    const auto begun = provisioner->start({.source = server.url() + "/m.gguf"}, {});
    EXPECT_TRUE(begun);
    EXPECT_EQ(ended(provisioner, begun->pull_id).state, wire::PullState::kFailed);
    return std::distance(fs::directory_iterator(stem.parent_path()), fs::directory_iterator());
  };
  {
    const auto held = download::PartFile::open(stem, {"tale", 1});  // another process's excludes as this one's does
    ASSERT_TRUE(held);
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24 * 31);
    for (const char* extension : {".part", ".map", ".json"}) fs::last_write_time(fs::path(stem) += extension, long_ago);
    EXPECT_EQ(files_after_a_pull(), 3);
  }
  EXPECT_EQ(files_after_a_pull(), 0);
}

// The end of the daemon waits for no disk: a pull that hangs there keeps what it uses.
TEST_F(Pulls, APullWhoseDiskDoesNotAnswerIsLeftToItself) {
  const FakeServer server([](const std::string&, const std::string& range) {
    return FakeServer::part_of("tale", range, "ETag: \"one\"\r\n");
  });
  std::promise<void> begun, opens;
  ProvisionerOptions with_gate = options();
  with_gate.stop_wait_ms = 0;
  auto used = std::make_shared<int>();
  with_gate.check = [used, &begun, opened = opens.get_future().share()](const fs::path&) -> base::Result<> {
    begun.set_value();
    opened.wait();
    return base::fail(ErrorCode::kIoError, "the disk answers again");
  };
  auto provisioner = Provisioner::make(std::move(with_gate));
  ASSERT_TRUE(provisioner->start({.source = server.url() + "/tale.gguf"}, {}));
  begun.get_future().wait();
  const std::weak_ptr<int> in_use = std::exchange(used, nullptr);
  provisioner->stop();
  provisioner->stop();
  provisioner.reset();
  EXPECT_FALSE(in_use.expired());
  opens.set_value();
  while (!in_use.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Of two equal requests the second is no part of the first, once that is cancelled: neither where it waits, nor where it runs.
TEST_F(Pulls, WhatIsAskedForAgainIsPulledAgain) {
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  const FakeServer server([is_open](const std::string& path, const std::string& range) {
    is_open.wait();
    return FakeServer::part_of(path, range);
  });
  const auto provisioner = Provisioner::make(options());
  const auto start = [&](const std::string& name) {
    const auto begun = provisioner->start({.source = server.url() + name}, {});
    EXPECT_TRUE(begun);
    return begun->pull_id;
  };
  const std::string running = start("/a.gguf");
  while (server.requests() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  start("/b.gguf");
  start("/c.gguf");
  const std::string waiting = start("/d.gguf");
  ASSERT_EQ(provisioner->status(waiting)->state, wire::PullState::kQueued);
  EXPECT_TRUE(provisioner->cancel(waiting));
  EXPECT_EQ(provisioner->status(waiting)->state, wire::PullState::kCancelled);
  EXPECT_EQ(start("/d.gguf"), waiting);
  EXPECT_EQ(provisioner->status(waiting)->state, wire::PullState::kQueued);
  EXPECT_TRUE(provisioner->cancel(running));
  EXPECT_EQ(start("/a.gguf"), running);
  gate.set_value();
  EXPECT_EQ(ended(provisioner, waiting).state, wire::PullState::kDone);
  EXPECT_EQ(ended(provisioner, running).state, wire::PullState::kDone);
}

}  // namespace
}  // namespace llorch::pool_managerd::provisioner
