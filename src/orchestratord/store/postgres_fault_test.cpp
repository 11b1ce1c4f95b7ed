// The store over a PostgreSQL server that dies, comes back, loses answers, or belongs to somebody else.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/error_detail.h"
#include "orchestratord/store/payload/payload_keys.h"
#include "orchestratord/store/postgres/connection.h"
#include "orchestratord/store/testing/postgres_proxy.h"
#include "orchestratord/store/testing/store_bed.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;
using namespace std::chrono_literals;
using testing::Loss;
using testing::PostgresProxy;
using testing::PostgresServer;

class PostgresFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (PostgresServer::instance() == nullptr) GTEST_SKIP() << PostgresServer::why_not();
    conninfo_ = PostgresServer::instance()->create_database();
  }
  PostgresStoreOptions options() const {
    PostgresStoreOptions options;
    options.conninfo = conninfo_;
    options.directory = dir_.path();
    options.retention.ms = StoreBed::kKeepAll;
    options.clock = &kClock;
    options.entropy = &g_entropy;
    return options;
  }
  base::Result<std::unique_ptr<Store>> try_open() const { return open_postgres_store(options()); }
  std::unique_ptr<Store> open() const { return try_open().value(); }
  void through(const PostgresProxy&) { conninfo_.replace(0, conninfo_.find(' '), "host=" + dir_.path().string()); }
  // What a new process would find.
  std::vector<std::string> jobs_after_restart(std::unique_ptr<Store> store) const {
    store.reset();
    std::vector<std::string> ids;
    for (const auto& job : live_jobs(*open())) ids.push_back(job.job.job_id.value);
    return ids;
  }
  bool holds_key(const std::string& key) const { return key_file_bytes(dir_).find(key) != std::string::npos; }
  // Of the only live job: keys are handed out from the first empty slot on.
  std::string first_key() const {
    const std::string keys = key_file_bytes(dir_);
    return keys.substr(keys.find_first_not_of('\0') / payload::kKeyBytes * payload::kKeyBytes, payload::kKeyBytes);
  }
  base::Result<> execute(const std::string& sql) const {
    return TRY(postgres::Connection::open({conninfo_})).execute("SET search_path = llorch;" + sql);
  }

  // The server's process that holds the store's lock; 0: none does.
  std::int64_t session() const {
    auto connection = postgres::Connection::open({conninfo_}).value();
    const postgres::Query holder(
        "SELECT pid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND "
        "database = (SELECT oid FROM pg_database WHERE datname = current_database())");
    const postgres::Rows rows = connection.query(holder).value();
    return rows.count() == 0 ? 0 : rows.read(postgres::first_integer).value();
  }
  // Whose payloads there are, by their slots.
  std::vector<std::string> payload_jobs() const {
    auto connection = postgres::Connection::open({conninfo_}).value();
    const postgres::Rows rows =
        connection.query(postgres::Query("SELECT job_id FROM llorch.job_payloads ORDER BY key_slot")).value();
    return rows
        .read([](const postgres::Values& values) {
          std::vector<std::string> ids;
          for (int i = 0; i < values.count(); ++i) ids.push_back(values.text(i, 0));
          return ids;
        })
        .value();
  }

  TempDir dir_;
  std::string conninfo_;
};

std::future<base::Result<>> admit_later(Store& store, const std::string& id) {
  const auto answer = std::make_shared<std::promise<base::Result<>>>();
  store.admit(admission(id), [answer](base::Result<> r) { answer->set_value(std::move(r)); });
  return answer->get_future();
}

// A server that is away is never a false 202: the store refuses with STORE_UNAVAILABLE, and recovers by itself.
TEST_F(PostgresFaultTest, AnOutageRefusesAndRecovers) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("before")));
  PostgresServer::instance()->kill();
  const auto refused = admit(*store, admission("during"));
  PostgresServer::instance()->start();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable);
  EXPECT_NE(refused.error().message.find("PostgreSQL"), std::string::npos) << refused.error().message;
  while (!admit(*store, admission("after"))) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(apply(*store, finished("before")));
  EXPECT_EQ(jobs_after_restart(std::move(store)), std::vector<std::string>{"after"});
}

// SYS-6.1.3: the server is killed under load, several times; what was answered is what is there in the end.
TEST_F(PostgresFaultTest, KillingTheServerUnderLoadKeepsEveryAnswerTrue) {
  auto store = open();
  std::mutex mutex;
  std::map<std::string, base::Result<>> answers;
  std::map<std::string, bool> ended;
  std::atomic<bool> enough{false};
  const auto client = [&](const std::string& name) {
    for (int n = 0; !enough; ++n) {
      const std::string id = name + std::to_string(n);
      const auto admitted = admit(*store, admission(id, "payload of " + id));
      bool done = false;
      if (admitted && n % 3 == 0) done = apply(*store, finished(id)).has_value();
      const std::lock_guard lock(mutex);
      answers.emplace(id, admitted);
      ended.emplace(id, done);
    }
  };
  const auto answers_count = [&] {
    const std::lock_guard lock(mutex);
    return answers.size();
  };
  std::vector<std::thread> clients;
  for (const char* name : {"a", "b", "c"}) clients.emplace_back(client, name);
  for (int round = 0; round < 5; ++round) {
    const std::size_t before = answers_count();
    while (answers_count() < before + 10 + static_cast<std::size_t>(7 * round)) std::this_thread::sleep_for(1ms);
    PostgresServer::instance()->kill();
    PostgresServer::instance()->start();
    while (!admit(*store, admission("round-" + std::to_string(round), std::nullopt))) std::this_thread::sleep_for(5ms);
  }
  enough = true;
  for (std::thread& thread : clients) thread.join();
  std::size_t accepted = 0, refused = 0;
  const auto check = [&](Store& s) {
    for (const auto& [id, answer] : answers) {
      const auto job = find(s, id).value();
      EXPECT_EQ(job.has_value(), answer.has_value()) << id << (answer ? " was lost" : " came to life");
      if (ended[id]) {
        EXPECT_TRUE(wire::is_terminal(job->progress.status)) << id;
      }
      ++(answer ? accepted : refused);
    }
  };
  check(*store);
  store = nullptr;
  store = open();
  check(*store);
  for (const RestoredJob& job : live_jobs(*store)) {
    if (job.job.job_id.value.starts_with("round-")) continue;
    EXPECT_FALSE(ended[job.job.job_id.value]) << "a finished job came back";
    EXPECT_EQ(job.payload, "payload of " + job.job.job_id.value);
  }
  EXPECT_GT(accepted, 20u);
  EXPECT_GT(refused, 0u) << "no kill was noticed";
}

// The answer to COMMIT is lost: nobody may be told before it is known, and others are refused at once.
TEST_F(PostgresFaultTest, ACommitInDoubtIsAnsweredWhenItIsKnown) {
  const PostgresServer& server = *PostgresServer::instance();
  PostgresProxy proxy(dir_.path(), server.directory());
  through(proxy);
  for (const Loss loss : {Loss::kRequest, Loss::kAnswer}) {
    const std::string n = loss == Loss::kRequest ? "request" : "answer";
    auto store = open();
    ASSERT_TRUE(admit(*store, admission("before-" + n)));
    proxy.lose(2, loss);  // the first carries the rows, the second COMMIT
    auto doubtful = admit_later(*store, "doubtful-" + n);
    while (!proxy.broken()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(admit(*store, admission("meanwhile-" + n)).error().code, ErrorCode::kStoreUnavailable);
    EXPECT_EQ(apply(*store, finished("before-" + n)).error().code, ErrorCode::kStoreUnavailable);
    EXPECT_EQ(doubtful.wait_for(0s), std::future_status::timeout) << "answered without knowing";
    proxy.heal();
    const bool accepted = doubtful.get().has_value();
    EXPECT_TRUE(apply(*store, finished("before-" + n)));
    const auto jobs = jobs_after_restart(std::move(store));
    EXPECT_EQ(jobs, accepted ? std::vector<std::string>{"doubtful-" + n} : std::vector<std::string>{}) << n;
    if (accepted) {
      store = open();
      EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
      const std::string key = first_key();
      EXPECT_TRUE(apply(*store, finished("doubtful-" + n)));
      EXPECT_FALSE(holds_key(key));
    }
  }
}

// A connection that breaks earlier leaves nothing, and that is known at once.
TEST_F(PostgresFaultTest, ALossBeforeTheCommitIsARefusal) {
  PostgresProxy proxy(dir_.path(), PostgresServer::instance()->directory());
  through(proxy);
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("before")));
  for (const Loss loss : {Loss::kRequest, Loss::kAnswer}) {
    proxy.lose(1, loss);
    EXPECT_EQ(admit(*store, admission("lost")).error().code, ErrorCode::kStoreUnavailable);
    proxy.heal();
    while (!find(*store, "before")) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(find(*store, "lost").value(), std::nullopt);
  }
  EXPECT_EQ(jobs_after_restart(std::move(store)), std::vector<std::string>{"before"});
}

TEST_F(PostgresFaultTest, ATerminalTransitionIsRepeatedUntilItIsDurable) {
  PostgresProxy proxy(dir_.path(), PostgresServer::instance()->directory());
  through(proxy);
  for (const Loss loss : {Loss::kRequest, Loss::kAnswer}) {
    auto store = open();
    const std::string id = loss == Loss::kRequest ? "job-1" : "job-2";
    ASSERT_TRUE(admit(*store, admission(id)));
    const std::string key = first_key();
    proxy.lose(2, loss);
    EXPECT_EQ(apply(*store, finished(id)).error().code, ErrorCode::kStoreUnavailable);
    proxy.heal();
    base::Result<> repeated;
    while (!(repeated = apply(*store, finished(id))) && repeated.error().code == ErrorCode::kStoreUnavailable) {
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_TRUE(repeated) << repeated.error().message;
    EXPECT_EQ(apply(*store, finished(id)).error().code, ErrorCode::kConflict) << "settled now";
    EXPECT_FALSE(holds_key(key)) << "the key outlived its job";
    EXPECT_EQ(jobs_after_restart(std::move(store)), std::vector<std::string>{});
  }
}

// Whoever looks at how much is kept between a lost answer and the repetition has seen the row already.
TEST_F(PostgresFaultTest, AnEndThatIsRepeatedTakesItsRoomOnce) {
  PostgresProxy proxy(dir_.path(), PostgresServer::instance()->directory());
  through(proxy);
  PostgresStoreOptions opts = options();
  opts.retention.bytes_max = 120'000;
  auto store = open_postgres_store(opts).value();
  for (const char* id : {"large", "small", "last"}) ASSERT_TRUE(admit(*store, admission(id, std::nullopt)));
  Transition large = cancelled("large");
  std::mt19937 random(1);  // nothing that the server could compress; a row has it twice
  for (int i = 0; i < 40'000; ++i) large.progress.error->message += static_cast<char>('0' + random() % 64);
  const auto repeat = [&](const Transition& transition) {
    base::Result<> done;
    while (!(done = apply(*store, transition)) && done.error().code == ErrorCode::kStoreUnavailable) {
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_TRUE(done) << done.error().message;
  };
  proxy.lose(2, Loss::kAnswer);
  EXPECT_EQ(apply(*store, large).error().code, ErrorCode::kStoreUnavailable);
  proxy.heal();
  for (const Transition& next : {finished("small"), large, finished("last")}) repeat(next);
  for (const char* id : {"large", "small", "last"}) EXPECT_TRUE(find(*store, id).value()) << id << " was removed";
}

// Stopping while the server is away answers what is in doubt with exactly that.
TEST_F(PostgresFaultTest, ASilentServerCountsAsGone) {
  PostgresStoreOptions opts = options();
  opts.reply_timeout = 3s;
  auto store = open_postgres_store(opts).value();
  ASSERT_TRUE(admit(*store, admission("before")));
  PostgresServer::instance()->freeze_sessions(true);
  const auto refused = admit(*store, admission("during"));
  PostgresServer::instance()->freeze_sessions(false);
  EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable);
  while (!admit(*store, admission("after"))) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(jobs_after_restart(std::move(store)), (std::vector<std::string>{"before", "after"}));
}

// A statement that fails is no reason to give the lock to whoever waits for it.
TEST_F(PostgresFaultTest, AStatementThatFailsKeepsTheSession) {
  auto store = open();
  ASSERT_TRUE(
      execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
              "IF NEW.job_id LIKE 'fail-%' THEN RAISE EXCEPTION USING MESSAGE = 'for the test', ERRCODE = "
              "substr(NEW.job_id, 6); END IF; RETURN NEW; END $$;"
              "CREATE TRIGGER fail BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION fail()"));
  const std::int64_t before = session();
  for (const char* state : {"53100", "53200", "57014", "22001"}) {
    const auto failed = admit(*store, admission(std::string("fail-") + state));
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kStoreUnavailable);
    EXPECT_TRUE(admit(*store, admission(std::string("after-") + state)));
    EXPECT_EQ(session(), before) << state;
  }
  EXPECT_FALSE(admit(*store, admission("fail-57P01")));
  while (!admit(*store, admission("after"))) std::this_thread::sleep_for(5ms);
  EXPECT_NE(session(), before) << "of a session that ends";
}

// The server gives what the tables say, and others can change those.
TEST_F(PostgresFaultTest, TablesThatSomebodyElseChangedAreAnError) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"attempts", "ALTER TABLE jobs ALTER attempts DROP NOT NULL; UPDATE jobs SET attempts = NULL"},
      {"max_tokens", "ALTER TABLE jobs ALTER max_tokens TYPE INTEGER"},
      {"tokens_in", "ALTER TABLE jobs ALTER tokens_in TYPE TEXT"},
      {"correlation_id",
       "ALTER TABLE jobs DROP correlation_id CASCADE; ALTER TABLE jobs ADD correlation_id BIGINT DEFAULT 7"},
      {"key_slot", "ALTER TABLE job_payloads ALTER key_slot TYPE TEXT"},
      {"nonce", "ALTER TABLE job_payloads ALTER nonce DROP NOT NULL; UPDATE job_payloads SET nonce = NULL"},
      {"version", "ALTER TABLE schema_migrations ALTER version TYPE INTEGER"},
      {"epoch", "ALTER TABLE store_owner ALTER epoch TYPE INTEGER"},
      {"draining", "ALTER TABLE pools ALTER draining TYPE INTEGER"},
      {"turns", "ALTER TABLE sessions ALTER turns DROP NOT NULL; UPDATE sessions SET turns = NULL"}};
  for (const auto& [column, change] : cases) {
    conninfo_ = PostgresServer::instance()->create_database();
    const TempDir dir;
    PostgresStoreOptions own = options();
    own.directory = dir.path();
    {
      auto store = open_postgres_store(own).value();
      ASSERT_TRUE(admit(*store, admission("job")));
      store->remember_pool({base::PoolId("pool"), "http://127.0.0.1:1", {}});
    }
    ASSERT_TRUE(execute("INSERT INTO sessions VALUES (1, 's', 1, 1, NULL, NULL, NULL, 0, 0);" + change)) << column;
    const auto opened = open_postgres_store(own);
    const auto state = opened ? (*opened)->restore() : base::fail(opened.error());
    ASSERT_FALSE(state) << column;
    EXPECT_EQ(state.error().code, ErrorCode::kStoreUnavailable) << column;
    EXPECT_NE(state.error().message.find("column"), std::string::npos) << state.error().message;
  }
}

// ---- who owns the store ---------------------------------------------------------------------------------------------

TEST_F(PostgresFaultTest, ASecondOrchestratorIsRefused) {
  auto first = open();
  PostgresStoreOptions second = options();
  const TempDir elsewhere;
  second.directory = elsewhere.path();
  second.lock_wait = 100ms;
  const auto refused = open_postgres_store(second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyRunning);
  EXPECT_NE(refused.error().message.find("another orchestratord"), std::string::npos);
  EXPECT_NE(refused.error().message.find(dir_.path().string()), std::string::npos) << refused.error().message;
  ASSERT_FALSE(refused.error().details.empty());
  EXPECT_EQ(refused.error().details[0].first, "store_owner");
  first.reset();
  second.lock_wait = 3min;  // the server lets go of it when it has seen the connection end
  EXPECT_TRUE(open_postgres_store(second));
}

// Its own directory is nobody else's: what holds the lock is what an earlier process has left at the server, and that ends.
TEST_F(PostgresFaultTest, WhoWaitsForItsOwnEarlierSessionIsNotToldOfAnotherOne) {
  const auto earlier = open();
  PostgresStoreOptions again = options();
  again.lock_wait = 100ms;
  const auto refused = open_postgres_store(again);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable) << refused.error().message;
  EXPECT_TRUE(refused.error().details.empty());
}

// A standby, or a node with the same configuration, finds the lock free while its owner starts again.
TEST_F(PostgresFaultTest, WhoOpensNoneOfThePromptsDoesNotBecomeTheOwner) {
  auto first = open();
  ASSERT_TRUE(admit(*first, admission("job-1")));
  ASSERT_TRUE(admit(*first, admission("unsealed", std::nullopt)));
  first.reset();
  const TempDir elsewhere;
  PostgresStoreOptions standby = options();
  standby.directory = elsewhere.path();
  standby.lock_wait = 3min;
  for (int i = 0; i < 2; ++i) {
    const auto refused = open_postgres_store(standby);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    for (const std::string& part :
         {dir_.path().string(), std::string("0 of its 1 live jobs"), std::string("--take-over")}) {
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << part << ": " << refused.error().message;
    }
    ASSERT_FALSE(refused.error().details.empty());
    EXPECT_EQ(refused.error().details[0].first, "store_owner");
  }
  first = open();
  const auto jobs = live_jobs(*first);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].payload, "payload");
  EXPECT_TRUE(apply(*first, finished("job-1")));
  first.reset();
  auto second = open_postgres_store(standby);
  ASSERT_TRUE(second) << "nothing is left that it could lose: " << second.error().message;
  EXPECT_EQ(live_jobs(**second).size(), 1u);
}

// A machine that was lost comes back with the keys of before, while the store's owner starts again.
TEST_F(PostgresFaultTest, WhoOpensSomeOfThePromptsDoesNotBecomeTheOwner) {
  auto first = open();
  ASSERT_TRUE(admit(*first, admission("job-1")));
  const TempDir elsewhere;
  std::filesystem::copy(dir_.path() / "payload.keys", elsewhere.path() / "payload.keys");
  // The next keys were made before and are in the copy; these are not.
  for (std::size_t i = 0; i <= payload::PayloadKeys::kSpareKeys; ++i) {
    const std::string id = "job-2-" + std::to_string(i);
    ASSERT_TRUE(admit(*first, admission(id)));
    if (i == payload::PayloadKeys::kSpareKeys) break;
    ASSERT_TRUE(apply(*first, finished(id)));
  }
  first.reset();
  PostgresStoreOptions back = options();
  back.directory = elsewhere.path();
  back.lock_wait = 3min;
  const auto refused = open_postgres_store(back);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("1 of its 2 live jobs"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(base::has_detail(refused.error(), "store_owner"));
  first = open();
  for (const RestoredJob& job : live_jobs(*first)) EXPECT_EQ(job.payload, "payload") << job.job.job_id.value;
  first.reset();
  back.take_over = true;
  auto taken = open_postgres_store(back);
  ASSERT_TRUE(taken) << taken.error().message;
  const auto jobs = live_jobs(**taken);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].payload, "payload") << "what it opens goes on";
  EXPECT_EQ(jobs[1].payload, std::nullopt);
}

// The configuration of one start names another database, or SQLite: what was accepted in the first one goes on there afterwards.
TEST_F(PostgresFaultTest, AStartWithAnotherStoreDestroysNoKey) {
  ASSERT_TRUE(admit(*open(), admission("job-1")));
  const std::string keys = key_file_bytes(dir_);
  PostgresStoreOptions other = options();
  other.conninfo = PostgresServer::instance()->create_database();
  other.lock_wait = 3min;
  const base::Error refusals[] = {open_sqlite_store(options_in(dir_)).error(), open_postgres_store(other).error()};
  for (const base::Error& refused : refusals) {
    EXPECT_EQ(refused.code, ErrorCode::kConflict);
    EXPECT_NE(refused.message.find("the PostgreSQL store that was made at 20"), std::string::npos) << refused.message;
    EXPECT_TRUE(base::has_detail(refused, "keys_of"));
  }
  EXPECT_EQ(key_file_bytes(dir_), keys);
  EXPECT_EQ(live_jobs(*open()).at(0).payload, "payload");
  other.take_over = true;
  EXPECT_TRUE(admit(*open_postgres_store(other).value(), admission("job-1")));
  const auto refused = open_postgres_store(options());
  ASSERT_FALSE(refused) << "it would destroy the keys of the other one now, though it is the owner's directory";
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
}

// The keys come along where a state directory is moved, and where they alone are restored beside a dump.
TEST_F(PostgresFaultTest, WhereTheKeysAreTheJobsGoOn) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  store.reset();
  const TempDir moved, restored;
  PostgresStoreOptions opts = options();
  opts.lock_wait = 3min;
  std::filesystem::path from = dir_.path();
  for (const TempDir* to : {&moved, &restored}) {
    std::filesystem::copy(from / "payload.keys", to->path() / "payload.keys");
    if (to == &moved) std::filesystem::copy(from / "store_id", to->path() / "store_id");
    opts.directory = to->path();
    store = open_postgres_store(opts).value();
    const auto jobs = live_jobs(*store);
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].payload, "payload");
    store.reset();
    from = to->path();
  }
}

// Keys that the owner itself has lost are lost: its other jobs go on without being asked for.
TEST_F(PostgresFaultTest, TheOwnerGoesOnWithoutItsKeys) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  store.reset();
  std::filesystem::remove(dir_.path() / "payload.keys");
  store = open();
  EXPECT_EQ(live_jobs(*store).at(0).payload, std::nullopt);
}

TEST_F(PostgresFaultTest, AStoreOfAnOlderProgramGetsItsOwnerSilently) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  store.reset();
  ASSERT_TRUE(
      execute("ALTER TABLE store_owner DROP COLUMN store_id, DROP COLUMN host, DROP COLUMN directory;"
              "ALTER TABLE jobs DROP COLUMN record_bytes; DELETE FROM schema_migrations WHERE version >= 7"));
  std::filesystem::remove(dir_.path() / "store_id");
  store = open();
  EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
  store.reset();
  const TempDir elsewhere;
  PostgresStoreOptions standby = options();
  standby.directory = elsewhere.path();
  standby.lock_wait = 3min;
  const auto refused = open_postgres_store(standby);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
}

// Of two machines with one configuration the one that does not own the store may be the first to be upgraded.
TEST_F(PostgresFaultTest, WhoOpensNoneOfThePromptsDoesNotFollowAnOlderProgram) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  store.reset();
  const TempDir elsewhere;
  PostgresStoreOptions standby = options();
  standby.directory = elsewhere.path();
  standby.lock_wait = 3min;
  for (
      const char* older :
      {"UPDATE store_owner SET store_id = NULL, host = NULL, directory = NULL",  // a start that ended after the migration
       "ALTER TABLE store_owner DROP COLUMN store_id, DROP COLUMN host, DROP COLUMN directory;"
       "ALTER TABLE jobs DROP COLUMN record_bytes; DELETE FROM schema_migrations WHERE version >= 7"}) {
    ASSERT_TRUE(execute(older));
    const auto refused = open_postgres_store(standby);
    ASSERT_FALSE(refused) << older;
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    ASSERT_FALSE(refused.error().details.empty());
    EXPECT_EQ(refused.error().details[0].first, "store_owner");
    store = open();
    EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
    store.reset();
  }
  ASSERT_TRUE(execute("UPDATE store_owner SET store_id = NULL, host = NULL, directory = NULL"));
  standby.take_over = true;
  EXPECT_TRUE(open_postgres_store(standby));
}

// A database that was failed over to a copy without the last commits: the row comes back by no repetition.
TEST_F(PostgresFaultTest, AJobWhoseRowIsLostKeepsNoKey) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  const std::string key = first_key();
  ASSERT_TRUE(execute("DELETE FROM jobs WHERE job_id = 'job-1'"));
  EXPECT_EQ(apply(*store, finished("job-1")).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(holds_key(key)) << "the key outlived its job";
  EXPECT_TRUE(admit(*store, admission("job-2")));
}

// Such a database has an ended job live again, with its payload under a key that has long been given away.
TEST_F(PostgresFaultTest, AnEndThatIsLostKeepsNoSlot) {
  auto store = open();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  ASSERT_TRUE(admit(*store, admission("came-back", std::nullopt)));
  ASSERT_TRUE(
      execute("INSERT INTO job_payloads SELECT 'came-back', key_slot + 1, nonce, ciphertext FROM job_payloads"));
  ASSERT_EQ(payload_jobs(), (std::vector<std::string>{"job-1", "came-back"}));
  const auto admitted = admit(*store, admission("job-2"));
  EXPECT_TRUE(admitted) << admitted.error().message;
  EXPECT_EQ(payload_jobs(), (std::vector<std::string>{"job-1", "job-2"}));
  store.reset();
  store = open();
  const auto jobs = live_jobs(*store);
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[1].payload, std::nullopt);
  EXPECT_EQ(jobs[2].payload, "payload");
}

// A connection is lost, another orchestratord is told to take the store: the first one may not write again, not even when the
// other has ended. The jobs come over; their payloads do not, for their keys are in the first one's directory.
TEST_F(PostgresFaultTest, WhoLostTheStoreNeverWritesAgain) {
  std::atomic<int> told{0};
  PostgresStoreOptions opts = options();
  opts.on_taken_over = [&] { ++told; };
  auto first = open_postgres_store(opts).value();
  ASSERT_TRUE(admit(*first, admission("job-1")));
  PostgresServer::instance()->kill();
  PostgresServer::instance()->start();
  const TempDir elsewhere;
  PostgresStoreOptions other = options();
  other.directory = elsewhere.path();
  other.take_over = true;
  auto second = open_postgres_store(other).value();
  const auto jobs = live_jobs(*second);
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].payload, std::nullopt);
  EXPECT_TRUE(admit(*second, admission("job-2")));
  base::Result<> refused;
  for (int i = 0; i < 2; ++i) {
    while ((refused = apply(*first, finished("job-1"))).error().message.find("taken") == std::string::npos) {
      std::this_thread::sleep_for(5ms);
    }
    EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable);
    EXPECT_EQ(find(*first, "job-1").error().code, ErrorCode::kStoreUnavailable);
    if (second) {
      EXPECT_EQ(live_jobs(*second).size(), 2u);
    }
    second.reset();
  }
  EXPECT_EQ(told, 1);
}

// A failover to a copy without the owner's last start, or a restored dump: what this process knows of its jobs is not true any more. The
// next one goes on with what is there.
TEST_F(PostgresFaultTest, ADatabaseThatWentBackInTimeIsOpenedAgain) {
  std::atomic<int> told{0};
  PostgresStoreOptions opts = options();
  opts.on_taken_over = [&] { ++told; };
  auto store = open_postgres_store(opts).value();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  ASSERT_TRUE(execute("UPDATE store_owner SET epoch = epoch - 1"));
  PostgresServer::instance()->kill();
  PostgresServer::instance()->start();
  base::Result<> refused;
  while ((refused = apply(*store, finished("job-1"))).error().message.find("went back") == std::string::npos) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(refused.error().code, ErrorCode::kStoreUnavailable);
  EXPECT_EQ(told, 1);
  store.reset();
  store = open();
  EXPECT_EQ(live_jobs(*store).at(0).payload, "payload");
}

// The password of the connection is changed on the server and in the file, and the connection breaks weeks later.
TEST_F(PostgresFaultTest, AConnectionThatWasChangedMeanwhileIsReadAgain) {
  const std::string direct = conninfo_;
  auto proxy = std::make_unique<PostgresProxy>(dir_.path(), PostgresServer::instance()->directory());
  through(*proxy);
  std::mutex mutex;
  base::Result<std::string> text = base::fail(ErrorCode::kConfigInvalid, "the file cannot be read now");
  PostgresStoreOptions opts = options();
  opts.read_conninfo = [&] {
    const std::lock_guard lock(mutex);
    return text;
  };
  auto store = open_postgres_store(opts).value();
  ASSERT_TRUE(admit(*store, admission("before")));
  proxy.reset();
  auto during = admit_later(*store, "during");
  {
    const std::lock_guard lock(mutex);
    text = direct;
  }
  while (!admit(*store, admission("after"))) std::this_thread::sleep_for(5ms);
  during.wait();
  store->stop();
}

// The file names a database of somebody else, which has had as many owners.
TEST_F(PostgresFaultTest, AConnectionToAnotherDatabaseWritesNothingThere) {
  std::atomic<int> told{0};
  const TempDir elsewhere;
  PostgresStoreOptions others = options();
  others.conninfo = PostgresServer::instance()->create_database();
  others.directory = elsewhere.path();
  others.lock_wait = 3min;
  ASSERT_TRUE(open_postgres_store(others));
  PostgresStoreOptions opts = options();
  opts.read_conninfo = [&]() -> base::Result<std::string> { return others.conninfo; };
  opts.on_taken_over = [&] { ++told; };
  auto store = open_postgres_store(opts).value();
  ASSERT_TRUE(admit(*store, admission("job-1")));
  PostgresServer::instance()->kill();
  PostgresServer::instance()->start();
  while (told == 0 && !HasFailure()) {
    EXPECT_FALSE(apply(*store, finished("job-1")));
    std::this_thread::sleep_for(5ms);
  }
  store.reset();
  EXPECT_TRUE(live_jobs(*open_postgres_store(others).value()).empty());
}

// ---- what is refused at the door ------------------------------------------------------------------------------------

TEST_F(PostgresFaultTest, AConnectionStringIsNeverInAnError) {
  for (const char* bad : {"password=needle7 user", "host=/nowhere password=needle7", "postgresql://u:needle7@[::1"}) {
    conninfo_ = bad;
    const auto refused = try_open();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message.find("needle7"), std::string::npos) << refused.error().message;
  }
}

// Only an answer has a deadline: a server that lets us in and then is silent may not be waited for behind that.
TEST_F(PostgresFaultTest, OpeningAsksNothingOfASilentServer) {
  const testing::SilentServer server(dir_.path());
  EXPECT_TRUE(postgres::Connection::open({"host=" + dir_.path().string() + " user=llorch dbname=llorch"}));
}

TEST_F(PostgresFaultTest, RefusesAnotherSchemaAndAnotherEncoding) {
  open().reset();
  ASSERT_TRUE(execute("INSERT INTO schema_migrations VALUES (99, 'newer', '', 0)"));
  EXPECT_EQ(try_open().error().code, ErrorCode::kUnsupportedFormatVersion);
  ASSERT_TRUE(execute("DELETE FROM schema_migrations WHERE version = 99; UPDATE schema_migrations SET sha256 = 'x'"));
  EXPECT_EQ(try_open().error().code, ErrorCode::kCorruptFile);
  ASSERT_TRUE(
      postgres::Connection::open({conninfo_})->execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0"));
  conninfo_ += " dbname=latin";
  EXPECT_EQ(try_open().error().code, ErrorCode::kConfigInvalid);
}

}  // namespace
}  // namespace llorch::orchestratord::store
