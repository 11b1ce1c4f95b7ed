#include "orchestratord/store/sqlite/migrations.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/sqlite/job_table.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

class MigrationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("llorch-migrations-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    ASSERT_TRUE(files::open_state_file(path()));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return (dir_ / "orchestrator.db").string(); }
  std::filesystem::path dir_;
};

constexpr Migration kFirst{1, "0001_a", "CREATE TABLE a (x INTEGER) STRICT;"};
constexpr Migration kSecond{2, "0002_b", "CREATE TABLE b (x INTEGER) STRICT; INSERT INTO b SELECT x FROM a;"};
constexpr Migration kBroken{2, "0002_b", "CREATE TABLE b (x INTEGER) STRICT; SELECT no_such_column FROM a;"};

// SYS-6.1.3: versioned migrations are applied at start, each once and in order.
TEST_F(MigrationsTest, AppliesWhatIsMissing) {
  {
    auto db = Database::open({.path = path()}).value();
    ASSERT_TRUE(migrate(db, std::array{kFirst}, 1));
    ASSERT_TRUE(db.execute("INSERT INTO a VALUES (7)"));
  }
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, std::array{kFirst, kSecond}, 2));
  ASSERT_TRUE(migrate(db, std::array{kFirst, kSecond}, 3));
  const StatementUse row(*db.statement("SELECT count(*), sum(x) FROM b").value());
  ASSERT_TRUE(row->step().value());
  EXPECT_EQ(row->integer(0), 1);
  EXPECT_EQ(row->integer(1), 7);
}

TEST_F(MigrationsTest, AFailedMigrationLeavesNothingBehind) {
  auto db = Database::open({.path = path()}).value();
  EXPECT_FALSE(migrate(db, std::array{kFirst, kBroken}, 1));
  EXPECT_FALSE(db.statement("SELECT * FROM b"));
  EXPECT_TRUE(migrate(db, std::array{kFirst, kSecond}, 2));
}

TEST_F(MigrationsTest, RefusesAnotherSchema) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, std::array{kFirst, kSecond}, 1));
  EXPECT_EQ(migrate(db, std::array{kFirst}, 2).error().code, base::ErrorCode::kUnsupportedFormatVersion);
  EXPECT_EQ(migrate(db, std::array{kFirst, kBroken}, 2).error().code, base::ErrorCode::kCorruptFile);
}

// SQLite takes the shipped SQL, has its tables afterwards, and checks foreign keys.
TEST_F(MigrationsTest, TheShippedSchemaIsValid) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, migrations(), 1));
  for (std::size_t i = 0; i < migrations().size(); ++i) {
    EXPECT_EQ(migrations()[i].version, static_cast<std::int64_t>(i) + 1);
  }
  for (const char* table : {"jobs", "queue", "job_payloads", "sse_checkpoints", "pools", "schema_migrations"}) {
    EXPECT_TRUE(db.execute(std::string("SELECT count(*) FROM ") + table)) << table;
  }
  EXPECT_EQ(db.execute("INSERT INTO job_payloads VALUES (7, 0, x'00', x'00')").error().code, base::ErrorCode::kConflict)
      << "foreign keys are off";
}

// A store of an older program keeps its jobs, and can give space back from then on.
TEST_F(MigrationsTest, AnOlderStoreIsCarriedOver) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(db.execute("PRAGMA auto_vacuum=NONE; VACUUM;"));
  ASSERT_TRUE(migrate(db, migrations().first(7), 1));
  const std::string end =
      R"({"job_id":"a","tokens_out":4,"decode_time_ms":3,"stop_reason":"eos","receipt":{"model_digest":"d",)"
      R"("seed":18446744073709551600,"prompt_sha256":"pp","output_sha256":"oo","tokens_out":4}})";
  const std::string columns =
      "(job_id, task_id, correlation_id, request_hash, priority, model, model_ref, model_facts, prompt_hash, params, "
      "max_tokens, seed, on_disconnect, tokens_in, created_at, status, completed_at, terminal_event) VALUES ";
  const std::string rest = "'c', 'rr', 'batch', 'm', 'mr', '{}', 'pp', '{}', 3, -16, 'cancel', 2, 3, ";
  ASSERT_TRUE(db.execute("INSERT INTO jobs " + columns + "('a', 'a', " + rest + "'completed', 9, '" + end + "')"));
  ASSERT_TRUE(db.execute("INSERT INTO jobs " + columns + "('b', 'task-b', " + rest + "'queued', NULL, NULL)"));
  ASSERT_TRUE(db.execute("INSERT INTO job_payloads VALUES (2, 5, x'00', x'01')"));
  ASSERT_TRUE(migrate(db, migrations(), 2));
  {
    const StatementUse row(*db.statement("SELECT task_id, model_ref, terminal_event, status, receipt, receipt_seed, "
                                         "receipt_prompt_hash, output_hash FROM job_records ORDER BY arrival")
                                .value());
    ASSERT_TRUE(row->step().value());
    EXPECT_EQ(row->text(0) + row->text(1), "amr");
    EXPECT_EQ(row->text(2), R"({"job_id":"","tokens_out":4,"decode_time_ms":3,"stop_reason":"eos"})");
    EXPECT_EQ(row->text(4), R"({"model_digest":"d","seed":0,"prompt_sha256":"","output_sha256":"","tokens_out":0})");
    EXPECT_EQ(row->integer(5), -16);
    EXPECT_EQ(row->text(6) + row->text(7), "ppoo");
    ASSERT_TRUE(row->step().value());
    EXPECT_EQ(row->text(0) + row->text(3), "task-bqueued");
    const StatementUse payload(*db.statement("SELECT key_slot FROM job_payloads WHERE arrival = 2").value());
    ASSERT_TRUE(payload->step().value());
    EXPECT_EQ(payload->integer(0), 5);
  }
  ASSERT_TRUE(db.make_space_returnable());
  const StatementUse vacuum(*db.statement("PRAGMA auto_vacuum").value());
  ASSERT_TRUE(vacuum->step().value());
  EXPECT_EQ(vacuum->integer(0), 2);
}

// Jobs of tenants by name, of the operator by the first digits of a token's hash or of no token: all are kept, and only what a
// tenant named gets its name. An operator sees every account, so those rows need no other one.
TEST_F(MigrationsTest, JobsOfTenantsKeepTheirOwners) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, migrations().first(6), 1));
  struct Old {
    const char *job, *task, *session, *session_key, *tenant, *status, *end;
  };
  for (const Old& old : {Old{"a", "run-1", "'agent'", "1", "alice", "queued", "NULL, NULL"},
                         Old{"b", "b", "NULL", "NULL", "bob", "completed", "9, '{}'"},
                         Old{"c", "nightly", "'agent'", "2", "token:0a1b2c", "queued", "NULL, NULL"},
                         Old{"d", "d", "NULL", "NULL", "localhost", "running", "NULL, NULL"},
                         Old{"e", "e", "'old'", "3", "", "queued", "NULL, NULL"}}) {
    ASSERT_TRUE(db.execute(
        "INSERT INTO jobs (job_id, task_id, session_id, session_key, tenant_id, correlation_id, request_hash, "
        "priority, "
        "model, model_ref, model_facts, prompt_hash, params, max_tokens, seed, on_disconnect, tokens_in, created_at, "
        "status, completed_at, terminal_event) VALUES ('" +
        std::string(old.job) + "', '" + old.task + "', " + old.session + ", " + old.session_key + ", '" + old.tenant +
        "', 'c', 'rr', 'batch', 'm', 'mr', '{}', 'pp', '{}', 3, 7, 'cancel', 2, 3, '" + old.status + "', " + old.end +
        ")"));
    if (std::string_view(old.session) == "NULL") continue;
    ASSERT_TRUE(
        db.execute("INSERT INTO sessions (session_key, session_id, created_at, touched_at, "
                   "prompt_token_cost_nano, output_token_cost_nano) VALUES (" +
                   std::string(old.session_key) + ", " + old.session + ", 1, 1, 0, 0)"));
  }
  ASSERT_TRUE(db.execute("INSERT INTO job_payloads VALUES (1, 5, x'00', x'01')"));
  ASSERT_TRUE(migrate(db, migrations(), 2));
  const auto rows = [&db](const char* sql) {
    std::string text;
    const StatementUse row(*db.statement(sql).value());
    while (row->step().value()) text += row->text(0) + "\n";
    return text;
  };
  EXPECT_EQ(
      rows("SELECT job_id || ' ' || task_id || ' ' || coalesce(session_id, '-') || ' ' || tenant_id || ' ' || status "
           "FROM job_records ORDER BY arrival"),
      "a alice:run-1 alice:agent alice queued\n"
      "b bob:b - bob completed\n"
      "c nightly agent token:0a1b2c queued\n"
      "d d - localhost running\n"
      "e e old  queued\n");
  EXPECT_EQ(rows("SELECT session_id FROM sessions ORDER BY session_key"), "alice:agent\nagent\nold\n");
  EXPECT_EQ(rows("SELECT key_slot FROM job_payloads WHERE arrival = 1"), "5\n");
  EXPECT_EQ(rows("SELECT job_id FROM jobs WHERE tenant_id = 'bob' AND instr(task_id, ':') > 0"), "b\n");
}

// Records of an older program give way by tenants as new ones do.
TEST_F(MigrationsTest, RecordsOfAnOlderStoreAreThoseOfTheirTenants) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, migrations().first(8), 1));
  ASSERT_TRUE(db.execute("INSERT INTO models VALUES (1, 'm', 'mr', '{}', 0)"));
  struct Old {
    const char *job, *tenant, *status, *end;
  };
  for (const Old& old : {Old{"a", "alice", "completed", "9, '{}'"}, Old{"b", "bob", "completed", "7, '{}'"},
                         Old{"c", "bob", "failed", "8, '{}'"}, Old{"d", "bob", "queued", "NULL, NULL"}}) {
    ASSERT_TRUE(db.execute(
        "INSERT INTO jobs (job_id, tenant_id, correlation_id, request_hash, priority, model_key, prompt_hash, params, "
        "max_tokens, seed, on_disconnect, tokens_in, created_at, status, completed_at, terminal_event) VALUES ('" +
        std::string(old.job) + "', '" + old.tenant + "', 'c', 'rr', 'batch', 1, 'pp', '{}', 3, 7, 'cancel', 2, 3, '" +
        old.status + "', " + old.end + ")"));
  }
  ASSERT_TRUE(migrate(db, migrations(), 2));
  const FinishedJobs finished = finished_jobs(db).value();
  ASSERT_EQ(finished.records.size(), 2U);
  EXPECT_EQ(finished.records.at("alice").count, 1);
  EXPECT_EQ(finished.records.at("bob").count, 2);
  EXPECT_EQ(finished.records.at("bob").bytes, 2 * finished.records.at("alice").bytes);
  EXPECT_GT(finished.records.at("alice").bytes, 0);
  EXPECT_EQ(finished.latest_unix_ms, 9);

  Removal removal{.finished_before_unix_ms = 100, .parts = {{.tenant_id = "bob", .count_max = 1}}};
  ASSERT_TRUE(remove_finished(db, removal));
  ASSERT_EQ(removal.removed.size(), 1U);
  EXPECT_EQ(removal.removed.at("bob").count, 1);
  EXPECT_EQ(removal.removed.at("bob").bytes, finished.records.at("alice").bytes);
  std::string left;
  const StatementUse row(*db.statement("SELECT job_id FROM jobs ORDER BY arrival").value());
  while (row->step().value()) left += row->text(0);
  EXPECT_EQ(left, "acd");
}

// Neither how many records each tenant has nor which of one ended first is found by reading rows.
TEST_F(MigrationsTest, RecordsOfATenantAreFoundInAnIndex) {
  auto db = Database::open({.path = path()}).value();
  ASSERT_TRUE(migrate(db, migrations(), 1));
  for (const char* sql :
       {"EXPLAIN QUERY PLAN SELECT tenant_id, count(*), sum(record_bytes), max(completed_at) FROM jobs "
        "WHERE completed_at IS NOT NULL GROUP BY tenant_id",
        "EXPLAIN QUERY PLAN SELECT arrival FROM jobs WHERE tenant_id = 'a' AND completed_at IS NOT NULL AND "
        "completed_at < 9 ORDER BY completed_at, record_bytes, arrival LIMIT 2"}) {
    std::string plan;
    const StatementUse row(*db.statement(sql).value());
    while (row->step().value()) plan += row->text(3) + "\n";
    EXPECT_NE(plan.find("COVERING INDEX jobs_completed_by_tenant"), std::string::npos) << plan;
    EXPECT_EQ(plan.find("B-TREE"), std::string::npos) << plan;
  }
}

// What the store was built against is not what it runs with.
TEST(Library, IsCheckedAtTheStart) {
  const Library loaded = loaded_library();
  EXPECT_TRUE(check_library(loaded)) << loaded.version;
  EXPECT_FALSE(loaded.version.empty());
  EXPECT_EQ(check_library({.version = "3.40.1", .version_number = 3040001, .threads = 0}).error().code,
            base::ErrorCode::kVersionMismatch);
  EXPECT_EQ(check_library({.version = "3.36.0", .version_number = 3036000, .threads = 1}).error().code,
            base::ErrorCode::kVersionMismatch);
  EXPECT_TRUE(check_library({.version = "3.37.0", .version_number = 3037000, .threads = 2}));
}

// A database in memory takes neither WAL nor the lock, and SQLite says so only when asked.
TEST(Library, ASettingThatDidNotTakeIsAnError) {
  const auto refused = Database::open({.path = ":memory:"});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("journal_mode"), std::string::npos) << refused.error().message;
}

TEST_F(MigrationsTest, FilesArePrivateAndGarbageIsRefused) {
  {
    auto db = Database::open({.path = path()}).value();
    ASSERT_TRUE(migrate(db, migrations(), 1));
    for (const char* suffix : {"", "-wal"}) {
      struct stat st {};
      ASSERT_EQ(::stat((path() + suffix).c_str(), &st), 0) << suffix;
      EXPECT_EQ(st.st_mode & 0777, 0600u) << suffix;
    }
    EXPECT_FALSE(std::filesystem::exists(path() + "-shm")) << "locking is not exclusive";
    EXPECT_FALSE(Database::open({.path = path()})) << "a second connection got in";
  }
  std::ofstream(path(), std::ios::trunc) << std::string(4096, 'x');
  std::filesystem::remove(path() + "-wal");
  EXPECT_EQ(Database::open({.path = path()}).error().code, base::ErrorCode::kCorruptFile);
}

}  // namespace
}  // namespace llorch::orchestratord::store::sqlite
