// What pool managers tell and what is shown of them.
#include "contract/json.h"
#include "orchestratord/app/testing/daemon_fixture.h"

namespace llorch::orchestratord::app::testing {
namespace {

class PoolTest : public DaemonTest {
 protected:
  static contract::PoolState state(const std::string& id, const std::string& endpoint) {
    contract::PoolState s;
    s.pool_id = id;
    s.endpoint = endpoint;
    s.boot_id = "boot-1";
    s.timestamp_ms = 1;
    contract::GpuInfo gpu;
    gpu.gpu_id = "0";
    gpu.vram_total_bytes = gpu.vram_available_bytes = 100;
    s.gpus.push_back(gpu);
    return s;
  }
};

// SYS-5.2.1#inventory, POOLREG-19010, POOLREG-19030: a pool registers with its facts, beats and leaves.
TEST_F(PoolTest, RegistersBeatsAndLeaves) {
  start();
  const std::string body = contract::encode(state("pool-a", "http://127.0.0.1:9/"));
  const net::Response registered = client_->post("/v2/pools/register", body);
  EXPECT_EQ(registered.status, 200) << registered.body;
  EXPECT_EQ(field(registered.body, "pool_id"), "pool-a");
  EXPECT_EQ(field(registered.body, "heartbeat_interval_ms"), "15000");
  const net::Response beat = client_->post("/v2/pools/pool-a/heartbeat", body);
  EXPECT_EQ(beat.status, 200);
  EXPECT_EQ(field(beat.body, "next_heartbeat_ms"), "15000");
  const std::string list = client_->get("/v2/pools").body;
  EXPECT_NE(list.find(R"({"pools":[{"pool_id":"pool-a","status":"healthy","endpoint":"http://127.0.0.1:9")"),
            std::string::npos)
      << list;
  EXPECT_EQ(field(client_->get("/v2/health").body, "status"), "healthy");
  EXPECT_EQ(field(client_->get("/health").body, "status"), "healthy");
  EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-a").status, 204);
  EXPECT_EQ(client_->call("DELETE", "/v2/pools/pool-a").status, 404);
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
  EXPECT_EQ(field(client_->get("/v2/health").body, "status"), "degraded");
  EXPECT_EQ(field(client_->get("/v2/health").body, "code"), "POOL_UNREADY");
}

TEST_F(PoolTest, RefusesWhatCannotBe) {
  start();
  auto body = state("pool-a", "http://127.0.0.1:9");
  EXPECT_EQ(client_->post("/v2/pools/pool-b/heartbeat", contract::encode(body)).status, 400);
  body.endpoint = "ftp://x";
  EXPECT_EQ(client_->post("/v2/pools/register", contract::encode(body)).status, 400);
  body = state("no good", "http://127.0.0.1:9");
  EXPECT_EQ(client_->post("/v2/pools/register", contract::encode(body)).status, 400);
  EXPECT_EQ(client_->post("/v2/pools/register", "{}").status, 400);
  EXPECT_EQ(client_->post("/v2/internal/workers/ready", "{}").status, 400);
  EXPECT_EQ(client_->post("/v2/internal/workers/failed", "nonsense").status, 400);
  // Facts about workers nobody started change nothing and break nothing.
  contract::WorkerReady ready;
  ready.pool_id = "pool-z";
  ready.worker.worker_id = "worker-z";
  ready.worker.uri = "http://127.0.0.1:9";
  EXPECT_EQ(client_->post("/v2/internal/workers/ready", contract::encode(ready)).status, 200);
  contract::WorkerFailed failed;
  failed.worker_id = "worker-z";
  failed.pool_id = "pool-z";
  EXPECT_EQ(client_->post("/v2/internal/workers/failed", contract::encode(failed)).status, 200);
  EXPECT_EQ(client_->get("/v2/pools").body, R"({"pools":[]})");
}

// DECISIONS §3: endpoints persist, and a restarted daemon asks at once instead of waiting for a heartbeat.
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
  wait_until([this] { return pool_->starts() == 2; }, "the new worker");
  EXPECT_EQ(pool_->stops(), 1);
  const auto state = [this] { return field(client_->get("/v2/pools/pool-1/health").body, "state"); };
  wait_until([&] { return state() == "done"; }, "the end of the reload");
  pool_->hold(false);
  EXPECT_EQ(client_->read(events_path(job)).events.back().event, "end");
  restart();
  pool_->register_at(client_->url());
  EXPECT_EQ(state(), "done");
  EXPECT_EQ(client_->read(events_path(client_->submit(task(2)))).events.back().event, "end");
  EXPECT_EQ(pool_->stops(), 1) << "it began again";
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
}  // namespace llorch::orchestratord::app::testing
