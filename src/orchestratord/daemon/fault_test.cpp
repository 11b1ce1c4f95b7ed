// The daemon on a disk that refuses, and the ways it refuses to start.
#include "orchestratord/daemon/testing/daemon_fixture.h"
#include "orchestratord/store/testing/faulty_disk.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

using base::ErrorCode;
using store::testing::Fault;

class FaultTest : public DaemonTest {
 public:
  ~FaultTest() override {
    client_.reset();
    daemon_.reset();
  }

 protected:
  FaultTest() {
    options_.sqlite_vfs = disk_.sqlite_vfs();
    options_.open_file = disk_.door();
    options_.config.orchestratord.timeout.cancellation_deadline_ms = 300;
  }
  store::testing::FaultyDisk disk_{1};
};

// A full disk is 503 STORE_UNAVAILABLE, never a false 202, and the service recovers by itself.
TEST_F(FaultTest, AFullDiskIsARefusalAndThenItWorksAgain) {
  start_with_pool();
  client_->read(events_path(client_->submit(task(1))));
  disk_.fail({.fault = Fault::kFull});
  const net::Response refused = client_->post("/v2/tasks", task(2));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(code_of(refused), "STORE_UNAVAILABLE");
  EXPECT_TRUE(refused.headers.get("Retry-After"));
  const std::string health = client_->get("/v2/health").body;
  EXPECT_EQ(field(health, "status"), "degraded") << "healthy, and no job is accepted";
  EXPECT_EQ(field(health, "code"), "STORE_UNAVAILABLE") << health;
  disk_.heal();
  const auto events = client_->read(events_path(client_->submit(task(3)))).events;
  EXPECT_EQ(events.back().event, "end");
  const std::string list = client_->get("/v2/tasks").body;
  EXPECT_EQ(list.find("\"queue_position\""), std::string::npos) << "a refused job was kept: " << list;
  EXPECT_EQ(field(client_->get("/v2/health").body, "status"), "healthy");
}

// The end of a job is told only when it is durable; tokens flow meanwhile.
TEST_F(FaultTest, TheTerminalEventWaitsForTheDisk) {
  start_with_pool();
  pool_->hold(true);
  const std::string job_id = client_->submit(task(5, 20, R"(,"on_disconnect":"resume")"));
  wait_until([this] { return pool_->running() == 1; }, "the job to run");
  wait_until([&] { return status_of(job_id) == "running"; }, "its row");
  disk_.fail({.fault = Fault::kFull});
  pool_->hold(false);
  wait_until([&] { return pool_->completed()[job_id] == 1; }, "its last token");
  wait_until([&] { return field(client_->get("/v2/tasks/" + job_id).body, "code") == "WAITING_FOR_STORE"; },
             "the store to fail");
  const auto during = client_->read(events_path(job_id), {.count = 22});
  EXPECT_EQ(tokens_of(during.events), FakePool::expected_tokens(5, 20));
  const auto more = client_->read(events_path(job_id), {.last_event_id = *during.events.back().id, .timeout_ms = 300});
  EXPECT_TRUE(more.events.empty()) << "told before it was durable";
  for (const std::string& path : {"/v2/tasks/" + job_id, std::string("/v2/tasks")}) {
    const std::string waiting = client_->get(path).body;
    EXPECT_NE(waiting.find("\"code\":\"WAITING_FOR_STORE\""), std::string::npos) << waiting;
    EXPECT_EQ(waiting.find("\"completed\""), std::string::npos) << "told before it was durable: " << waiting;
  }
  disk_.heal();
  const std::string last = *during.events.back().id;
  const auto after = client_->read(events_path(job_id), {.last_event_id = last});
  EXPECT_EQ(names_of(after.events), std::vector<std::string>{"end"});
  EXPECT_EQ(status_of(job_id), "completed");
  EXPECT_EQ(client_->get("/v2/tasks/" + job_id).body.find("\"reason\""), std::string::npos);
}

TEST_F(FaultTest, TheSameTaskAfterAFailedCommitIsANewTry) {
  start_with_pool();
  const std::string body = task(5, 3, R"(,"task_id":"my-task")");
  disk_.fail({.fault = Fault::kFull});
  EXPECT_EQ(client_->post("/v2/tasks", body).status, 503);
  EXPECT_EQ(client_->post("/v2/tasks", body).status, 503);
  disk_.heal();
  const auto events = client_->read(events_path(client_->submit(body))).events;
  EXPECT_EQ(events.back().event, "end");
  EXPECT_EQ(pool_->executions(), 1);
}

// Only `llorch` reads it. A directory in its place is as good as a disk without room.
TEST_F(FaultTest, AStartWithoutItsRunRecordServes) {
  std::filesystem::create_directories(options_.state_directory / "run" / "orchestratord.json" / "in-the-way");
  start();
  EXPECT_EQ(client_->get("/v2/tasks").status, 200);
  EXPECT_NE(log().find("run_file.failed"), std::string::npos);
}

TEST_F(FaultTest, RefusalsToStartAreClear) {
  start();
  auto second = options_;
  EXPECT_EQ(Orchestrator::open(second).error().code, ErrorCode::kAlreadyRunning);
  second.state_directory = fresh_directory();
  second.config.orchestratord.bind = daemon_->bind();
  const auto taken = Orchestrator::open(second);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kPortInUse);
  EXPECT_NE(taken.error().message.find("orchestratord.bind"), std::string::npos) << taken.error().message;
  second.config.orchestratord.bind = "0.0.0.0:0";
  EXPECT_EQ(Orchestrator::open(second).error().code, ErrorCode::kNonLoopbackWithoutToken);
  for (const char* bad : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", ":80", "127.0.0.1:8x"}) {
    second.config.orchestratord.bind = bad;
    EXPECT_EQ(Orchestrator::open(second).error().code, ErrorCode::kConfigInvalid) << bad;
  }
  std::filesystem::remove_all(second.state_directory);
  second.config.orchestratord.bind = "127.0.0.1:0";
  second.state_directory = "/proc/no/such";
  EXPECT_EQ(Orchestrator::open(second).error().code, ErrorCode::kStoreUnavailable);
}

// `llorch config validate` asks so before a restart. Nothing is made or locked.
TEST_F(FaultTest, ACheckRefusesWhatAStartRefusesOfTheConfiguration) {
  const std::filesystem::path files = fresh_directory();
  OrchestratorOptions good = options_;
  good.state_directory = files / "never";
  good.api_token = std::string(40, 'o');
  EXPECT_TRUE(Orchestrator::check(good));
  const auto refused = [&](auto change) {
    OrchestratorOptions wrong = good;
    change(wrong);
    const auto checked = Orchestrator::check(wrong);
    const auto opened = Orchestrator::open(wrong);
    EXPECT_FALSE(checked || opened);
    if (checked || opened) return ErrorCode::kInternal;
    EXPECT_EQ(checked.error().code, opened.error().code);
    EXPECT_EQ(checked.error().message, opened.error().message);
    return checked.error().code;
  };
  EXPECT_EQ(refused([](OrchestratorOptions& o) { o.reader_tokens = {o.api_token}; }), ErrorCode::kConfigInvalid)
      << "two callers with one token";
  EXPECT_EQ(refused([](OrchestratorOptions& o) { o.reader_tokens = {std::string(39, 'r') + " "}; }),
            ErrorCode::kConfigInvalid)
      << "no header could carry it";
  EXPECT_EQ(refused([](OrchestratorOptions& o) {
              o.config.orchestratord.bind = "0.0.0.0:0";
              o.api_token.clear();
            }),
            ErrorCode::kNonLoopbackWithoutToken);
  EXPECT_EQ(refused([](OrchestratorOptions& o) { o.config.orchestratord.bind = "example.org:80"; }),
            ErrorCode::kConfigInvalid);
  EXPECT_EQ(refused([](OrchestratorOptions& o) { o.config.models.chat_format["file:/m"] = "spoken"; }),
            ErrorCode::kConfigInvalid);
  EXPECT_EQ(refused([&](OrchestratorOptions& o) { o.config.models.known_models = {(files / "none.json").string()}; }),
            ErrorCode::kIoError);
  EXPECT_EQ(refused([&](OrchestratorOptions& o) {
              o.config.orchestratord.persistence.store = config::StoreKind::kPostgresql;
              o.config.orchestratord.persistence.postgresql.connection_file = (files / "none").string();
            }),
            ErrorCode::kIoError);
  EXPECT_FALSE(std::filesystem::exists(good.state_directory));
  std::filesystem::remove_all(files);
}

// AUTH-1001, AUTH-1003: with a token every endpoint asks for it, and our own calls carry it.
TEST_F(FaultTest, ATokenIsAskedForEverywhere) {
  options_.api_token = std::string(40, 'k');
  start();
  for (const char* path : {"/v2/tasks", "/v2/pools", "/v2/tasks/x/events", "/v2/meta/version"}) {
    EXPECT_EQ(client_->get(path).status, 401) << path;
  }
  EXPECT_EQ(client_->call("GET", "/v2/pools", "", {{"Authorization", "Bearer " + options_.api_token}}).status, 200);
  EXPECT_EQ(client_->call("GET", "/v2/pools", "", {{"Authorization", "Bearer " + std::string(40, 'x')}}).status, 401);
}

TEST_F(FaultTest, WithoutASpoolARestartLosesThePayloadAndSaysSo) {
  options_.config.orchestratord.persistence.payload_spool = config::PayloadSpool::kOff;
  start_with_pool();
  pool_->hold(true);
  const std::string job_id = client_->submit(task(1));
  restart();
  wait_until([&] { return status_of(job_id) == "failed"; }, "the verdict");
  const auto events = client_->read(events_path(job_id)).events;
  EXPECT_EQ(field(events.back().data, "code"), "PAYLOAD_LOST");
}

// The job is lost, and its result is not: its request is kept for as long as that takes.
TEST_F(FaultTest, WithoutASpoolAKeptResultOutlivesARestart) {
  options_.config.orchestratord.persistence.payload_spool = config::PayloadSpool::kOff;
  start_with_pool();
  pool_->hold(true);
  const std::string job_id = client_->submit(task(3, 5, R"(,"result":{"keep_ms":600000})"));
  restart();
  pool_->register_at(client_->url());
  pool_->hold(false);
  const auto result = [&] { return client_->get("/v2/tasks/" + job_id + "/result"); };
  wait_until([&] { return result().status != 409; }, "the result");
  EXPECT_EQ(result().status, 200) << result().body;
  std::string text;
  for (const std::string& token : FakePool::expected_tokens(3, 5)) text += token;
  EXPECT_EQ(field(result().body, "text"), text);
  EXPECT_EQ(field(result().body, "job_id"), job_id);
  EXPECT_EQ(status_of(job_id), "failed");
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
