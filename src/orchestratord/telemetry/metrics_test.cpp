#include "orchestratord/telemetry/metrics.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::telemetry {
namespace {

using brain::Metric;

Metrics metrics() { return Metrics({.engine_version = "1.0+abc", .algorithm = "least-loaded"}); }

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

// OC-METRICS-7101, SYS-10.1.1: both families, with exactly the labels of the contract.
TEST(Metrics, BothFamiliesWithTheirLabels) {
  Metrics m = metrics();
  m.count({Metric::kEnqueued, "accepted", contract::Priority::kBatch, 1});
  m.count({Metric::kRejected, "QUEUE_FULL", contract::Priority::kBatch, 1});
  m.count({Metric::kFirstTokenMs, "", contract::Priority::kInteractive, 120});
  m.count({Metric::kTokensOut, "", contract::Priority::kInteractive, 42});
  m.error("STORE_UNAVAILABLE");
  m.scheduling_latency_ms(0.03);
  brain::Gauges gauges;
  gauges.queue_depth = {3, 1};
  gauges.worker_connections.push_back({base::WorkerId("worker-1"), base::PoolId("pool-1"), 2});
  const std::string text = m.render(gauges, {.streams = 5});
  for (
      const char* line :
      {R"(tasks_enqueued_total{engine="llama-orch",engine_version="1.0+abc",pool_id="default",replica_id="r0",priority="batch"} 1)",
       R"(tasks_rejected_total{engine="llama-orch",reason="ADMISSION_REJECT"} 1)",
       R"(admission_backpressure_events_total{engine="llama-orch",policy="reject"} 1)",
       R"(queue_depth{engine="llama-orch",engine_version="1.0+abc",pool_id="default",priority="interactive"} 3)",
       R"(tokens_out_total{engine="llama-orch",engine_version="1.0+abc",pool_id="default",replica_id="r0"} 42)",
       R"(orchd_tasks_enqueued_total{component="orchestratord",outcome="accepted"} 1)",
       R"(orchd_queue_depth{component="orchestratord",priority="batch"} 1)",
       R"(orchd_worker_connections_active{component="orchestratord",worker_id="worker-1"} 2)",
       R"(orchd_errors_total{component="orchestratord",class="retry_later",code="STORE_UNAVAILABLE"} 1)",
       R"(orchd_active_streams{component="orchestratord"} 5)"}) {
    EXPECT_TRUE(has(text, line)) << line << "\n--- in ---\n" << text;
  }
  EXPECT_NE(
      text.find("latency_first_token_ms_bucket{engine=\"llama-orch\",engine_version=\"1.0+abc\",pool_id=\"default\","
                "priority=\"interactive\",le=\"150\"} 1"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("orchd_scheduling_latency_ms_bucket{component=\"orchestratord\",algorithm=\"least-loaded\""),
            std::string::npos);
}

TEST(Metrics, AWorkerThatLeftHasNoSeries) {
  Metrics m = metrics();
  brain::Gauges gauges;
  gauges.worker_connections.push_back({base::WorkerId("worker-1"), base::PoolId("pool-1"), 1});
  EXPECT_NE(m.render(gauges, {}).find("worker-1"), std::string::npos);
  gauges.worker_connections.clear();
  EXPECT_EQ(m.render(gauges, {}).find("worker-1"), std::string::npos);
}

}  // namespace
}  // namespace llorch::orchestratord::telemetry
