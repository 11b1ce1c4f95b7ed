// What pool managers tell and what is shown of them.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include "config/pool_credential.h"
#include "orchestratord/daemon/testing/daemon_fixture.h"
#include "orchestratord/store/sqlite_store.h"
#include "wire/json.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class PoolTest : public DaemonTest {
 protected:
  // Pairs the pool; what it says from now on comes with its credential.
  void pair(const std::string& pool) {
    const net::Response paired = client_->post("/v2/pools/" + pool + "/credential", "");
    EXPECT_EQ(paired.status, 201) << paired.body;
    token_ = config::PoolCredential::parse(field(paired.body, "credential")).value().node_token();
  }
  net::Response says(const std::string& path, const std::string& body, const std::string& method = "POST") {
    return client_->call(method, path, body, {{"Authorization", "Bearer " + token_}});
  }
  // A report whose head is sent, and whose body is not.
  class BegunReport {
   public:
    BegunReport(const std::string& bind, const std::string& path, const std::string& token, std::string body)
        : body_(std::move(body)) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(bind.substr(bind.rfind(':') + 1))));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
      // "100 Continue" says that the head was accepted.
      send(
          fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n"
                      "Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
                      path, token, body_.size()));
      char first[128];
      const ssize_t count = ::recv(socket_, first, sizeof first, 0);
      EXPECT_EQ(std::string_view(first, static_cast<std::size_t>(std::max<ssize_t>(count, 0))).substr(9, 3), "100");
    }
    ~BegunReport() { ::close(socket_); }
    BegunReport(const BegunReport&) = delete;
    BegunReport& operator=(const BegunReport&) = delete;
    std::string finish() {
      send(body_);
      std::string answer;
      char bytes[4096];
      for (ssize_t count = 0; (count = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;)
        answer.append(bytes, static_cast<std::size_t>(count));
      return answer;
    }

   private:
    void send(std::string_view text) {
      EXPECT_EQ(::send(socket_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    }
    const int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::string body_;
  };

  std::string token_;
  base::SystemClock clock_;
  base::SystemEntropy entropy_;
  static wire::PoolState state(const std::string& id, const std::string& endpoint) {
    wire::PoolState s;
    s.pool_id = id;
    s.endpoint = endpoint;
    s.boot_id = "boot-1";
    s.timestamp_ms = 1;
    wire::GpuInfo gpu;
    gpu.gpu_id = "0";
    gpu.vram_total_bytes = gpu.vram_available_bytes = 100;
    s.gpus.push_back(gpu);
    return s;
  }
};

// SYS-5.2.1#inventory, POOLREG-19010, POOLREG-19030: a pool registers with its facts, beats and leaves.
TEST_F(PoolTest, RegistersBeatsAndLeaves) {
  start();
  pair("pool-a");
  const std::string body = wire::encode(state("pool-a", "http://127.0.0.1:9/"));
  const net::Response registered = says("/v2/pools/register", body);
  EXPECT_EQ(registered.status, 200) << registered.body;
  EXPECT_EQ(field(registered.body, "pool_id"), "pool-a");
  EXPECT_EQ(field(registered.body, "heartbeat_interval_ms"), "15000");
  const net::Response beat = says("/v2/pools/pool-a/heartbeat", body);
  EXPECT_EQ(beat.status, 200);
  EXPECT_EQ(field(beat.body, "next_heartbeat_ms"), "15000");
  const std::string list = client_->get("/v2/pools").body;
  EXPECT_NE(list.find(R"({"pools":[{"pool_id":"pool-a","status":"healthy","endpoint":"http://127.0.0.1:9")"),
            std::string::npos)
      << list;
  EXPECT_EQ(field(client_->get("/v2/health").body, "status"), "healthy");
  EXPECT_EQ(field(client_->get("/health").body, "status"), "healthy");
  EXPECT_EQ(says("/v2/pools/pool-a", "", "DELETE").status, 204);
  EXPECT_EQ(says("/v2/pools/pool-a", "", "DELETE").status, 404);
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  EXPECT_EQ(field(client_->get("/v2/health").body, "status"), "degraded");
  EXPECT_EQ(field(client_->get("/v2/health").body, "code"), "POOL_UNREADY");
}

TEST_F(PoolTest, RefusesWhatCannotBe) {
  start();
  pair("pool-a");
  auto body = state("pool-a", "http://127.0.0.1:9");
  EXPECT_EQ(says("/v2/pools/pool-b/heartbeat", wire::encode(body)).status, 400);
  body.endpoint = "ftp://x";
  EXPECT_EQ(says("/v2/pools/register", wire::encode(body)).status, 400);
  body = state("no good", "http://127.0.0.1:9");
  EXPECT_EQ(says("/v2/pools/register", wire::encode(body)).status, 400);
  EXPECT_EQ(says("/v2/pools/register", "{}").status, 400);
  EXPECT_EQ(says("/v2/internal/workers/ready", "{}").status, 400);
  EXPECT_EQ(says("/v2/internal/workers/failed", "nonsense").status, 400);
  // Facts about workers nobody started change nothing and break nothing; there is no pool to have them.
  wire::WorkerReady ready;
  ready.pool_id = "pool-a";
  ready.worker.worker_id = "worker-z";
  ready.worker.gpu_id = "0";
  ready.worker.uri = "http://127.0.0.1:9";
  EXPECT_EQ(code_of(says("/v2/internal/workers/ready", wire::encode(ready))), "POOL_NOT_FOUND");
  wire::WorkerFailed failed;
  failed.worker_id = "worker-z";
  failed.pool_id = "pool-a";
  EXPECT_EQ(says("/v2/internal/workers/failed", wire::encode(failed)).status, 200);
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
}

// Whatever a pool says, it says with its own credential: of itself, and of nobody else.
TEST_F(PoolTest, APoolSpeaksForItselfOnly) {
  start();
  pair("pool-a");
  const auto refused = [this](const net::Response& response, const char* what) {
    EXPECT_EQ(response.status, 403) << what;
    EXPECT_EQ(code_of(response), "FORBIDDEN") << what;
    EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})") << what << " left something behind";
  };
  const std::string other = wire::encode(state("pool-b", "http://127.0.0.1:9"));
  refused(says("/v2/pools/register", other), "register");
  refused(says("/v2/pools/pool-b/heartbeat", other), "heartbeat");
  refused(says("/v2/pools/pool-b", "", "DELETE"), "leave");
  wire::WorkerReady ready;
  ready.pool_id = "pool-b";
  ready.worker.worker_id = "w";
  ready.worker.gpu_id = "0";
  ready.worker.uri = "http://127.0.0.1:9";
  refused(says("/v2/internal/workers/ready", wire::encode(ready)), "ready");
  wire::WorkerFailed failed;
  failed.worker_id = "w";
  failed.pool_id = "pool-b";
  refused(says("/v2/internal/workers/failed", wire::encode(failed)), "failed");
  // Without a token everything is open on this machine but what pools say.
  refused(client_->post("/v2/pools/register", wire::encode(state("pool-a", "http://127.0.0.1:9"))), "no credential");
}

// A wildcard is nobody's address, and a worker lives with its pool.
TEST_F(PoolTest, AddressesThatNobodyOrAnotherHasAreRefused) {
  start();
  pair("pool-a");
  for (const auto& [endpoint, reason] : {std::pair{"http://0.0.0.0:9", "wildcard"},
                                         {"http://[::]:9", "wildcard"},
                                         {"http://127.0.0.1:9/admin?x=", "url"}}) {
    const net::Response refused = says("/v2/pools/register", wire::encode(state("pool-a", endpoint)));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(field(refused.body, "reason"), reason) << refused.body;
  }
  auto body = state("pool-a", "http://127.0.0.1:9");
  body.workers.push_back({.worker_id = "w", .gpu_id = "0", .uri = "http://127.0.0.2:9"});
  EXPECT_EQ(field(says("/v2/pools/register", wire::encode(body)).body, "reason"), "host");
  body.workers.clear();
  EXPECT_EQ(says("/v2/pools/register", wire::encode(body)).status, 200);
  wire::WorkerReady ready;
  ready.pool_id = "pool-a";
  ready.worker.worker_id = "w";
  ready.worker.gpu_id = "0";
  ready.worker.uri = "http://127.0.0.2:9";
  EXPECT_EQ(field(says("/v2/internal/workers/ready", wire::encode(ready)).body, "reason"), "host");
}

// An unpaired pool is refused and forgotten, what ran there runs elsewhere, and a restart does not bring it back.
TEST_F(PoolTest, AnUnpairedPoolIsForgotten) {
  start_with_pool();
  pool_->hold(true);
  const std::string job = client_->submit(task(1));
  wait_until([this] { return pool_->running() == 1; }, "the job to run");
  EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-1/credential").status, 204);
  EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-1/credential").status, 404);
  wait_until([this] { return client_->get("/v2/pools").body == R"({"pools":[]})"; }, "the pool to go");
  token_ = FakePool::credential().node_token();
  const net::Response beat = says("/v2/pools/pool-1/heartbeat", wire::encode(state("pool-1", pool_->url())));
  EXPECT_EQ(code_of(beat), "BAD_TOKEN");
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  wait_until([&] { return status_of(job) == "queued"; }, "the job to wait");
  const int executions = pool_->executions();
  restart();
  EXPECT_EQ(status_of(job), "queued");
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  EXPECT_EQ(pool_->executions(), executions);
}

// Who may speak is settled on the head of a request; a credential that was taken back meanwhile is worth nothing.
TEST_F(PoolTest, AReportThatBeganBeforeItsCredentialEndedIsRefused) {
  start();
  pair("pool-a");
  auto body = state("pool-a", "http://127.0.0.1:9");
  wire::WorkerReady ready{.pool_id = "pool-a",
                          .worker = {.worker_id = "w", .gpu_id = "0", .uri = "http://127.0.0.1:9"}};
  wire::WorkerFailed failed;
  failed.pool_id = "pool-a";
  failed.worker_id = "w";
  const std::vector<std::pair<std::string, std::string>> reports{{"/v2/pools/register", wire::encode(body)},
                                                                 {"/v2/pools/pool-a/heartbeat", wire::encode(body)},
                                                                 {"/v2/internal/workers/ready", wire::encode(ready)},
                                                                 {"/v2/internal/workers/failed", wire::encode(failed)}};
  for (const bool anew : {true, false}) {
    std::vector<std::unique_ptr<BegunReport>> begun;
    for (const auto& [path, text] : reports)
      begun.push_back(std::make_unique<BegunReport>(daemon_->bind(), path, token_, text));
    if (anew) {
      pair("pool-a");
    } else {
      EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-a/credential").status, 204);
    }
    for (const auto& report : begun) {
      const std::string answer = report->finish();
      EXPECT_NE(answer.find("BAD_TOKEN"), std::string::npos) << answer;
    }
    EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  }
}

// Nobody takes a healthy pool's place by naming its address; whoever is found there in the place of another does.
TEST_F(PoolTest, AnAddressIsOnePools) {
  start_with_pool();
  client_->read(events_path(client_->submit(task(1))));
  pair("pool-b");
  const std::string taken = wire::encode(state("pool-b", pool_->url()));
  for (const char* path : {"/v2/pools/register", "/v2/pools/pool-b/heartbeat"}) {
    const net::Response refused = says(path, taken);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_EQ(code_of(refused), "CONFLICT");
  }
  const std::string pools = client_->get("/v2/pools").body;
  EXPECT_NE(pools.find("\"pool-1\""), std::string::npos) << pools;
  EXPECT_EQ(pools.find("\"pool-b\""), std::string::npos) << pools;
  client_->read(events_path(client_->submit(task(2))));
  EXPECT_EQ(pool_->starts(), 1) << "its worker is still there";
  EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-1/credential").status, 204);
  wait_until([&] { return says("/v2/pools/register", taken).status == 200; }, "the address to be free");
}

// Where a pool was is asked for no model any more, however often it moved.
TEST_F(PoolTest, AnAddressThatAPoolLeftIsForgotten) {
  start();
  pair("pool-a");
  for (const char* port : {"9", "10", "11"}) {
    const std::string body = wire::encode(state("pool-a", std::string("http://127.0.0.1:") + port));
    EXPECT_EQ(says("/v2/pools/register", body).status, 200);
  }
  EXPECT_EQ(says("/v2/pools/pool-a", "", "DELETE").status, 204);
  const net::Response refused = client_->post("/v2/tasks", task(1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("no pool manager is registered"), std::string::npos) << refused.body;
}

// Endpoints persist, and a restarted daemon asks its pools at once instead of waiting for a heartbeat.
TEST_F(PoolTest, AKnownPoolIsAskedAfterARestart) {
  start_with_pool();
  client_->read(events_path(client_->submit(task(1))));
  restart();
  wait_until([this] { return client_->get("/v2/pools").body.find("\"pool-1\"") != std::string::npos; },
             "the pool to be asked");
  const auto events = client_->read(events_path(client_->submit(task(2)))).events;
  EXPECT_EQ(events.back().event, "end");
  EXPECT_EQ(pool_->starts(), 1) << "the worker of before is still there";
}

// Where a pool was that is paired anew is not where its next credential is for, also when it was away at that time.
TEST_F(PoolTest, ANewCredentialIsNotForWhereThePoolWas) {
  start_with_pool();
  pool_.reset();
  pool_ = std::make_unique<FakePool>();  // at another address
  restart();
  EXPECT_EQ(client_->post("/v2/pools/pool-1/credential", "").status, 201);
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  daemon_.reset();
  auto store = store::open_sqlite_store(
      {.directory = options_.state_directory, .retention = {.ms = 1000}, .clock = &clock_, .entropy = &entropy_});
  ASSERT_TRUE(store.has_value());
  EXPECT_TRUE((*store)->restore()->pool_endpoints.empty());
}

// Where the store came over and pool_credentials did not.
TEST_F(PoolTest, HealthNamesAPoolWhoseCredentialIsLost) {
  start_with_pool();
  client_->read(events_path(client_->submit(task(1))));
  client_.reset();
  daemon_.reset();
  std::filesystem::remove(options_.state_directory / pool_access::kFileName);
  start();
  const std::string health = client_->get("/v2/health").body;
  EXPECT_EQ(field(health, "status"), "degraded");
  EXPECT_NE(health.find("llorch pool pair pool-1"), std::string::npos) << health;
  EXPECT_NE(log().find("pools.not_paired"), std::string::npos);
  EXPECT_EQ(client_->post("/v2/pools/pool-1/credential", "").status, 201);
  EXPECT_EQ(client_->get("/v2/health").body.find("llorch pool pair pool-1"), std::string::npos);
}

// ORCH-3038: a reload that was accepted goes on after a restart, and the jobs that waited for it run; how it ended is told
// by every later process.
TEST_F(PoolTest, AReloadGoesOnAfterARestart) {
  start_with_pool();
  pool_->hold(true);
  const std::string job = client_->submit(task(1));
  wait_until([this] { return pool_->running() == 1; }, "the job to run");
  const net::Response reply =
      client_->post("/v2/pools/pool-1/reload", R"({"new_model_ref":"demo","deadline_ms":60000})");
  EXPECT_EQ(reply.status, 202) << reply.body;
  EXPECT_EQ(pool_->stops(), 0) << "its job may finish";
  restart();
  pool_->register_at(client_->url());
  const auto state = [this] { return field(client_->get("/v2/pools/pool-1/health").body, "state"); };
  wait_until([&] { return state() == "done"; }, "the end of the reload");
  // The process that stopped may have come as far as a new worker; the next one begins again.
  const int stops = pool_->stops();
  EXPECT_GE(stops, 1);
  EXPECT_EQ(pool_->starts(), stops + 1);
  pool_->hold(false);
  EXPECT_EQ(client_->read(events_path(job)).events.back().event, "end");
  restart();
  pool_->register_at(client_->url());
  EXPECT_EQ(state(), "done");
  EXPECT_EQ(client_->read(events_path(client_->submit(task(2)))).events.back().event, "end");
  EXPECT_EQ(pool_->stops(), stops) << "it began again";
}

// The same of a purge.
TEST_F(PoolTest, APurgeGoesOnAfterARestart) {
  start_with_pool();
  pool_->hold(true);
  const std::string job = client_->submit(task(1));
  wait_until([this] { return pool_->running() == 1; }, "the job to run");
  EXPECT_EQ(client_->post("/v2/pools/pool-1/purge", "{}").status, 202);
  restart();
  pool_->register_at(client_->url());
  wait_until([this] { return pool_->starts() == 2; }, "another worker for the job");
  EXPECT_EQ(pool_->stops(), 1);
  pool_->hold(false);
  EXPECT_EQ(client_->read(events_path(job)).events.back().event, "end");
}

// ORCH-3095/3096, OC-CTRL-2060
TEST_F(PoolTest, CapabilitiesNameTheEnginesThatAreReady) {
  start_with_pool();
  EXPECT_EQ(client_->get("/v2/meta/capabilities").body.find("fake-1"), std::string::npos);
  client_->read(events_path(client_->submit(task(1))));
  const std::string body = client_->get("/v2/meta/capabilities").body;
  EXPECT_NE(body.find(R"("engine_version":"fake-1")"), std::string::npos) << body;
  EXPECT_NE(body.find(R"("max_context_length":4096)"), std::string::npos) << body;
  EXPECT_NE(body.find(R"("queue_capacity":100)"), std::string::npos) << body;
  EXPECT_EQ(client_->get("/v2/catalog/models").body,
            R"({"models":[{"model_id":"demo","model_ref":"file:/models/demo.gguf","lifecycle_state":"Active"}]})");
  const std::string with_facts = client_->get("/v2/catalog/models?facts=true").body;
  EXPECT_NE(with_facts.find(R"("facts":{"model_ref":"file:/models/demo.gguf")"), std::string::npos) << with_facts;
  EXPECT_EQ(with_facts.find("pull"), std::string::npos) << with_facts;  // nothing failed on its way here
  EXPECT_EQ(field(client_->get("/v2/meta/version").body, "api_version"), "2.0.0");
}

// OC-CTRL-2051: Prometheus text with the correlation id of every other answer.
TEST_F(PoolTest, MetricsCountWhatHappened) {
  start_with_pool();
  client_->read(events_path(client_->submit(task(1, 10))));
  const net::Response response = client_->get("/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.headers.get("X-Correlation-Id"));
  EXPECT_EQ(response.headers.get("Content-Type")->substr(0, 26), "text/plain; version=0.0.4;");
  for (const char* line :
       {"orchd_tasks_finished_total{component=\"orchestratord\",status=\"completed\"} 1",
        "orchd_tasks_enqueued_total{component=\"orchestratord\",outcome=\"accepted\"} 1",
        "orchd_worker_starts_total{component=\"orchestratord\",outcome=\"success\"} 1",
        "orchd_scheduling_latency_ms_count{component=\"orchestratord\",algorithm=\"least-loaded\"} 1"}) {
    EXPECT_NE(response.body.find(line), std::string::npos) << line << "\n" << response.body;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
