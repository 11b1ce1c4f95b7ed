// Starts with another store than the one whose prompts the keys of the state directory open.
#include "orchestratord/store/key_owner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error_detail.h"
#include "base/file.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/sqlite/migrations.h"
#include "orchestratord/store/testing/store_test_support.h"
#include "wire/json.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;

class KeyOwnerTest : public ::testing::Test {
 protected:
  // As a configuration that names another store finds it: none is here.
  void move_store_to(const TempDir& to) const {
    for (const char* name : {"orchestrator.db", "orchestrator.db-wal"}) {
      if (std::filesystem::exists(dir_.path() / name)) std::filesystem::rename(dir_.path() / name, to.path() / name);
    }
  }
  void bring_store_back(const TempDir& from) const {
    std::filesystem::remove(dir_.path() / "orchestrator.db-wal");
    for (const auto& file : std::filesystem::directory_iterator(from.path())) {
      std::filesystem::rename(file.path(), dir_.path() / file.path().filename());
    }
  }
  std::filesystem::path record() const { return dir_.path() / KeyOwner::kFileName; }
  std::string recorded() const { return base::read_file(record(), 4096).value(); }
  void expect_refused(const std::string& former) const {
    const std::string keys = key_file_bytes(dir_);
    const auto refused = open_sqlite_store(options_in(dir_));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    for (const std::string& part : {former, std::string("SQLite store"), std::string("--take-over")}) {
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << part << ": " << refused.error().message;
    }
    EXPECT_TRUE(base::has_detail(refused.error(), "keys_of"));
    EXPECT_EQ(key_file_bytes(dir_), keys);
  }

  const TempDir dir_, away_;
};

TEST_F(KeyOwnerTest, AnotherStoreDestroysNoKey) {
  ASSERT_TRUE(admit(*open_in(dir_), admission("job-1")));
  const std::string name = recorded();
  EXPECT_TRUE(name.starts_with("SQLite ")) << name;
  move_store_to(away_);
  for (int i = 0; i < 2; ++i) expect_refused("the SQLite store that was made at 20");
  EXPECT_EQ(recorded(), name);
  bring_store_back(away_);
  EXPECT_EQ(live_jobs(*open_in(dir_)).at(0).payload, "payload");
}

TEST_F(KeyOwnerTest, KeysAreGivenUpWhereThatIsSaid) {
  ASSERT_TRUE(admit(*open_in(dir_), admission("job-1")));
  const std::string name = recorded();
  move_store_to(away_);
  SqliteStoreOptions options = options_in(dir_);
  options.take_over = true;
  ASSERT_TRUE(open_sqlite_store(options));
  EXPECT_EQ(key_file_bytes(dir_).find_first_not_of('\0'), std::string::npos);
  EXPECT_NE(recorded(), name);
  EXPECT_TRUE(live_jobs(*open_in(dir_)).empty()) << "the next start is asked nothing";
}

// An older program has named nothing, and a crash may tear the record.
TEST_F(KeyOwnerTest, KeysOfAStoreThatIsNotNamedAreNotDestroyedByANewOne) {
  for (const char* record_bytes : {"", "SQLite 17"}) {
    const TempDir away;
    ASSERT_TRUE(admit(*open_in(dir_), admission("job-1")));
    ASSERT_TRUE(base::write_file_atomic(record(), record_bytes));
    move_store_to(away);
    expect_refused("another store");
    bring_store_back(away);
    auto store = open_in(dir_);
    EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
    EXPECT_TRUE(recorded().starts_with("SQLite 1"));
    ASSERT_TRUE(apply(*store, finished("job-1")));
    store.reset();
    for (const char* name : {"orchestrator.db", "orchestrator.db-wal"}) std::filesystem::remove(dir_.path() / name);
    ASSERT_TRUE(open_in(dir_)) << "no key is left that it could destroy";
    for (const char* name : {"orchestrator.db", "orchestrator.db-wal"}) std::filesystem::remove(dir_.path() / name);
  }
}

class FullFile final : public files::StateFile {
 public:
  explicit FullFile(std::string held) : held_(std::move(held)) {}
  base::Result<std::uint64_t> size() override { return held_.size(); }
  base::Result<> read(std::uint64_t at, std::span<std::uint8_t> out) override {
    std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
    return {};
  }
  base::Result<> write(std::uint64_t, std::span<const std::uint8_t>) override {
    return base::fail(ErrorCode::kStoreUnavailable, "no room, for the test");
  }
  base::Result<> sync() override { return {}; }

 private:
  const std::string held_;
};

// The first start behind an upgrade may be one on a full disk, which refuses jobs and serves.
TEST(KeyOwner, AStoreThatWasNotNamedNeedsNoRoomForItsName) {
  FullFile keys("");
  for (const std::string& held : {std::string(), std::string("SQLite 1\n")}) {
    auto owner = KeyOwner::open({.keys = &keys, .name = std::make_unique<FullFile>(held), .place = "state"}).value();
    EXPECT_EQ(owner.record("SQLite", 2).has_value(), held.empty());
    EXPECT_TRUE(held.empty() || owner.record("SQLite", 1)) << "nothing to write";
  }
}

// A restored store brings its keys into a directory whose record is that of another one.
TEST_F(KeyOwnerTest, KeysThatOpenAllPromptsAreThoseOfTheStore) {
  auto store = open_in(dir_);
  for (const char* id : {"job-1", "job-2"}) ASSERT_TRUE(admit(*store, admission(id)));
  store.reset();
  const std::string keys = key_file_bytes(dir_);
  ASSERT_TRUE(base::write_file_atomic(record(), "PostgreSQL 1\n"));
  std::string one = keys;
  char& byte = one[keys.find_first_not_of('\0')];
  byte = static_cast<char>(byte ^ 1);
  ASSERT_TRUE(base::write_file_atomic(dir_.path() / "payload.keys", one));
  expect_refused("the PostgreSQL store that was made at 1970");
  ASSERT_TRUE(base::write_file_atomic(dir_.path() / "payload.keys", keys));
  EXPECT_EQ(live_jobs(*open_in(dir_)).size(), 2u);
  EXPECT_TRUE(recorded().starts_with("SQLite "));
}

// ---- finding it is all that a refused start does --------------------------------------------------------------------

TEST_F(KeyOwnerTest, WhatIsRefusedBeforeTheMigrationLeavesTheSchema) {
  SqliteStoreOptions options = options_in(dir_);
  options.before_migration = [] { return base::fail(ErrorCode::kCorruptFile, "for the test"); };
  const auto refused = open_sqlite_store(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorruptFile);
  {
    auto database = sqlite::Database::open({.path = (dir_.path() / "orchestrator.db").string()}).value();
    const sqlite::StatementUse tables(*database.statement("SELECT count(*) FROM sqlite_master").value());
    ASSERT_TRUE(tables->step().value());
    EXPECT_EQ(tables->integer(0), 0);
  }
  EXPECT_TRUE(open_sqlite_store(options_in(dir_)));
}

// With an ended job, one whose payload its key opens, and one whose key is another's.
void make_older_store(const TempDir& dir, std::size_t version) {
  payload::Key key, other;
  key.bytes.fill(7);
  other.bytes.fill(8);
  const auto keys = files::open_state_file(dir.path() / "payload.keys").value();
  ASSERT_TRUE(keys->write(0, key.bytes) && keys->write(payload::kKeyBytes, other.bytes));
  const std::string path = (dir.path() / "orchestrator.db").string();
  ASSERT_TRUE(files::open_state_file(path));
  auto database = sqlite::Database::open({.path = path}).value();
  ASSERT_TRUE(sqlite::migrate(database, sqlite::migrations().first(version), 1));
  const std::string columns =
      "(job_id, task_id, correlation_id, request_hash, priority, model, model_ref, model_facts, prompt_hash, params, "
      "max_tokens, seed, on_disconnect, tokens_in, created_at, status, completed_at, terminal_event) VALUES ";
  const std::string rest = ", 'c', 'rr', 'batch', 'm', 'mr', '" + wire::encode(admission("m").job.facts) +
                           "', 'pp', '{\"a\":1}', 3, 7, 'cancel', 2, 3, ";
  ASSERT_TRUE(database.execute("INSERT INTO jobs " + columns + "('ended', 'ended'" + rest + "'completed', 9, '{}')"));
  for (const std::string job : {"sealed", "lost"}) {
    ASSERT_TRUE(database.execute("INSERT INTO jobs " + columns + "('" + job + "', '" + job + "'" + rest +
                                 "'queued', NULL, NULL)"));
    const payload::Sealed sealed = payload::seal(key, {.associated_data = job}, "prompt of " + job, g_entropy);
    sqlite::Statement* insert =
        database
            .statement(version < 6 ? "INSERT INTO job_payloads SELECT job_id, ?2, ?3, ?4 FROM jobs WHERE job_id = ?1"
                                   : "INSERT INTO job_payloads SELECT arrival, ?2, ?3, ?4 FROM jobs WHERE job_id = ?1")
            .value();
    insert->bind(1, std::string_view(job)).bind(2, std::int64_t{job == "lost"});
    insert->bind_blob(3, sealed.nonce).bind_blob(4, sealed.ciphertext);
    ASSERT_TRUE(insert->run());
  }
}

// Payloads have lain under their jobs' ids, and under their arrivals since.
TEST_F(KeyOwnerTest, LiveJobsAreAskedForBeforeTheMigration) {
  for (const std::size_t version : {std::size_t{5}, std::size_t{7}}) {
    const TempDir dir;
    make_older_store(dir, version);
    std::vector<FoundLiveJob> asked;
    bool accepts = false;
    SqliteStoreOptions options = options_in(dir);
    options.check_live_job = [&](const FoundLiveJob& job) -> base::Result<> {
      asked.push_back(job);
      if (accepts || asked.size() == 1) return {};
      return base::fail(ErrorCode::kUnsupportedFormatVersion, "for the test");
    };
    const auto refused = open_sqlite_store(options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupportedFormatVersion);
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].job_id, base::JobId("sealed"));
    EXPECT_EQ(asked[0].params, R"({"a":1})");
    EXPECT_EQ(asked[0].payload, "prompt of sealed");
    EXPECT_EQ(asked[1].job_id, base::JobId("lost"));
    EXPECT_EQ(asked[1].payload, std::nullopt);
    {
      auto database = sqlite::Database::open({.path = (dir.path() / "orchestrator.db").string()}).value();
      EXPECT_EQ(sqlite::find_schema(database, sqlite::migrations()).value().applied_count, version);
    }
    accepts = true;
    EXPECT_EQ(open_sqlite_store(options).value()->restore().value().jobs.size(), 2U);
    asked.clear();
    EXPECT_TRUE(open_sqlite_store(options));
    EXPECT_TRUE(asked.empty()) << "no migration is due";
  }
}

// What is kept in files of a newer program an older one would remove.
TEST_F(KeyOwnerTest, ANewerSchemaIsRefusedBeforeAnythingElseIsOpened) {
  open_in(dir_).reset();
  {
    auto database = sqlite::Database::open({.path = (dir_.path() / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute("INSERT INTO schema_migrations VALUES (99, '0099_newer', '', 0)"));
  }
  SqliteStoreOptions options = options_in(dir_);
  bool asked = false;
  options.before_migration = [&]() -> base::Result<> {
    asked = true;
    return {};
  };
  EXPECT_EQ(open_sqlite_store(options).error().code, ErrorCode::kUnsupportedFormatVersion);
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace llorch::orchestratord::store
