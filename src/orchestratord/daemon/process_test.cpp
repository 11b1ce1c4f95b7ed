// The real program: its ready line, its files, its exit codes, and what a SIGKILL leaves behind.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <future>
#include <map>
#include <random>

#include "base/process.h"
#include "orchestratord/daemon/testing/daemon_fixture.h"
#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/sqlite/database.h"
#include "orchestratord/store/sqlite/migrations.h"
#include "orchestratord/store/testing/store_test_support.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class Program {
 public:
  explicit Program(std::vector<std::string> args) {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    args.insert(args.begin(), LLORCH_ORCHESTRATORD);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, LLORCH_ORCHESTRATORD, &actions, nullptr, argv.data(), environ) != 0) std::abort();
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    char c = 0;
    while (::read(out[0], &c, 1) == 1 && c != '\n') ready_line_ += c;
    ::close(out[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) end(SIGKILL);
  }
  // The exit code, or 128 + signal.
  int end(int signal) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string bind() const { return field(ready_line_, "bind"); }
  const std::string& ready_line() const { return ready_line_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string ready_line_;
};

class ProcessTest : public DaemonTest {
 protected:
  std::vector<std::string> args(const std::string& bind) const {
    return {"--state-dir",  options_.state_directory.string(),
            "--bind",       bind,
            "--model-root", "/models",
            "--set",        "models.aliases.demo=file:/models/demo.gguf",
            "--set",        "orchestratord.retry.initial_delay_ms=5",
            "--config",     "/dev/null"};
  }
};

TEST_F(ProcessTest, SaysWhereItListensAndLeavesInGoodOrder) {
  Program program(args("127.0.0.1:0"));
  ASSERT_EQ(field(program.ready_line(), "event"), "listening") << program.ready_line();
  const auto run_file = options_.state_directory / "run" / "orchestratord.json";
  std::ifstream in(run_file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(field(text, "pid"), std::to_string(program.pid()));
  EXPECT_EQ(field(text, "start_ticks"), std::to_string(base::process_start_ticks(program.pid()).value()));
  EXPECT_EQ(field(text, "bind"), program.bind());
  Program second(args("127.0.0.1:0"));
  EXPECT_EQ(second.end(0), 1) << "ALREADY_RUNNING";
  EXPECT_EQ(program.end(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(run_file));
  Program public_bind(args("0.0.0.0:0"));
  EXPECT_EQ(public_bind.end(0), 4);
  Program bad_set({"--set", "nonsense"});
  EXPECT_EQ(bad_set.end(0), 2);
  Program bad_key({"--config", "/dev/null", "--set", "orchestratord.no_such_key=1"});
  EXPECT_EQ(bad_key.end(0), 2);
}

// An older program, which would still start, refuses a store that was migrated.
TEST_F(ProcessTest, WhatRefusesAStartDoesSoBeforeTheMigration) {
  std::ofstream(options_.state_directory / "models.json") << "no names";
  const auto refused = Orchestrator::open(options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kCorruptFile);
  auto database =
      store::sqlite::Database::open({.path = (options_.state_directory / "orchestrator.db").string()}).value();
  const store::sqlite::StatementUse tables(*database.statement("SELECT count(*) FROM sqlite_master").value());
  ASSERT_TRUE(tables->step().value());
  EXPECT_EQ(tables->integer(0), 0);
}

// A downgrade: systemd does not try it each second for ever (RestartPreventExitStatus).
TEST_F(ProcessTest, WhatAnotherVersionWroteEndsTheService) {
  const auto exit_code = [&] { return Program(args("127.0.0.1:0")).end(0); };
  const auto names = options_.state_directory / "models.json";
  std::ofstream(names) << R"({"version":99,"models":[]})";
  EXPECT_EQ(exit_code(), 5);
  std::ofstream(names) << "no names";
  EXPECT_EQ(exit_code(), 1) << "damage, which a copy mends";
  std::filesystem::remove(names);
  Program program(args("127.0.0.1:0"));
  ASSERT_EQ(field(program.ready_line(), "event"), "listening") << program.ready_line();
  ASSERT_EQ(program.end(SIGTERM), 0);
  for (const char* change : {"INSERT INTO schema_migrations VALUES (9999, 'newer', '', 0)",
                             "UPDATE schema_migrations SET sha256 = '' WHERE version = 1"}) {
    {
      auto database =
          store::sqlite::Database::open({.path = (options_.state_directory / "orchestrator.db").string()}).value();
      ASSERT_TRUE(database.execute(change));
    }
    EXPECT_EQ(exit_code(), 5) << change;
  }
}

TEST_F(ProcessTest, ALiveJobOfANewerProgramRefusesAStartBeforeTheMigration) {
  namespace sqlite = store::sqlite;
  const std::string path = (options_.state_directory / "orchestrator.db").string();
  ASSERT_TRUE(store::files::open_state_file(path));
  {
    auto database = sqlite::Database::open({.path = path}).value();
    ASSERT_TRUE(sqlite::migrate(database, sqlite::migrations().first(7), 1));
    ASSERT_TRUE(database.execute(
        "INSERT INTO jobs (job_id, task_id, correlation_id, request_hash, priority, model, model_ref, model_facts, "
        "prompt_hash, params, max_tokens, seed, on_disconnect, tokens_in, created_at, status) VALUES ('job-1', "
        "'job-1', "
        "'c', 'rr', 'batch', 'm', 'mr', '{}', 'pp', '{\"placement\":{\"other_field\":1}}', 3, 7, 'cancel', 2, 3, "
        "'queued')"));
  }
  const auto refused = Orchestrator::open(options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kUnsupportedFormatVersion);
  auto database = sqlite::Database::open({.path = path}).value();
  EXPECT_EQ(sqlite::find_schema(database, sqlite::migrations()).value().applied_count, 7U);
}

// Rows with a bad byte, and a payload that is whole and cannot be read. What was to be kept has its request, and is run again.
TEST_F(ProcessTest, AJobThatCannotBeReadBackEndsAlone) {
  start_with_pool();
  pool_->hold(true);
  const std::string resume = R"(,"on_disconnect":"resume")";
  const std::string good = client_->submit(task(1, 5, resume));
  const std::string no_json = client_->submit(task(2, 5, resume));
  const std::string impossible = client_->submit(task(3, 5, resume));
  const std::string kept = client_->submit(task(4, 5, R"(,"result":{"keep_ms":600000})"));
  client_.reset();
  daemon_.reset();
  store::SqliteStoreOptions options;
  options.directory = options_.state_directory;
  options.clock = &store::kClock;
  options.entropy = &store::g_entropy;
  ASSERT_TRUE(store::admit(*store::open_sqlite_store(std::move(options)).value(), store::admission("odd", "{}")));
  {
    auto database =
        store::sqlite::Database::open({.path = (options_.state_directory / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute("UPDATE jobs SET params = replace(params, '{', '[') WHERE job_id = '" + no_json +
                                 "'; UPDATE jobs SET max_tokens = -5 WHERE job_id IN ('" + impossible + "', '" + kept +
                                 "')"));
  }
  ASSERT_NO_FATAL_FAILURE(start());
  pool_->register_at(client_->url());
  pool_->hold(false);
  for (const std::string& job_id : {no_json, impossible, kept, std::string("odd")}) {
    const auto events = client_->read(events_path(job_id)).events;
    ASSERT_FALSE(events.empty()) << job_id;
    EXPECT_EQ(events.back().event, "error");
    EXPECT_EQ(field(events.back().data, "code"), "PAYLOAD_LOST");
    EXPECT_EQ(field(events.back().data, "reason"), "JOB_UNREADABLE") << events.back().data;
    const std::string view = client_->get("/v2/tasks/" + job_id).body;
    EXPECT_EQ(field(view, "status"), "failed") << view;
  }
  EXPECT_EQ(tokens_of(client_->read_through(events_path(good))), FakePool::expected_tokens(1, 5));
  const auto result = [&] { return client_->get("/v2/tasks/" + kept + "/result"); };
  wait_until([&] { return result().status != 409; }, "the result");
  EXPECT_EQ(result().status, 200) << result().body;
  EXPECT_EQ(client_->get("/v2/tasks").status, 200);
  const std::string metrics = client_->get("/metrics").body;
  EXPECT_NE(metrics.find("orchd_jobs_unreadable_total{component=\"orchestratord\"} 4"), std::string::npos) << metrics;
  const std::string lines = log();
  const std::size_t told = lines.find("jobs.unreadable");
  ASSERT_NE(told, std::string::npos);
  const std::string line = lines.substr(told, lines.find('\n', told) - told);
  EXPECT_NE(line.find("\"jobs\":4"), std::string::npos) << line;
  EXPECT_EQ(lines.find("jobs.unreadable", told + 1), std::string::npos) << "told twice";
  restart();
  EXPECT_NE(client_->get("/metrics").body.find("orchd_jobs_unreadable_total{component=\"orchestratord\"} 0"),
            std::string::npos);
}

// Of one that ended, what can be read is shown, and no list is refused for it.
TEST_F(ProcessTest, AnEndThatCannotBeReadIsAnErrorOfItsJob) {
  start_with_pool();
  const std::string good = client_->submit(task(1, 5));
  const std::string damaged = client_->submit(task(2, 5));
  for (const std::string& job_id : {good, damaged}) {
    ASSERT_EQ(client_->read(events_path(job_id)).events.back().event, "end");
  }
  client_.reset();
  daemon_.reset();
  {
    auto database =
        store::sqlite::Database::open({.path = (options_.state_directory / "orchestrator.db").string()}).value();
    ASSERT_TRUE(database.execute("UPDATE jobs SET terminal_event = substr(terminal_event, 2) WHERE job_id = '" +
                                 damaged + "'"));
  }
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(client_->get("/v2/tasks/" + good).body.find("CORRUPT_FILE"), std::string::npos);
  const net::Response view = client_->get("/v2/tasks/" + damaged);
  EXPECT_EQ(view.status, 200) << view.body;
  EXPECT_EQ(code_of(view), "CORRUPT_FILE") << view.body;
  const auto events = client_->read(events_path(damaged)).events;
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(field(events.back().data, "code"), "CORRUPT_FILE");
  const net::Response list = client_->get("/v2/tasks");
  EXPECT_EQ(list.status, 200) << list.body;
  EXPECT_NE(list.body.find(good), std::string::npos);
  EXPECT_NE(list.body.find(damaged), std::string::npos);
}

// SYS-6.1.3, SYS-7.5.1, promises 2 and 3: killed at random moments with 30 jobs under way, every accepted job ends
// exactly once, and a client that reconnects with Last-Event-ID holds what an undisturbed run would have given.
TEST_F(ProcessTest, KilledAgainAndAgainNothingIsLost) {
  pool_ = std::make_unique<FakePool>(4);
  const std::random_device::result_type seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto program = std::make_unique<Program>(args("127.0.0.1:0"));
  const std::string bind = program->bind();
  TestClient client("http://" + bind);
  pool_->register_at(client.url());
  std::vector<std::string> jobs;
  for (int i = 0; i < 30; ++i) {
    jobs.push_back(client.submit(task(static_cast<std::uint64_t>(i), 120, R"(,"on_disconnect":"resume")")));
  }
  std::vector<std::future<std::vector<net::sse::Event>>> readings;
  for (const std::string& job : jobs) {
    readings.push_back(std::async(std::launch::async, [&] { return client.read_through(events_path(job)); }));
  }
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 150));
    program->end(SIGKILL);
    program = std::make_unique<Program>(args(bind));
    ASSERT_EQ(program->bind(), bind);
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto events = readings[i].get();
    EXPECT_EQ(tokens_of(events), FakePool::expected_tokens(i, 120)) << "job " << i;
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back().event, "end") << events.back().data;
    std::map<std::string, int> ids;
    for (const auto& event : events) {
      if (!event.id) continue;
      EXPECT_EQ(++ids[*event.id], 1) << "sent twice: " << *event.id;
    }
    EXPECT_EQ(field(client.get("/v2/tasks/" + jobs[i]).body, "status"), "completed");
  }
  EXPECT_EQ(program->end(SIGTERM), 0);
  auto database =
      store::sqlite::Database::open({.path = (options_.state_directory / "orchestrator.db").string()}).value();
  const store::sqlite::StatementUse check(*database.statement("PRAGMA integrity_check").value());
  ASSERT_TRUE(check->step().value());
  EXPECT_EQ(check->text(0), "ok");
  std::ifstream in(options_.state_directory / "payload.keys", std::ios::binary);
  const std::string keys{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(keys.find_first_not_of('\0'), std::string::npos) << "a key outlived its job";
  EXPECT_FALSE(any_file_holds(options_.state_directory, "Once upon a time"));
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
