#include "orchestratord/store/sqlite/copy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/testing/faulty_disk.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

using testing::Fault;
using testing::FaultyDisk;

// A table of texts that fill a few hundred pages; what is counted of it is how many there are and the sum of their numbers.
class CopyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("llorch-copy-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    ASSERT_TRUE(files::open_state_file(path("source")) && files::open_state_file(path("copy")));
    source_.emplace(Database::open({.path = path("source"), .checkpoint_pages = 20}).value());
    ASSERT_TRUE(source_->execute("CREATE TABLE t (x INTEGER PRIMARY KEY, text TEXT) STRICT"));
    ASSERT_TRUE(
        source_->execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000) "
                         "INSERT INTO t SELECT x, hex(zeroblob(500)) FROM n"));
  }
  void TearDown() override {
    source_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  // Changes pages at the beginning, in the middle and at the end of the file.
  base::Result<> change(int n) {
    return source_
        ->transaction([&]() -> base::Result<> {
          TRY(source_->execute("INSERT INTO t VALUES (" + std::to_string(2000 + n) + ", hex(zeroblob(900)))"));
          TRY(source_->execute("DELETE FROM t WHERE x = " + std::to_string(n * 7)));
          return source_->execute("UPDATE t SET text = hex(zeroblob(300)) WHERE x = " + std::to_string(n * 11));
        })
        .result;
  }
  using Content = std::pair<std::int64_t, std::int64_t>;
  static Content content(Database& database) {
    const StatementUse row(*database.statement("SELECT sum(x), sum(x * length(text)) FROM t").value());
    EXPECT_TRUE(row->step().value());
    return {row->integer(0), row->integer(1)};
  }
  Content content_of_copy() const {
    auto copy = Database::open({.path = path("copy")}).value();
    const StatementUse check(*copy.statement("PRAGMA integrity_check").value());
    EXPECT_TRUE(check->step().value());
    EXPECT_EQ(check->text(0), "ok");
    return content(copy);
  }

  std::filesystem::path directory_;
  std::optional<Database> source_;
};

// What is committed between two steps is in the copy, wherever the copy was then.
TEST_F(CopyTest, IsOfTheMomentOfItsLastStep) {
  auto copy = Copy::begin(*source_, {.path = path("copy"), .vfs = {}}).value();
  int steps = 0;
  for (; !copy->step(4).value(); ++steps) {
    const BackupProgress progress = copy->progress();
    EXPECT_GT(progress.pages_done, 0);
    EXPECT_LE(progress.pages_done, progress.pages_total);
    ASSERT_TRUE(change(steps));
  }
  EXPECT_GT(steps, 50);
  copy.reset();
  EXPECT_EQ(content_of_copy(), content(*source_));
}

TEST_F(CopyTest, HoldsNothingOfWhatWasRolledBack) {
  auto copy = Copy::begin(*source_, {.path = path("copy"), .vfs = {}}).value();
  int steps = 0;
  for (; !copy->step(32).value(); ++steps) {
    ASSERT_LT(steps, 10'000);
    if (steps > 20) continue;  // each may send the copy back to its beginning
    const Ended ended = source_->transaction([&]() -> base::Result<> {
      TRY(source_->execute("DELETE FROM t WHERE x % 3 = 0"));
      return base::fail(base::ErrorCode::kInternal, "no");
    });
    EXPECT_FALSE(ended.result);
  }
  copy.reset();
  EXPECT_EQ(content_of_copy(), content(*source_));
}

// ENOSPC at every write: the copy says so, and the store does not notice.
TEST_F(CopyTest, AFullDiskEndsTheCopyOnly) {
  bool whole = false;
  int failures = 0, changes = 0;
  for (std::int64_t n = 0; !whole; n = n < 40 ? n + 1 : n * 2) {
    FaultyDisk disk(1);
    ASSERT_TRUE(disk.door()("copy"));
    auto copy = Copy::begin(*source_, {.path = "copy", .vfs = disk.sqlite_vfs()}).value();
    disk.fail({.fault = Fault::kFull, .after = n});
    for (;;) {
      const auto stepped = copy->step(64);
      ASSERT_TRUE(change(++changes));
      if (stepped && !*stepped) continue;
      whole = stepped.has_value();
      failures += !whole;
      if (whole) break;
      EXPECT_EQ(stepped.error().code, base::ErrorCode::kStoreUnavailable);
      break;
    }
    ASSERT_TRUE(source_->execute("DELETE FROM t WHERE x >= 2000"));
    copy.reset();
  }
  EXPECT_GT(failures, 10);
}

TEST_F(CopyTest, NeedsAFileThatIsThere) {
  const auto copy = Copy::begin(*source_, {.path = path("missing"), .vfs = {}});
  ASSERT_FALSE(copy);
  EXPECT_NE(copy.error().message.find("orchestratord may write"), std::string::npos) << copy.error().message;
}

}  // namespace
}  // namespace llorch::orchestratord::store::sqlite
