#include "orchestratord/store/backup/backup.h"

#include <endian.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <set>
#include <thread>

#include "base/file.h"
#include "orchestratord/store/payload/payload_keys.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/testing/store_test_support.h"

namespace {
// Of files whose name ends so, the disk gives nothing to reads of more than some pages: those of SQLite are of one.
std::string g_broken_name;
int g_broken_errno = 0;             // 0: they end before where they should
std::function<void()> g_meanwhile;  // at each read of more than some pages
constexpr std::size_t kPagesBytes = 16 << 10;
}  // namespace

// In the place of the C library's.
extern "C" ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  std::error_code ec;
  if (g_meanwhile && bytes > kPagesBytes) g_meanwhile();
  if (!g_broken_name.empty() && bytes > kPagesBytes &&
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ec).string().ends_with(g_broken_name)) {
    errno = g_broken_errno;
    return g_broken_errno == 0 ? 0 : -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, bytes, offset);
}

namespace llorch::orchestratord::store::backup {
namespace {

using base::ErrorCode;

class BackupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = open_in(from_);
    for (const char* id : {"live-1", "ended", "live-2"}) ASSERT_TRUE(admit(*store, admission(id, kNeedle)));
    keys_ = key_file_bytes(from_);
    ASSERT_TRUE(apply(*store, finished("ended")));
  }
  std::filesystem::path file() const { return from_.path() / "jobs.backup"; }
  base::Result<Summary> write_backup() const { return write({.directory = from_.path(), .file = file()}); }
  base::Result<Summary> restore_backup() const { return restore({.directory = to_.path(), .file = file()}); }
  std::string bytes() const { return base::read_file(file(), 1 << 26).value(); }
  void replace(const std::string& content) const { ASSERT_TRUE(base::write_file_atomic(file(), content)); }

  static void give_to_service(const TempDir& dir) {
    ASSERT_EQ(::chown(dir.path().c_str(), kService, kService), 0);
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
      ASSERT_EQ(::chown(entry.path().c_str(), kService, kService), 0);
    }
  }

  static constexpr uid_t kService = 54321;
  static constexpr const char* kNeedle = "Once upon a time a needle lay in a haystack";
  TempDir from_, to_;
  std::string keys_;  // of the three jobs, when all were live
};

// Waiting jobs survive with their prompts and in their order; of an ended one nothing is in the file that opens it.
TEST_F(BackupTest, ARestoredStoreGoesOn) {
  const Summary written = write_backup().value();
  EXPECT_EQ(written.jobs_count, 3);
  EXPECT_EQ(written.live_jobs_count, 2);
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(bytes().size()));
  struct stat st {};
  ASSERT_EQ(::stat(file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const auto key = [&](std::size_t slot) { return keys_.substr(slot * payload::kKeyBytes, payload::kKeyBytes); };
  EXPECT_NE(bytes().find(key(0)), std::string::npos);
  EXPECT_EQ(bytes().find(key(1)), std::string::npos);
  EXPECT_EQ(bytes().find(kNeedle), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 4)
      << "database, keys, their store, backup";

  const Summary restored = restore_backup().value();
  EXPECT_EQ(restored.live_jobs_count, 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(to_.path()), {}), 2) << "database, keys";
  auto store = open_in(to_);
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job.job_id.value, "live-1");
  EXPECT_EQ(jobs[1].job.job_id.value, "live-2");
  EXPECT_EQ(jobs[0].payload, kNeedle);
  EXPECT_EQ(jobs[1].payload, kNeedle);
  EXPECT_EQ(find(*store, "ended").value()->progress.status, wire::JobStatus::kCompleted);
  EXPECT_TRUE(admit(*store, admission("next")));
}

TEST_F(BackupTest, NothingIsOverwritten) {
  ASSERT_TRUE(write_backup());
  const std::string first = bytes();
  EXPECT_EQ(write_backup().error().code, ErrorCode::kConflict);
  EXPECT_EQ(bytes(), first);
  EXPECT_EQ(restore({.directory = from_.path(), .file = file()}).error().code, ErrorCode::kConflict);
  EXPECT_EQ(live_jobs(*open_in(from_)).size(), 2u);
  EXPECT_EQ(write({.directory = to_.path(), .file = to_.path() / "x"}).error().code, ErrorCode::kNotFound);
}

// Without their database the keys are those of a store that was moved away.
TEST_F(BackupTest, KeysOfAnotherStoreAreNotOverwritten) {
  ASSERT_TRUE(write_backup());
  const auto there = to_.path() / "payload.keys";
  ASSERT_TRUE(base::write_file_atomic(there, std::string(payload::kKeyBytes, 'k')));
  const auto refused = restore_backup();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("payload.keys"), std::string::npos);
  EXPECT_EQ(key_file_bytes(to_), std::string(payload::kKeyBytes, 'k'));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(to_.path()), {}), 1);
  ASSERT_TRUE(base::write_file_atomic(there, std::string(payload::kKeyBytes, '\0')));
  EXPECT_TRUE(restore_backup()) << "zeroes open nothing";
  ASSERT_TRUE(std::filesystem::remove(to_.path() / "orchestrator.db"));
  EXPECT_TRUE(restore_backup()) << "an attempt that left its keys can be made again";
}

TEST_F(BackupTest, PathsThatCannotBeLookedAtAreRefused) {
  const std::filesystem::path loop = from_.path() / "loop";
  std::filesystem::create_symlink("loop", loop);
  ASSERT_TRUE(write_backup());
  for (const std::filesystem::path& bad : {loop / "x", from_.path() / std::string(300, 'x')}) {
    EXPECT_EQ(write({.directory = from_.path(), .file = bad}).error().code, ErrorCode::kIoError);
    EXPECT_EQ(write({.directory = bad, .file = to_.path() / "x"}).error().code, ErrorCode::kIoError);
    EXPECT_EQ(restore({.directory = bad, .file = file()}).error().code, ErrorCode::kIoError);
    EXPECT_EQ(Online::prepare({.directory = from_.path(), .file = bad}).error().code, ErrorCode::kIoError);
  }
}

// A backup without them would be one of jobs whose prompts nobody opens.
TEST_F(BackupTest, KeysThatCannotBeReadAreNotLost) {
  const std::filesystem::path keys = from_.path() / "payload.keys", away = to_.path() / "away";
  std::filesystem::rename(keys, away);
  std::filesystem::create_directory(keys);
  const auto refused = write_backup();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIoError);
  EXPECT_NE(refused.error().message.find("payload.keys"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(std::filesystem::exists(file()));
  std::filesystem::remove(keys);
  EXPECT_EQ(write_backup().value().live_jobs_count, 2) << "without the file they are lost, and the records are kept";
}

// What lies where its parts would is somebody's: of another backup under way, or the keys of the store itself.
TEST_F(BackupTest, NothingBesideItIsOverwritten) {
  for (const char* suffix : {".database", ".keys", ".part"}) {
    const std::filesystem::path other = file().string() + suffix;
    ASSERT_TRUE(base::write_file_atomic(other, "somebody's"));
    EXPECT_EQ(write_backup().error().code, ErrorCode::kConflict) << suffix;
    const auto online = Online::prepare({.directory = from_.path(), .file = file()});
    ASSERT_FALSE(online) << suffix;
    EXPECT_EQ(online.error().code, ErrorCode::kConflict);
    EXPECT_EQ(base::read_file(other, 100).value(), "somebody's");
    std::filesystem::remove(other);
  }
  const std::string keys = key_file_bytes(from_);
  EXPECT_FALSE(Online::prepare({.directory = from_.path(), .file = from_.path() / "payload"}));
  EXPECT_EQ(key_file_bytes(from_), keys) << "the keys of live jobs";
  {
    const Online first = Online::prepare({.directory = from_.path(), .file = file()}).value();
    for (const std::filesystem::path& second : {file(), to_.path() / "other.backup"}) {
      const auto online = Online::prepare({.directory = from_.path(), .file = second});
      ASSERT_FALSE(online);
      EXPECT_EQ(online.error().code, ErrorCode::kConflict);
    }
    EXPECT_TRUE(std::filesystem::exists(parts_of(file()).database) && std::filesystem::exists(parts_of(file()).keys));
    EXPECT_EQ(take_request(from_.path()).value(), file());
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 3) << "database, keys, their store";
  EXPECT_TRUE(Online::prepare({.directory = from_.path(), .file = file()})) << "its turn";
}

TEST_F(BackupTest, ADamagedFileLeavesNothingBehind) {
  ASSERT_TRUE(write_backup());
  const std::string good = bytes();
  std::vector<std::string> bad{"", "llorch", good.substr(0, 40), good.substr(0, good.size() - 1), good + "x"};
  for (const std::size_t at :
       {std::size_t{3}, std::size_t{17}, std::size_t{25}, std::size_t{40}, std::size_t{70}, good.size() / 2}) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 1);
  }
  for (const std::string& content : bad) {
    replace(content);
    const auto refused = restore_backup();
    ASSERT_FALSE(refused) << content.size();
    EXPECT_EQ(refused.error().code, ErrorCode::kCorruptFile) << refused.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(to_.path()));
  }
}

// Keys of live jobs beside a backup that was not made would be nobody's.
TEST_F(BackupTest, AFileThatTheDiskDoesNotGiveLeavesNothingBehind) {
  for (const int error : {EIO, 0}) {
    g_broken_errno = error;
    g_broken_name = "orchestrator.db";
    const auto refused = write_backup();
    g_broken_name.clear();
    ASSERT_FALSE(refused) << error;
    EXPECT_EQ(refused.error().code, ErrorCode::kIoError) << refused.error().message;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 3) << "database, keys, their store";
    ASSERT_TRUE(write_backup());
    ASSERT_GT(bytes().size(), kPagesBytes);
    g_broken_name = file().filename().string();
    const auto unread = restore_backup();
    g_broken_name.clear();
    ASSERT_FALSE(unread) << error;
    EXPECT_EQ(unread.error().code, ErrorCode::kIoError) << unread.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(to_.path()));
    std::filesystem::remove(file());
  }
}

// A file or a schema of a newer program is refused by name, not misread.
// A slot that no key file has is one whose key is lost, and that job's alone.
TEST_F(BackupTest, ASlotThatCannotBeIsLost) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t slot :
       {std::int64_t{-1}, -kMax - 1, kMax, std::int64_t{1} << 59, (std::int64_t{1} << 59) + 2, std::int64_t{1} << 32,
        std::int64_t{0xFFFF'FFFF}, std::int64_t{payload::kSlotsMax}, std::int64_t{payload::kSlotsMax} - 1}) {
    {
      auto database = sqlite::Database::open({.path = (from_.path() / "orchestrator.db").string()}).value();
      ASSERT_TRUE(database.execute("UPDATE job_payloads SET key_slot = " + std::to_string(slot) +
                                   " WHERE arrival = (SELECT arrival FROM jobs WHERE job_id = 'live-1')"));
    }
    const auto written = write_backup();
    ASSERT_TRUE(written) << slot << ": " << written.error().message;
    EXPECT_LT(written->bytes, 1 << 20) << slot;
    ASSERT_TRUE(restore_backup()) << slot;
    {
      auto store = open_in(to_);
      const auto jobs = live_jobs(*store);
      ASSERT_EQ(jobs.size(), 2u) << slot;
      EXPECT_EQ(jobs[0].payload, std::nullopt) << slot;
      EXPECT_EQ(jobs[1].payload, kNeedle) << slot;
      EXPECT_TRUE(apply(*store, finished("live-1"))) << slot;
      EXPECT_TRUE(admit(*store, admission("next"))) << slot;
    }
    EXPECT_LT(key_file_bytes(to_).size(), 1u << 16) << slot;
    std::filesystem::remove(file());
    for (const auto& entry : std::filesystem::directory_iterator(to_.path())) std::filesystem::remove(entry.path());
  }
}

TEST_F(BackupTest, MoreKeysThanAStoreHasAreRefused) {
  ASSERT_TRUE(write_backup());
  std::string header = bytes().substr(0, 64);
  const std::uint64_t keys_bytes = htole64(payload::kKeysBytesMax + 1), database_bytes = 0;
  std::memcpy(header.data() + 16, &keys_bytes, sizeof keys_bytes);
  std::memcpy(header.data() + 24, &database_bytes, sizeof database_bytes);
  replace(header);
  std::filesystem::resize_file(file(), 64 + payload::kKeysBytesMax + 1);
  const auto refused = restore_backup();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorruptFile);
  EXPECT_NE(refused.error().message.find("more keys"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(to_.path()));
}

TEST_F(BackupTest, RefusesWhatANewerProgramWrote) {
  ASSERT_TRUE(write_backup());
  std::string newer = bytes();
  newer[14] = '2';
  replace(newer);
  EXPECT_EQ(restore_backup().error().code, ErrorCode::kUnsupportedFormatVersion);
  {
    auto database = sqlite::Database::open({.path = (from_.path() / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute("INSERT INTO schema_migrations VALUES (99, '0099_newer', '', 0)"));
  }
  std::filesystem::remove(file());
  ASSERT_TRUE(write_backup());
  EXPECT_EQ(restore_backup().error().code, ErrorCode::kUnsupportedFormatVersion);
  EXPECT_TRUE(std::filesystem::is_empty(to_.path()));
}

// ---- while the store serves -----------------------------------------------------------------------------------------

// What orchestratord does between `prepare` and `finish`.
base::Result<> copy_parts(Store& store, const std::filesystem::path& directory,
                          const std::function<bool(BackupProgress)>& progress) {
  const Parts parts = parts_of(TRY(take_request(directory)));
  std::promise<base::Result<std::string>> keys;
  store.backup({.database_file = parts.database.string(),
                .progress = progress,
                .done = [&](base::Result<std::string> result) { keys.set_value(std::move(result)); }});
  return fill(parts.keys, TRY(keys.get_future().get()));
}
constexpr auto kGoOn = [](BackupProgress) { return true; };

// Jobs come and end while it is made. Of whatever moment it is: every job that lives in it has its prompt, and nothing in it
// opens the prompt of one that has ended in it.
TEST_F(BackupTest, OfAServingStoreIsOfOneMoment) {
  auto store = open_in(from_);
  // Enough pages for many steps.
  for (int i = 0; i < 60; ++i)
    ASSERT_TRUE(admit(*store, admission("old-" + std::to_string(i), std::string(40'000, 'x'))));
  std::atomic<bool> over{false};
  std::thread load([&] {
    for (int i = 0; !over; ++i) {
      const std::string id = "new-" + std::to_string(i);
      EXPECT_TRUE(admit(*store, admission(id, kNeedle + id)));
      if (i % 3 != 0) {
        EXPECT_TRUE(apply(*store, finished(id)));
      }
      if (i < 60 && i % 2 == 0) {
        EXPECT_TRUE(apply(*store, finished("old-" + std::to_string(i))));
      }
    }
  });
  int steps = 0;
  {
    const Online online = Online::prepare({.directory = from_.path(), .file = file()}).value();
    const auto made = copy_parts(*store, from_.path(), [&](BackupProgress) { return ++steps > 0; });
    over = true;
    load.join();
    ASSERT_TRUE(made) << made.error().message;
    const Summary written = online.finish().value();
    EXPECT_GT(written.live_jobs_count, 0);
    EXPECT_LT(written.live_jobs_count, written.jobs_count);
  }
  EXPECT_GT(steps, 10);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 5)
      << "database, log, keys, their store, backup";
  EXPECT_EQ(bytes().find(kNeedle), std::string::npos);
  struct stat st {};
  ASSERT_EQ(::stat(file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);

  const Summary restored = restore_backup().value();
  // Keys of live jobs and nothing else: as many as there are payloads.
  std::int64_t keys_count = 0;
  const std::string keys = key_file_bytes(to_);
  for (std::size_t at = 0; at < keys.size(); at += payload::kKeyBytes) {
    keys_count += keys.substr(at, payload::kKeyBytes) != std::string(payload::kKeyBytes, '\0');
  }
  EXPECT_EQ(keys_count, restored.live_jobs_count);
  auto other = open_in(to_);
  const auto jobs = live_jobs(*other);
  EXPECT_EQ(static_cast<std::int64_t>(jobs.size()), restored.live_jobs_count);
  for (const RestoredJob& job : jobs) {
    ASSERT_TRUE(job.payload) << job.job.job_id.value;
    if (job.job.job_id.value.starts_with("new-")) {
      EXPECT_EQ(*job.payload, kNeedle + job.job.job_id.value);
    }
    EXPECT_TRUE(apply(*other, finished(job.job.job_id.value)));
  }
}

// Root backs up and restores for the service whose directory it is. What lies there under a name of ours is not given away.
TEST_F(BackupTest, WhatRootMakesIsTheServices) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes files for others";
  const auto owner_of = [](const std::filesystem::path& path) {
    struct stat st {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st.st_uid;
  };
  for (const TempDir* dir : {&from_, &to_}) give_to_service(*dir);
  {
    const Online online = Online::prepare({.directory = from_.path(), .file = file()}).value();
    for (const auto& made : {parts_of(file()).database, parts_of(file()).keys, from_.path() / "backup.request"}) {
      EXPECT_EQ(owner_of(made), kService) << made;
    }
    EXPECT_EQ(take_request(from_.path()).value(), file());
  }
  ASSERT_TRUE(write_backup());
  const std::filesystem::path others = from_.path() / "others";
  ASSERT_TRUE(base::write_file_atomic(others, "somebody's"));
  for (const char* name : {"orchestrator.db.restored", "payload.keys.restored"}) {
    std::filesystem::create_hard_link(others, to_.path() / name);
  }
  const auto lock = lock_state_directory(to_.path());
  ASSERT_TRUE(lock);
  ASSERT_TRUE(restore_backup());
  for (const char* name : {"orchestrator.db", "payload.keys", "orchestrator.lock"}) {
    EXPECT_EQ(owner_of(to_.path() / name), kService) << name;
  }
  EXPECT_EQ(owner_of(others), 0u);
  EXPECT_EQ(base::read_file(others, 100).value(), "somebody's");
  EXPECT_EQ(live_jobs(*open_in(to_)).size(), 2u);
}

// What lies where root looks is the service's to choose, a link or a pipe as well.
TEST_F(BackupTest, RootReadsForTheServiceWhatTheServiceMayRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may read more";
  const TempDir roots;
  ASSERT_TRUE(admit(*open_in(roots), admission("of-root")));
  ASSERT_EQ(::chmod(roots.path().c_str(), 0755), 0);
  const std::filesystem::path roots_database = roots.path() / "orchestrator.db",
                              roots_keys = roots.path() / "payload.keys";
  const std::string before = base::read_file(roots_database, 1 << 26).value();
  for (const TempDir* dir : {&from_, &to_}) give_to_service(*dir);
  const auto link = [](const std::filesystem::path& name, const std::filesystem::path& target) {
    std::filesystem::remove(name);
    std::filesystem::create_symlink(target, name);
  };
  const auto finish = [&](const std::function<void(const Parts&)>& meddle) {
    const Online online = Online::prepare({.directory = from_.path(), .file = file()}).value();
    EXPECT_TRUE(copy_parts(*open_in(from_), from_.path(), kGoOn));
    meddle(parts_of(file()));
    return online.finish().has_value();
  };
  EXPECT_FALSE(finish([&](const Parts& parts) { link(parts.database, roots_database); }));
  EXPECT_FALSE(finish([&](const Parts& parts) { link(parts.keys, roots_keys); }));
  EXPECT_FALSE(finish([](const Parts& parts) {
    std::filesystem::remove(parts.keys);
    ASSERT_EQ(::mkfifo(parts.keys.c_str(), 0600), 0);
    ASSERT_EQ(::chown(parts.keys.c_str(), kService, kService), 0);
  }));
  EXPECT_TRUE(finish([](const Parts&) {}));
  std::filesystem::remove(file());

  for (const auto& [name, target] :
       {std::pair{"payload.keys", roots_keys}, std::pair{"orchestrator.db", roots_database}}) {
    std::filesystem::rename(from_.path() / name, from_.path() / "away");
    link(from_.path() / name, target);
    EXPECT_FALSE(write_backup()) << name;
    EXPECT_FALSE(std::filesystem::exists(file()));
    std::filesystem::rename(from_.path() / "away", from_.path() / name);
  }
  ASSERT_TRUE(write_backup());

  const std::filesystem::path restored = to_.path() / "orchestrator.db.restored";
  g_meanwhile = [&] {
    if (std::filesystem::exists(restored)) link(restored, roots_database);
  };
  const auto refused = restore_backup();
  g_meanwhile = nullptr;
  EXPECT_FALSE(refused);
  EXPECT_TRUE(base::read_file(roots_database, 1 << 26).value() == before) << "root's store was written to";
  EXPECT_TRUE(restore_backup());
  EXPECT_EQ(::geteuid(), 0u);
}

TEST_F(BackupTest, OfAServingStoreIsOneAtATimeAndCanBeGivenUp) {
  auto store = open_in(from_);
  for (int i = 0; i < 60; ++i)
    ASSERT_TRUE(admit(*store, admission("old-" + std::to_string(i), std::string(40'000, 'x'))));
  const Paths paths{.directory = from_.path(), .file = file()};
  {
    const Online online = Online::prepare(paths).value();
    const auto given_up = copy_parts(*store, from_.path(), [](BackupProgress p) { return p.pages_done == 0; });
    ASSERT_FALSE(given_up);
    EXPECT_EQ(given_up.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(copy_parts(*store, from_.path(), kGoOn).error().code, ErrorCode::kNotFound) << "a request is good once";
  }
  {
    const Online online = Online::prepare(paths).value();
    base::Result<> second;
    const auto first = copy_parts(*store, from_.path(), [&, asked = false](BackupProgress) mutable {
      if (!std::exchange(asked, true)) {
        store->backup({.database_file = parts_of(file()).database.string(),
                       .progress = kGoOn,
                       .done = [&](const base::Result<std::string>& r) { second = base::fail(r.error()); }});
      }
      return true;
    });
    EXPECT_TRUE(first);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 4)
      << "database, log, keys, their store";
  // One that stops says so.
  const Online online = Online::prepare(paths).value();
  std::thread stop;
  const auto stopped = copy_parts(*store, from_.path(), [&](BackupProgress) {
    if (!stop.joinable()) stop = std::thread([&] { store->stop(); });
    return true;
  });
  stop.join();
  if (!stopped) {
    EXPECT_EQ(stopped.error().code, ErrorCode::kShuttingDown);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::store::backup
