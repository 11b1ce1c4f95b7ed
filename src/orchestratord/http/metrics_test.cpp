#include "orchestratord/http/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace llorch::orchestratord::http {
namespace {

using core::Metric;

Metrics metrics() { return Metrics({.engine_version = "1.0+abc", .algorithm = "least-loaded"}); }

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

// OC-METRICS-7101#orchestratord, SYS-10.1.1, ORCH-1013: both families, with exactly the labels of the contract.
TEST(Metrics, BothFamiliesWithTheirLabels) {
  Metrics m = metrics();
  m.count({Metric::kEnqueued, "accepted", wire::Priority::kBatch, 1});
  m.count({Metric::kRejected, "QUEUE_FULL", wire::Priority::kBatch, 1});
  m.count({Metric::kQueueDropped, "drop-lru", wire::Priority::kBatch, 2});
  m.count({Metric::kQueueWaitMs, "", wire::Priority::kBatch, 7});
  m.count({Metric::kFirstTokenMs, "", wire::Priority::kInteractive, 120});
  m.count({Metric::kTokensOut, "", wire::Priority::kInteractive, 42});
  m.error("STORE_UNAVAILABLE");
  m.scheduling_latency_ms(0.03);
  core::Gauges gauges;
  gauges.queue_depth = {3, 1};
  gauges.worker_connections.push_back(
      {.worker_id = base::WorkerId("worker-1"), .pool_id = base::PoolId("pool-1"), .active = 2});
  const std::string text = m.render(gauges, {.streams = 5}, {}, 7);
  for (
      const char* line :
      {R"(tasks_enqueued_total{engine="llama-orch",engine_version="1.0+abc",pool_id="default",replica_id="r0",priority="batch"} 1)",
       R"(tasks_rejected_total{engine="llama-orch",reason="ADMISSION_REJECT"} 1)",
       R"(admission_backpressure_events_total{engine="llama-orch",policy="reject"} 1)",
       R"(admission_backpressure_events_total{engine="llama-orch",policy="drop-lru"} 2)",
       R"(orchd_queue_wait_time_ms_count{component="orchestratord",priority="batch"} 1)",
       R"(orchd_queue_wait_time_ms_sum{component="orchestratord",priority="batch"} 7)",
       R"(queue_depth{engine="llama-orch",engine_version="1.0+abc",pool_id="default",priority="interactive"} 3)",
       R"(tokens_out_total{engine="llama-orch",engine_version="1.0+abc",pool_id="default",replica_id="r0"} 42)",
       R"(orchd_tasks_enqueued_total{component="orchestratord",outcome="accepted"} 1)",
       R"(orchd_queue_depth{component="orchestratord",priority="batch"} 1)",
       R"(orchd_worker_connections_active{component="orchestratord",worker_id="worker-1"} 2)",
       R"(orchd_errors_total{component="orchestratord",class="retry_later",code="STORE_UNAVAILABLE"} 1)",
       R"(orchd_log_lines_dropped_total{component="orchestratord"} 7)",
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

// ORCH-3022, OC-METRICS-7101#orchestratord: pressure on the caches of the workers, from the facts of their pools.
TEST(Metrics, CacheAndMemoryByWorker) {
  Metrics m = metrics();
  core::Gauges gauges;
  gauges.worker_connections.push_back({.worker_id = base::WorkerId("worker-1"),
                                       .pool_id = base::PoolId("pool-1"),
                                       .active = 1,
                                       .engine_version = "e1",
                                       .gpu_id = "0",
                                       .vram_bytes = 4096,
                                       .kv_pages_total = 8,
                                       .kv_pages_used = 6});
  gauges.worker_connections.push_back({.worker_id = base::WorkerId("worker-2"), .pool_id = base::PoolId("pool-1")});
  const std::string text = m.render(gauges, {}, {}, 0);
  EXPECT_TRUE(has(
      text,
      R"(kv_cache_usage_ratio{engine="llama-orch",engine_version="e1",pool_id="pool-1",replica_id="worker-1"} 0.75)"))
      << text;
  EXPECT_EQ(text.find(R"(kv_cache_usage_ratio{engine="llama-orch",engine_version="",)"), std::string::npos)
      << "nothing is known of worker-2";
  EXPECT_TRUE(has(
      text,
      R"(vram_used_bytes{device="0",engine="llama-orch",engine_version="e1",pool_id="pool-1",replica_id="worker-1"} 4096)"))
      << text;
}

// OC-METRICS-7102: however many pools, workers, versions and codes there are, no label has more values than its budget, and
// none names a job or a tenant.
TEST(Metrics, LabelsStayWithinTheirBudgets) {
  Metrics m = metrics();
  core::Gauges gauges;
  for (int i = 0; i < 3000; ++i) {
    const std::string n = std::to_string(i);
    gauges.pools.push_back({base::PoolId("pool-" + n), true, 1});
    gauges.worker_connections.push_back({.worker_id = base::WorkerId("worker-" + n),
                                         .pool_id = base::PoolId("pool-" + n),
                                         .active = 1,
                                         .engine_version = "v" + n,
                                         .gpu_id = n,
                                         .vram_bytes = 1,
                                         .kv_pages_total = 2,
                                         .kv_pages_used = 1});
    for (const Metric metric : {Metric::kRejected, Metric::kCancelled, Metric::kHeartbeatsReceived, Metric::kRetries}) {
      m.count({metric, "x" + n});
    }
    m.count({Metric::kDrains, "drain", {}, 1, "pool-" + n});
    m.error("CODE_" + n);
  }
  const std::map<std::string, std::size_t> budgets = {
      {"engine_version", 64}, {"pool_id", 256}, {"replica_id", 1024}, {"worker_id", 1024}, {"device", 64},
      {"reason", 16},         {"code", 128},    {"priority", 8},      {"outcome", 4},      {"le", 16},
      {"component", 1},       {"engine", 4},    {"class", 4},         {"algorithm", 4},    {"status", 8},
      {"result", 4},          {"state", 8},     {"model_id", 1024}};
  for (int scrape = 0; scrape < 2; ++scrape) {
    const std::string text = m.render(gauges, {}, {}, 0);
    std::map<std::pair<std::string, std::string>, std::set<std::string>> values;
    std::size_t series = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      ++series;
      const std::string family = line.substr(0, line.find('{'));
      static const std::regex kLabel(R"re((\w+)="([^"]*)")re");
      for (auto it = std::sregex_iterator(line.begin(), line.end(), kLabel); it != std::sregex_iterator(); ++it) {
        values[{family, (*it)[1]}].insert((*it)[2]);
      }
    }
    for (const auto& [key, seen] : values) {
      ASSERT_TRUE(budgets.contains(key.second)) << "label " << key.second << " of " << key.first << " has no budget";
      // One more for all that came too late.
      EXPECT_LE(seen.size(), budgets.at(key.second) + 1) << key.first << " " << key.second;
    }
    EXPECT_EQ((values[{"orchd_heartbeats_received_total", "pool_id"}].size()), 257U);
    EXPECT_TRUE((values[{"tasks_rejected_total", "reason"}].contains("other")));
    EXPECT_LT(series, 6000U);
    // Nothing is lost, only put together.
    EXPECT_TRUE(has(text, R"(orchd_worker_connections_active{component="orchestratord",worker_id="other"} 1976)"));
    EXPECT_TRUE(has(text, R"(active_leases{pool_id="other"} 2744)"));
    EXPECT_TRUE(has(text, R"(orchd_heartbeats_received_total{component="orchestratord",pool_id="other"} 2744)"));
  }
}

TEST(Metrics, AWorkerThatLeftHasNoSeries) {
  Metrics m = metrics();
  core::Gauges gauges;
  gauges.worker_connections.push_back(
      {.worker_id = base::WorkerId("worker-1"), .pool_id = base::PoolId("pool-1"), .active = 1});
  EXPECT_NE(m.render(gauges, {}, {}, 0).find("worker-1"), std::string::npos);
  gauges.worker_connections.clear();
  EXPECT_EQ(m.render(gauges, {}, {}, 0).find("worker-1"), std::string::npos);
}

}  // namespace
}  // namespace llorch::orchestratord::http
