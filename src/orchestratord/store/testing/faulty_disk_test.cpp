#include "orchestratord/store/testing/faulty_disk.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <set>
#include <span>

namespace llorch::orchestratord::store::testing {
namespace {

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// What was synced is there after any crash; what was not is there in any part, and never anything else.
TEST(FaultyDisk, APowerFailureCutsWhatIsNotSynced) {
  const std::string old_bytes(2000, 'a'), new_bytes(2000, 'b');
  std::set<std::string> met;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    FaultyDisk disk(seed);
    {
      auto file = disk.door()("f").value();
      ASSERT_TRUE(file->write(0, bytes_of(old_bytes)));
      ASSERT_TRUE(file->sync());
      ASSERT_TRUE(file->write(1000, bytes_of(new_bytes)));
    }
    disk.restart(Crash::kKill);
    ASSERT_EQ(disk.content("f"), old_bytes.substr(0, 1000) + new_bytes);
    disk.restart(Crash::kPowerFailure);
    const std::string left = disk.content("f");
    ASSERT_GE(left.size(), 2000u);
    EXPECT_EQ(left.substr(0, 1000), old_bytes.substr(0, 1000));
    EXPECT_EQ(left.find_first_not_of(std::string("ab\0", 3)), std::string::npos);
    met.insert(left);
  }
  EXPECT_GT(met.size(), 20u);
  EXPECT_TRUE(met.contains(old_bytes)) << "nothing of it";
  EXPECT_TRUE(met.contains(old_bytes.substr(0, 1000) + new_bytes)) << "all of it";
}

TEST(FaultyDisk, AFailedSyncMayLoseWhatStaysVisible) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    FaultyDisk disk(seed);
    {
      auto file = disk.door()("f").value();
      ASSERT_TRUE(file->write(0, bytes_of("one")));
      disk.fail({.fault = Fault::kSync, .times = 1});
      EXPECT_FALSE(file->sync());
      EXPECT_EQ(disk.failures(), 1);
      EXPECT_TRUE(file->sync());
      EXPECT_EQ(disk.content("f"), "one");
    }
    disk.restart(Crash::kPowerFailure);
    lost += disk.content("f") != "one";
  }
  EXPECT_GT(lost, 10);
  EXPECT_LT(lost, 90);
}

TEST(FaultyDisk, TheDeadChangeNothing) {
  FaultyDisk disk(1);
  {
    auto file = disk.door()("f").value();
    ASSERT_TRUE(file->write(0, bytes_of("12345678")));
    disk.die_after(1);
    EXPECT_TRUE(file->write(0, bytes_of("abcd")));
    EXPECT_FALSE(disk.dead());
    EXPECT_FALSE(file->write(4, bytes_of("efgh")));
    EXPECT_TRUE(disk.dead());
    EXPECT_FALSE(file->write(0, bytes_of("xxxx")));
    EXPECT_FALSE(disk.door()("g"));
  }
  disk.restart(Crash::kKill);
  EXPECT_EQ(disk.content("f").substr(0, 4), "abcd");
  EXPECT_TRUE(disk.holds("f", "abcd"));
  EXPECT_FALSE(disk.holds("f", "xxxx"));
}

TEST(FaultyDisk, SeesForbiddenBytes) {
  FaultyDisk disk(1);
  disk.forbid("secret");
  auto file = disk.door()("f").value();
  ASSERT_TRUE(file->write(0, bytes_of("nothing")));
  EXPECT_FALSE(disk.forbidden_seen());
  ASSERT_TRUE(file->write(0, bytes_of("a secret text")));
  EXPECT_TRUE(disk.forbidden_seen());
}

// SQLite itself on this disk: whatever a power failure leaves is a sound database with every commit in it.
TEST(FaultyDisk, SqliteRecoversEveryCommit) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    FaultyDisk disk(seed);
    const auto open = [&] {
      sqlite3* db = nullptr;
      EXPECT_EQ(sqlite3_open_v2("db", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, disk.sqlite_vfs().c_str()),
                SQLITE_OK);
      EXPECT_EQ(sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
                             nullptr, nullptr, nullptr),
                SQLITE_OK);
      return db;
    };
    const auto number = [](sqlite3* db, const char* sql) {
      sqlite3_stmt* statement = nullptr;
      EXPECT_EQ(sqlite3_prepare_v2(db, sql, -1, &statement, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
      EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
      const int value = sqlite3_column_int(statement, 0);
      sqlite3_finalize(statement);
      return value;
    };
    sqlite3* db = open();
    ASSERT_EQ(sqlite3_exec(db, "CREATE TABLE t (x)", nullptr, nullptr, nullptr), SQLITE_OK);
    disk.die_after(static_cast<std::int64_t>(seed));
    int committed = 0;
    while (sqlite3_exec(db, "INSERT INTO t VALUES (randomblob(900))", nullptr, nullptr, nullptr) == SQLITE_OK) {
      ++committed;
    }
    sqlite3_close(db);
    ASSERT_TRUE(disk.dead());
    disk.restart(Crash::kPowerFailure);
    db = open();
    const int found = number(db, "SELECT count(*) FROM t");
    EXPECT_GE(found, committed) << seed;
    EXPECT_LE(found, committed + 1) << seed;
    EXPECT_EQ(number(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
    sqlite3_close(db);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::store::testing
