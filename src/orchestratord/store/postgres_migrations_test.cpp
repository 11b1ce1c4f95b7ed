// Rows of an older program in a PostgreSQL database, after the migrations that came since.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "orchestratord/store/postgres/connection.h"
#include "orchestratord/store/postgres/migrations.h"
#include "orchestratord/store/testing/postgres_server.h"

namespace llorch::orchestratord::store::postgres {
namespace {

using testing::PostgresServer;

class PostgresMigrationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (PostgresServer::instance() == nullptr) GTEST_SKIP() << PostgresServer::why_not();
    connection_.emplace(Connection::open({PostgresServer::instance()->create_database()}).value());
    ASSERT_TRUE(connection_->execute("CREATE SCHEMA llorch; SET search_path = llorch"));
  }
  std::string lines(const char* sql) {
    const Rows rows = connection_->query(Query(sql)).value();
    return rows
        .read([](const Values& values) {
          std::string out;
          for (int i = 0; i < values.count(); ++i) out += values.text(i, 0) + "\n";
          return out;
        })
        .value();
  }

  std::optional<Connection> connection_;
};

// As sqlite::MigrationsTest has it: jobs of tenants by name, and of the operator by a token's hash or no token, are all kept,
// and only what a tenant named gets its name.
TEST_F(PostgresMigrationsTest, JobsOfTenantsKeepTheirOwners) {
  ASSERT_TRUE(migrate(*connection_, migrations().first(4), 1));
  struct Old {
    const char *job, *task, *session, *session_key, *tenant, *status, *end;
  };
  for (const Old& old : {Old{"a", "run-1", "'agent'", "1", "alice", "queued", "NULL, NULL"},
                         Old{"b", "b", "NULL", "NULL", "bob", "completed", "9, '{}'"},
                         Old{"c", "nightly", "'agent'", "2", "token:0a1b2c", "queued", "NULL, NULL"},
                         Old{"d", "d", "NULL", "NULL", "localhost", "running", "NULL, NULL"},
                         Old{"e", "e", "'old'", "3", "", "queued", "NULL, NULL"}}) {
    if (std::string_view(old.session) != "NULL") {
      ASSERT_TRUE(connection_->execute(
          "INSERT INTO sessions (session_key, session_id, created_at, touched_at, prompt_token_cost_nano, "
          "output_token_cost_nano) VALUES (" +
          std::string(old.session_key) + ", " + old.session + ", 1, 1, 0, 0)"));
    }
    const auto inserted = connection_->execute(
        "INSERT INTO jobs (job_id, task_id, session_id, session_key, tenant_id, correlation_id, request_hash, "
        "priority, "
        "model, model_ref, model_facts, prompt_hash, params, max_tokens, seed, on_disconnect, tokens_in, created_at, "
        "status, completed_at, terminal_event) VALUES ('" +
        std::string(old.job) + "', '" + old.task + "', " + old.session + ", " + old.session_key + ", '" + old.tenant +
        "', 'c', 'rr', 'batch', 'm', 'mr', '{}', 'pp', '{}', 3, 7, 'cancel', 2, 3, '" + old.status + "', " + old.end +
        ")");
    ASSERT_TRUE(inserted) << inserted.error().message;
  }
  const auto migrated = migrate(*connection_, migrations(), 2);
  ASSERT_TRUE(migrated) << migrated.error().message;
  EXPECT_EQ(lines("SELECT job_id || ' ' || task_id || ' ' || coalesce(session_id, '-') || ' ' || tenant_id || ' ' || "
                  "status FROM jobs ORDER BY arrival"),
            "a alice:run-1 alice:agent alice queued\n"
            "b bob:b - bob completed\n"
            "c nightly agent token:0a1b2c queued\n"
            "d d - localhost running\n"
            "e e old  queued\n");
  EXPECT_EQ(lines("SELECT session_id FROM sessions ORDER BY session_key"), "alice:agent\nagent\nold\n");
  EXPECT_EQ(lines("SELECT job_id FROM jobs WHERE tenant_id = 'bob' AND strpos(task_id, ':') > 0"), "b\n");
}

// Records of an older program count as new ones do.
TEST_F(PostgresMigrationsTest, RecordsOfAnOlderStoreAreThoseOfTheirTenants) {
  ASSERT_TRUE(migrate(*connection_, migrations().first(7), 1));
  struct Old {
    const char *job, *tenant, *params, *status, *end;
  };
  for (const Old& old :
       {Old{"a", "alice", "{}", "completed", "9, '{}'"}, Old{"b", "bob", "{}", "completed", "7, '{}'"},
        Old{"c", "bob", "{\"a\":1}", "failed", "8, '{}'"}, Old{"d", "bob", "{}", "queued", "NULL, NULL"}}) {
    const auto inserted = connection_->execute(
        "INSERT INTO jobs (job_id, task_id, tenant_id, correlation_id, request_hash, priority, model, model_ref, "
        "model_facts, prompt_hash, params, max_tokens, seed, on_disconnect, tokens_in, created_at, status, "
        "completed_at, terminal_event) VALUES ('" +
        std::string(old.job) + "', '" + old.job + "', '" + old.tenant +
        "', 'c', 'rr', 'batch', 'm', 'mr', '{}', 'pp', '" + old.params + "', 3, 7, 'cancel', 2, 3, '" + old.status +
        "', " + old.end + ")");
    ASSERT_TRUE(inserted) << inserted.error().message;
  }
  const auto migrated = migrate(*connection_, migrations(), 2);
  ASSERT_TRUE(migrated) << migrated.error().message;
  // 200, and of texts 16 bytes beside the name of the tenant, and 5 more in one row.
  EXPECT_EQ(lines("SELECT tenant_id || ' ' || count(*) || ' ' || sum(record_bytes) FROM jobs "
                  "WHERE completed_at IS NOT NULL GROUP BY tenant_id ORDER BY tenant_id"),
            "alice 1 221\nbob 2 443\n");
  const char* const seen =
      "SELECT (relpages > 0 AND relallvisible = relpages)::text || ' ' || reltuples::bigint FROM pg_class WHERE oid = "
      "'jobs'::regclass";
  EXPECT_EQ(lines(seen), "true 4\n") << "they are counted from the index";
  ASSERT_TRUE(connection_->execute("VACUUM FULL jobs"));
  ASSERT_EQ(lines("SELECT (relpages > 0 AND relallvisible = 0)::text FROM pg_class WHERE oid = 'jobs'::regclass"),
            "true\n");
  ASSERT_TRUE(migrate(*connection_, migrations(), 3));
  EXPECT_EQ(lines(seen), "true 4\n") << "also where an earlier process ended in between";
}

// Rows are written anew: that is no silence of the server.
TEST_F(PostgresMigrationsTest, AMigrationTakesAsLongAsItTakes) {
  const std::string conninfo = PostgresServer::instance()->create_database();
  ASSERT_TRUE(Connection::open({conninfo})->execute("CREATE SCHEMA llorch"));
  Connection hurried = Connection::open({.conninfo = conninfo + " options='-c search_path=llorch'",
                                         .reply_timeout = std::chrono::seconds(2)})
                           .value();
  constexpr std::array kSlow{Migration{.version = 1, .name = "slow", .sql = "SELECT pg_sleep(2.5)"}};
  const auto migrated = migrate(hurried, kSlow, 1);
  EXPECT_TRUE(migrated) << migrated.error().message;
}

}  // namespace
}  // namespace llorch::orchestratord::store::postgres
