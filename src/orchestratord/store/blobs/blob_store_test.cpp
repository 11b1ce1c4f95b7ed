#include "orchestratord/store/blobs/blob_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/testing/full_disk.h"

namespace {
std::optional<off_t> g_broken_from;  // the disk gives nothing from this offset of any file on
}  // namespace

// In the place of the C library's.
extern "C" ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  if (g_broken_from && offset >= *g_broken_from) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, bytes, offset);
}

namespace llorch::orchestratord::store::blobs {
namespace {

class Blobs : public testing::Test {
 protected:
  Blobs() {
    char name[] = "/tmp/llorch-blobs-XXXXXX";
    directory_ = ::mkdtemp(name);
    reopen();
  }
  ~Blobs() override { std::filesystem::remove_all(directory_); }

  void reopen(std::uint64_t tenant_bytes_max = 1 << 20) {
    store_.reset();
    store_ = try_open(tenant_bytes_max).value();
  }
  base::Result<std::unique_ptr<BlobStore>> try_open(std::uint64_t tenant_bytes_max = 1 << 20) {
    return BlobStore::open({.directory = directory_,
                            .tenant_bytes_max = tenant_bytes_max,
                            .clock = &clock_,
                            .asleep_ms = [this] { return asleep_ms_; }},
                           entropy_);
  }
  static Facts facts(std::string tenant_id = "t1") {
    return {
        .kind = "file", .tenant_id = std::move(tenant_id), .created_unix_ms = 5, .expires_unix_ms = {}, .body = "b"};
  }
  std::filesystem::path path(const std::string& id) const { return directory_ / (id + ".blob"); }
  std::string on_disk(const std::string& id) const { return base::read_file(path(id), 64 << 20).value(); }
  std::string all(const std::string& id) { return store_->read(id, 0, 64 << 20).value(); }

  base::SystemEntropy entropy_;
  base::ManualClock clock_;
  std::int64_t asleep_ms_ = 0;
  std::filesystem::path directory_;
  std::unique_ptr<BlobStore> store_;
};

TEST_F(Blobs, KeepWhatTheyAreGiven) {
  std::string content;
  for (int i = 0; content.size() < 200'000; ++i) content += std::to_string(i) + ",";
  ASSERT_TRUE(store_->create("file-1", facts(), content));
  ASSERT_TRUE(store_->append("file-1", "more"));
  content += "more";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(all("file-1"), content);
    EXPECT_EQ(store_->read("file-1", 65'530, 20).value(), content.substr(65'530, 20)) << "over the edge of two frames";
    EXPECT_EQ(store_->read("file-1", content.size() - 2, 20).value(), "re");
    EXPECT_EQ(store_->read("file-1", content.size(), 20).value(), "");
    EXPECT_EQ(store_->find("file-1")->content_bytes, content.size());
    EXPECT_EQ(store_->find("file-1")->facts.body, "b");
    reopen();
  }
  struct stat st {};
  ASSERT_EQ(::stat(path("file-1").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
}

TEST_F(Blobs, AreSealedOnTheDisk) {
  Facts secret = facts("the tenant of a client");
  secret.body = "the prompt of a client";
  ASSERT_TRUE(store_->create("r-1", secret, "the output of a model"));
  ASSERT_TRUE(store_->append("r-1", "the rest of the output"));
  for (const char* text : {"prompt", "output", "tenant"})
    EXPECT_EQ(on_disk("r-1").find(text), std::string::npos) << text;
}

TEST_F(Blobs, TheLatestFactsCount) {
  ASSERT_TRUE(store_->create("b", facts()));
  Facts changed = facts();
  changed.body = "second";
  changed.expires_unix_ms = 9;
  ASSERT_TRUE(store_->set_facts("b", changed));
  reopen();
  EXPECT_EQ(store_->find("b")->facts.body, "second");
  EXPECT_EQ(store_->find("b")->facts.expires_unix_ms, 9);
  EXPECT_EQ(store_->set_facts("c", changed).error().code, base::ErrorCode::kNotFound);
  EXPECT_EQ(store_->append("c", "x").error().code, base::ErrorCode::kNotFound);
  EXPECT_EQ(store_->read("c", 0, 1).error().code, base::ErrorCode::kNotFound);
}

// How long an answer would be nobody knew when its request was accepted.
TEST_F(Blobs, AnswersMayTakeSoMuchMoreThanATenantMayBegin) {
  store_.reset();
  store_ = BlobStore::open(
               {.directory = directory_, .tenant_bytes_max = 100'000, .answer_bytes_max = 50'000, .clock = &clock_},
               entropy_)
               .value();
  ASSERT_TRUE(store_->create("a", facts(), std::string(90'000, 'x')));
  ASSERT_FALSE(store_->check_room("t1", 20'000));
  EXPECT_TRUE(store_->check_answer("t1", 50'000));
  ASSERT_TRUE(store_->append("a", std::string(50'000, 'x')));
  const auto refused = store_->check_answer("t1", 20'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kQuotaExceeded);
  int lines = 0;
  base::capture_log_lines([&](std::string_view line) { lines += line.find("blobs.answer_refused") != line.npos; });
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(store_->check_answer("t1", 20'000));
  base::capture_log_lines({});
  EXPECT_EQ(lines, 9) << "the log has one already, and clients do not fill it";
  EXPECT_TRUE(store_->check_answer("t1", 4096)) << "an error that takes its place";
  EXPECT_TRUE(store_->check_answer("t2", 150'000));
}

// More than a start would read is not written: whoever was told that it is kept would find nothing.
TEST_F(Blobs, FactsBeyondTheLimitAreRefused) {
  reopen(1ULL << 32);
  Facts large = facts();
  ASSERT_TRUE(store_->create("a", facts(), "content"));
  large.body = std::string(BlobStore::kFactsBytesMax, 'x');
  const auto replace = [&]() -> base::Result<> {
    TRY(store_->replace("a", large, ""));
    return {};
  };
  for (const auto& refused : {store_->create("b", large), store_->set_facts("a", large), replace()}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kPayloadTooLarge);
    EXPECT_NE(refused.error().message.find(std::to_string(BlobStore::kFactsBytesMax)), std::string::npos);
  }
  large.body.resize(BlobStore::kFactsBytesMax - 1024);
  ASSERT_TRUE(store_->create("b", large));
  reopen(1ULL << 32);
  EXPECT_EQ(store_->find("b")->facts.body, large.body);
  EXPECT_EQ(store_->find("a")->facts.body, "b");
  EXPECT_EQ(all("a"), "content");
}

TEST_F(Blobs, AreCompletedOnce) {
  ASSERT_TRUE(store_->create("b", facts()));
  for (const char* content : {"the answer", "another"}) {
    ASSERT_TRUE(store_->complete("b", {.content = content, .body = "done", .expires_unix_ms = 9}));
    reopen();
    EXPECT_EQ(all("b"), "the answer");
    EXPECT_EQ(store_->find("b")->facts.body, "done");
    EXPECT_EQ(store_->find("b")->facts.expires_unix_ms, 9);
  }
  EXPECT_EQ(store_->complete("c", {}).error().code, base::ErrorCode::kNotFound);
}

// What a blob held before is read by nobody, also by whoever kept its file.
TEST_F(Blobs, AreReplacedWhole) {
  ASSERT_TRUE(store_->create("a", facts(), "before"));
  ASSERT_TRUE(store_->append("a", " and more"));
  const std::string kept = on_disk("a");
  Facts changed = facts();
  changed.body = "second";
  const std::string content(200'000, 'x');
  ASSERT_TRUE(store_->replace("a", changed, content));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(all("a"), content);
    EXPECT_EQ(store_->find("a")->facts.body, "second");
    reopen();
  }
  ASSERT_TRUE(store_->replace("a", facts(), "third"));
  ASSERT_TRUE(store_->append("a", " time"));
  reopen();
  EXPECT_EQ(all("a"), "third time");
  EXPECT_EQ(store_->replace("b", facts(), "").error().code, base::ErrorCode::kNotFound);
  ASSERT_TRUE(base::write_file_atomic(path("a"), kept));
  reopen();
  EXPECT_EQ(store_->find("a"), nullptr) << "the key of the first file is gone";
}

TEST_F(Blobs, OneThatCannotBeReplacedStaysAsItWas) {
  ASSERT_TRUE(store_->create("a", facts(), "first"));
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 2048;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto replaced = store_->replace("a", facts(), std::string(4096, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(replaced);
  EXPECT_EQ(replaced.error().code, base::ErrorCode::kStoreUnavailable);
  EXPECT_EQ(all("a"), "first");
  ASSERT_TRUE(store_->replace("a", facts(), "second"));
  reopen();
  EXPECT_EQ(all("a"), "second");
}

// The slot of the new key is written already, that of the old one lies where the disk takes nothing.
TEST_F(Blobs, AChangeThatWasMadeIsNoErrorAndTheOldKeyGoesLater) {
  reopen(1 << 30);
  const std::size_t last = payload::PayloadKeys::kSpareKeys - 2;
  for (std::size_t i = 0; i <= last; ++i) ASSERT_TRUE(store_->create("b" + std::to_string(i), facts(), "first"));
  const std::string id = "b" + std::to_string(last);
  const auto old_key = [&] {
    return base::read_file(directory_ / "keys", 1 << 20).value().substr(last * payload::kKeyBytes, payload::kKeyBytes);
  };
  const std::string before = old_key();
  {
    const base::testing::FileSizeLimit limit(last * payload::kKeyBytes);
    const auto replaced = store_->replace(id, facts(), "second");
    ASSERT_TRUE(replaced) << replaced.error().message;
    EXPECT_FALSE(*replaced) << "whoever kept the file can read what it held";
    EXPECT_EQ(all(id), "second");
    EXPECT_EQ(old_key(), before);
  }
  EXPECT_EQ(store_->expire(), 0U);
  EXPECT_NE(old_key(), before);
  EXPECT_TRUE(store_->replace(id, facts(), "third").value());
  reopen(1 << 30);
  EXPECT_EQ(all(id), "third");
}

// Erased is erased: whoever kept the file cannot open it when it is put back.
TEST_F(Blobs, NobodyOpensWhatWasErased) {
  ASSERT_TRUE(store_->create("a", facts(), "gone for good"));
  const std::string kept = on_disk("a");
  ASSERT_TRUE(store_->erase("a"));
  EXPECT_EQ(store_->find("a"), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  ASSERT_TRUE(store_->erase("a")) << "idempotent";
  ASSERT_TRUE(base::write_file_atomic(path("a"), kept));
  ASSERT_TRUE(store_->create("other", facts(), "may have the slot"));
  reopen();
  EXPECT_EQ(store_->find("a"), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path("a"))) << "noise is removed";
  EXPECT_EQ(all("other"), "may have the slot");
}

TEST_F(Blobs, EveryTornTailIsCutOff) {
  ASSERT_TRUE(store_->create("a", facts(), "whole,"));
  const std::size_t durable = on_disk("a").size();
  ASSERT_TRUE(store_->append("a", "torn"));
  const std::string bytes = on_disk("a");
  for (std::size_t length = durable; length < bytes.size(); ++length) {
    ASSERT_TRUE(base::write_file_atomic(path("a"), std::string_view(bytes).substr(0, length)));
    reopen();
    EXPECT_EQ(all("a"), "whole,") << length;
    ASSERT_TRUE(store_->append("a", "again"));
    reopen();
    EXPECT_EQ(all("a"), "whole,again") << length;
  }
  // As long as it should be, yet not what was written: a page that never reached the disk.
  std::string zeros = bytes;
  std::fill(zeros.end() - 10, zeros.end(), '\0');
  ASSERT_TRUE(base::write_file_atomic(path("a"), zeros));
  reopen();
  EXPECT_EQ(all("a"), "whole,");
}

// More than one frame holds, and a crash after the first of them.
TEST_F(Blobs, AnAppendIsThereWholeOrNotAtAll) {
  const std::string content(200'000, 'x');
  ASSERT_TRUE(store_->create("a", facts(), "whole,"));
  const std::size_t durable = on_disk("a").size();
  ASSERT_TRUE(store_->append("a", content));
  const std::string bytes = on_disk("a");
  for (const std::size_t length : {durable, durable + 100, durable + 70'000, durable + 140'000, bytes.size() - 1}) {
    ASSERT_TRUE(base::write_file_atomic(path("a"), std::string_view(bytes).substr(0, length)));
    reopen();
    EXPECT_EQ(all("a"), "whole,") << length;
  }
  std::string hole = bytes;
  std::fill_n(hole.begin() + static_cast<std::ptrdiff_t>(durable) + 100, 4096, '\0');
  ASSERT_TRUE(base::write_file_atomic(path("a"), hole));
  reopen();
  EXPECT_EQ(all("a"), "whole,") << "a page of the first frame never reached the disk";
  ASSERT_TRUE(base::write_file_atomic(path("a"), bytes));
  reopen();
  EXPECT_EQ(all("a"), "whole," + content);
}

TEST_F(Blobs, ChangedBytesAreNoContent) {
  ASSERT_TRUE(store_->create("a", facts(), "first"));
  ASSERT_TRUE(store_->append("a", "second"));
  std::string bytes = on_disk("a");
  bytes[bytes.size() - 39 - 10] ^= 1;  // within the frame of "first": that of "second" has 39 bytes
  ASSERT_TRUE(base::write_file_atomic(path("a"), bytes));
  reopen();
  ASSERT_NE(store_->find("a"), nullptr);
  const auto read = store_->read("a", 0, 100);
  EXPECT_TRUE(!read && read.error().code == base::ErrorCode::kCorruptFile) << (read ? *read : read.error().message);
}

// What another user owns, what a broken disk does not give: it may be a blob, and its key is the only one.
TEST_F(Blobs, AFileThatCannotBeReadKeepsItsKey) {
  ASSERT_TRUE(store_->create("a", facts(), "first"));
  ASSERT_TRUE(store_->create("b", facts(), "second"));
  const std::filesystem::path away = directory_.string() + "-away";
  for (const bool is_link : {true, false}) {
    store_.reset();
    std::filesystem::rename(path("a"), away);
    is_link ? std::filesystem::create_symlink(away, path("a")) : void(std::filesystem::create_directory(path("a")));
    const auto refused = try_open();
    ASSERT_TRUE(std::filesystem::exists(path("a")));
    std::filesystem::remove(path("a"));
    std::filesystem::rename(away, path("a"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kStoreUnavailable);
    EXPECT_NE(refused.error().message.find(path("a").string()), std::string::npos) << refused.error().message;
    reopen();
    EXPECT_EQ(all("a"), "first");
    EXPECT_EQ(all("b"), "second");
  }
}

// Of a file whose facts, or whose last bytes, the disk does not give now nobody knows that they are damaged.
TEST_F(Blobs, AFileThatCannotBeReadWholeStaysWhole) {
  Facts large = facts();
  large.body = std::string(100 << 10, 'f');
  const std::string content(200 << 10, 'c');
  ASSERT_TRUE(store_->create("a", large, content));  // its key is at the beginning of the other file
  const auto bytes = static_cast<off_t>(on_disk("a").size());
  // The first byte of the facts and of the last piece; of both the frame's head is read.
  const off_t last_piece = bytes - static_cast<off_t>(content.size() % (64 << 10)) - 28;
  for (const off_t from : {off_t{17}, off_t{64 << 10}, last_piece}) {
    store_.reset();
    g_broken_from = from;
    const auto refused = try_open();
    g_broken_from.reset();
    ASSERT_FALSE(refused) << from;
    EXPECT_EQ(refused.error().code, base::ErrorCode::kStoreUnavailable);
    reopen();
    ASSERT_NE(store_->find("a"), nullptr) << from;
    EXPECT_EQ(store_->find("a")->facts.body, large.body);
    EXPECT_EQ(all("a"), content) << from;
  }
}

TEST_F(Blobs, WhatIsNoBlobIsRemoved) {
  for (const char* content : {"", "llblob1", "another file of many bytes"}) {
    ASSERT_TRUE(base::write_file_atomic(path("x"), content));
    reopen();
    EXPECT_FALSE(std::filesystem::exists(path("x"))) << content;
  }
}

// A downgrade: the newer program opens it again.
TEST_F(Blobs, WhatANewerProgramKeptIsNotRemoved) {
  ASSERT_TRUE(store_->create("a", facts(), "kept"));
  std::string newer = on_disk("a");
  newer[6] = '2';
  ASSERT_TRUE(base::write_file_atomic(path("x"), newer));
  store_.reset();
  const std::string keys = base::read_file(directory_ / "keys", 1 << 20).value();
  const auto refused = try_open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kUnsupportedFormatVersion);
  EXPECT_NE(refused.error().message.find(path("x").string()), std::string::npos) << refused.error().message;
  EXPECT_EQ(base::read_file(path("x"), 1 << 20).value(), newer);
  EXPECT_EQ(base::read_file(directory_ / "keys", 1 << 20).value(), keys);
  std::filesystem::remove(path("x"));
  reopen();
  EXPECT_EQ(all("a"), "kept");
}

TEST_F(Blobs, AFullDiskIsAnErrorAndThenPasses) {
  ASSERT_TRUE(store_->create("a", facts(), "first,"));
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = on_disk("a").size() + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto appended = store_->append("a", "second,");
  const auto created = store_->create("new", facts(), std::string(4096, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code, base::ErrorCode::kStoreUnavailable);
  EXPECT_EQ(created.error().code, base::ErrorCode::kStoreUnavailable);
  EXPECT_EQ(store_->find("a")->content_bytes, 6U);
  EXPECT_EQ(store_->find("new"), nullptr);
  ASSERT_TRUE(store_->append("a", "x"));
  reopen();
  EXPECT_EQ(all("a"), "first,x");
}

// One more key needs room that the disk lacks; to give one up needs none, and frees what the blob took.
TEST_F(Blobs, AFullDiskIsFreedByErasing) {
  const auto name = [](std::size_t i) { return "b" + std::to_string(i); };
  const std::size_t count = payload::PayloadKeys::kSpareKeys;
  for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(store_->create(name(i), facts()));
  reopen(count * 4096);
  {
    const base::testing::FileSizeLimit limit(count * payload::kKeyBytes);
    EXPECT_EQ(store_->create("new", facts()).error().code, base::ErrorCode::kQuotaExceeded);
    EXPECT_EQ(store_->create("other", facts("t2")).error().code, base::ErrorCode::kStoreUnavailable);
    const auto erased = store_->erase(name(0));
    ASSERT_TRUE(erased) << erased.error().message;
    EXPECT_FALSE(std::filesystem::exists(path(name(0))));
    EXPECT_TRUE(store_->check_room("t1", 4096)) << "its place is free";
  }
  EXPECT_TRUE(store_->create("new", facts()));
  reopen();
  EXPECT_EQ(store_->find(name(0)), nullptr);
  EXPECT_NE(store_->find("new"), nullptr);
}

// The keys of a disk that takes no byte.
TEST_F(Blobs, OneThatCouldNotBeErasedIsNotThereAndNoOtherTakesItsName) {
  reopen(4096);
  ASSERT_TRUE(store_->create("a", facts(), "secret"));
  const std::string keys = base::read_file(directory_ / "keys", 1 << 20).value();
  {
    const base::testing::FileSizeLimit limit(0);
    EXPECT_EQ(store_->erase("a").error().code, base::ErrorCode::kStoreUnavailable);
    EXPECT_EQ(store_->find("a"), nullptr);
    EXPECT_FALSE(std::filesystem::exists(path("a")));
    EXPECT_TRUE(store_->check_room("t1", 1)) << "it takes nobody's room";
    EXPECT_EQ(store_->create("a", facts(), "second").error().code, base::ErrorCode::kStoreUnavailable);
    EXPECT_EQ(store_->complete("a", {}).error().code, base::ErrorCode::kNotFound);
    EXPECT_EQ(store_->expire(), 0U);
    EXPECT_EQ(base::read_file(directory_ / "keys", 1 << 20).value(), keys);
  }
  EXPECT_EQ(store_->expire(), 1U) << "the next look erases it, though it expires never";
  EXPECT_NE(base::read_file(directory_ / "keys", 1 << 20).value().substr(0, payload::kKeyBytes),
            keys.substr(0, payload::kKeyBytes));
  ASSERT_TRUE(store_->create("a", facts(), "second"));
  reopen();
  EXPECT_EQ(all("a"), "second");
}

TEST_F(Blobs, CreateErasesFirstWhatCouldNotBeErased) {
  ASSERT_TRUE(store_->create("a", facts(), "first"));
  {
    const base::testing::FileSizeLimit limit(0);
    ASSERT_FALSE(store_->erase("a"));
  }
  ASSERT_TRUE(store_->create("a", facts(), "second"));
  EXPECT_EQ(all("a"), "second");
}

TEST_F(Blobs, ATenantHasRoomOfItsOwn) {
  reopen(100'000);
  EXPECT_EQ(store_->create("a", facts("t1"), std::string(200'000, 'x')).error().code, base::ErrorCode::kQuotaExceeded);
  ASSERT_TRUE(store_->create("b", facts("t1"), std::string(70'000, 'x')));
  EXPECT_EQ(store_->check_room("t1", 30'000).error().code, base::ErrorCode::kQuotaExceeded);
  EXPECT_TRUE(store_->check_room("t2", 90'000));
  EXPECT_EQ(store_->check_room("t2", UINT64_MAX).error().code, base::ErrorCode::kQuotaExceeded);
  ASSERT_TRUE(store_->append("b", std::string(70'000, 'x'))) << "what was accepted is kept";
  ASSERT_TRUE(store_->erase("b"));
  EXPECT_TRUE(store_->check_room("t1", 30'000));
}

// As many as have room, however small they are.
TEST_F(Blobs, SmallOnesCountAsWell) {
  reopen(10 * 4096);
  int kept = 0;
  while (store_->create("b" + std::to_string(kept), facts("t1"))) ++kept;
  EXPECT_EQ(kept, 10);
}

TEST_F(Blobs, ExpireAndListByWhoseTheyAre) {
  for (const int i : {3, 1, 2}) {
    Facts mine = facts(i == 2 ? "t2" : "t1");
    mine.created_unix_ms = i;
    if (i != 3) mine.expires_unix_ms = clock_.now().unix_ms + 10 * i;
    ASSERT_TRUE(store_->create("f" + std::to_string(i), mine));
  }
  const auto ids = [&](const std::vector<const Blob*>& blobs) {
    std::string out;
    for (const Blob* blob : blobs) out += blob->id + " ";
    return out;
  };
  EXPECT_EQ(ids(store_->list("file")), "f1 f2 f3 ");
  EXPECT_EQ(ids(store_->list("file", "t1")), "f1 f3 ");
  EXPECT_EQ(ids(store_->list("batch")), "");
  clock_.advance_ms(9);
  EXPECT_EQ(store_->expire(), 0U);
  clock_.advance_ms(1);
  EXPECT_EQ(store_->expire([](const Blob& blob) { return blob.id == "f1"; }), 0U) << "it is in use";
  EXPECT_EQ(store_->expire(), 1U);
  clock_.advance_ms(1000);
  EXPECT_EQ(store_->expire(), 1U);
  EXPECT_EQ(ids(store_->list("file")), "f3 ");
}

// What is counted and listed is told from no walk over what is there: each change keeps it true, the failed ones as well.
TEST_F(Blobs, RoomAndListsFollowEachChange) {
  const auto is_true = [&] {
    std::map<std::string, std::uint64_t> held;
    std::map<std::string, std::set<std::string>> listed;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      const Blob* blob = store_->find(file.path().stem().string());
      if (blob == nullptr) continue;
      held[blob->facts.tenant_id] += std::max<std::uint64_t>(file.file_size(), 4096);
      listed[blob->facts.kind + " of " + blob->facts.tenant_id].insert(blob->id);
    }
    for (const std::string tenant : {"t1", "t2"}) {
      const auto refused = store_->check_room(tenant, UINT64_MAX).error();
      EXPECT_TRUE(std::ranges::find(refused.details, std::pair<std::string, base::DetailValue>(
                                                         "held_bytes", static_cast<std::int64_t>(held[tenant]))) !=
                  refused.details.end())
          << tenant << ": " << refused.message << ", and " << held[tenant] << " lie there";
      for (const std::string kind : {"file", "batch"}) {
        std::set<std::string> ids;
        for (const Blob* blob : store_->list(kind, tenant)) ids.insert(blob->id);
        EXPECT_EQ(ids, listed[kind + " of " + tenant]);
      }
    }
  };
  Facts moved = facts("t2");
  moved.kind = "batch";
  moved.created_unix_ms = 1;
  moved.expires_unix_ms = clock_.now().unix_ms + 10;
  for (const std::string id : {"a", "b", "c"}) ASSERT_TRUE(store_->create(id, facts(), "content"));
  is_true();
  ASSERT_TRUE(store_->append("a", std::string(70'000, 'x')));
  is_true();
  ASSERT_TRUE(store_->set_facts("a", moved));
  is_true();
  ASSERT_TRUE(store_->replace("b", moved, std::string(9'000, 'y')));
  is_true();
  ASSERT_TRUE(store_->complete("c", {.content = "", .body = "whole", .expires_unix_ms = clock_.now().unix_ms + 20}));
  is_true();
  {
    const base::testing::FileSizeLimit limit(0);
    EXPECT_FALSE(store_->append("a", "no room"));
    EXPECT_FALSE(store_->set_facts("a", facts()));
    EXPECT_FALSE(store_->replace("b", facts(), "no room"));
    EXPECT_FALSE(store_->erase("c"));
  }
  is_true();
  EXPECT_EQ(store_->expire(), 1U) << "c, whose key the disk takes now";
  reopen();
  is_true();
  ASSERT_TRUE(store_->set_facts("a", facts()));
  moved.expires_unix_ms = clock_.now().unix_ms + 5;
  ASSERT_TRUE(store_->set_facts("b", moved));
  clock_.advance_ms(5);
  EXPECT_EQ(store_->expire(), 1U) << "b; a has no end any more";
  is_true();
  EXPECT_NE(store_->find("a"), nullptr);
}

// The monotonic clock stands while the machine sleeps. A month is one all the same.
TEST_F(Blobs, TheyExpireWhileTheMachineSleeps) {
  constexpr std::int64_t kHourMs = 3'600'000, kMonthMs = 30 * 24 * kHourMs;
  const auto create = [&](const std::string& id, std::int64_t keep_ms) {
    Facts mine = facts();
    mine.created_unix_ms = clock_.now().unix_ms;
    mine.expires_unix_ms = clock_.now().unix_ms + keep_ms;
    ASSERT_TRUE(store_->create(id, mine));
  };
  create("month", kMonthMs);
  create("longer", 2 * kMonthMs);
  clock_.advance_ms(kHourMs);
  asleep_ms_ += kMonthMs;
  clock_.set({clock_.now().mono_ms, clock_.now().unix_ms + kMonthMs});
  EXPECT_EQ(store_->expire(), 1U);
  EXPECT_EQ(store_->find("month"), nullptr);
  EXPECT_NE(store_->find("longer"), nullptr);
}

// A clock that is set forward, or that is wrong at a start, ends nothing that was to stay.
TEST_F(Blobs, AJumpOfTheWallClockEndsNothing) {
  constexpr std::int64_t kHourMs = 3'600'000, kMonthMs = 30 * 24 * kHourMs;
  const auto create = [&](const std::string& id, std::int64_t keep_ms) {
    Facts mine = facts();
    mine.created_unix_ms = clock_.now().unix_ms;
    mine.expires_unix_ms = clock_.now().unix_ms + keep_ms;
    ASSERT_TRUE(store_->create(id, mine));
  };
  const auto jump = [&] { clock_.set({clock_.now().mono_ms, clock_.now().unix_ms + 10 * kMonthMs}); };
  create("month", kMonthMs);
  jump();
  EXPECT_EQ(store_->expire(), 0U);
  create("second", 1000);
  clock_.advance_ms(1000);
  EXPECT_EQ(store_->expire(), 1U) << "what this process was told to keep for a second waits for no clock to settle";
  EXPECT_NE(store_->find("month"), nullptr);
  ASSERT_TRUE(store_->set_facts("month", store_->find("month")->facts));
  ASSERT_TRUE(store_->replace("month", store_->find("month")->facts, "other"));
  EXPECT_EQ(store_->expire(), 0U) << "its end is still that of before";

  clock_.advance_ms(2 * kHourMs);
  EXPECT_EQ(store_->expire(), 0U) << "its month is not over, whatever the clock says by now";

  clock_.set({5, clock_.now().unix_ms});  // a machine that was started again
  reopen();
  EXPECT_EQ(store_->expire(), 0U);
  clock_.advance_ms(kHourMs / 2);
  EXPECT_EQ(store_->expire(), 0U);
  clock_.set({clock_.now().mono_ms, clock_.now().unix_ms - 10 * kMonthMs});
  clock_.advance_ms(kHourMs);
  EXPECT_EQ(store_->expire(), 0U) << "the clock was corrected, and the month is not over";
  jump();
  EXPECT_EQ(store_->expire(), 0U);
  clock_.advance_ms(kHourMs);
  EXPECT_EQ(store_->expire(), 1U) << "a clock that stands is believed";
}

}  // namespace
}  // namespace llorch::orchestratord::store::blobs
