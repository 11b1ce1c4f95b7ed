#include "orchestratord/state_store/backup/backup.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "orchestratord/state_store/sqlite/database.h"
#include "orchestratord/state_store/testing/store_test_support.h"

namespace llorch::orchestratord::state_store::backup {
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
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(from_.path()), {}), 3) << "database, keys, backup";

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
  EXPECT_EQ(find(*store, "ended").value()->progress.status, contract::JobStatus::kCompleted);
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

// A file or a schema of a newer program is refused by name, not misread.
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

}  // namespace
}  // namespace llorch::orchestratord::state_store::backup
