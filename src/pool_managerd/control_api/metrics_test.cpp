#include "pool_managerd/control_api/metrics.h"

#include <gtest/gtest.h>

namespace llorch::pool_managerd::control_api {
namespace {

// SYS-10.1.1: names, types and labels of the contract; every series carries its component and pool.
TEST(Metrics, ContractSeries) {
  MetricsInput input;
  input.state.pool_id = "pool-1";
  wire::GpuInfo gpu;
  gpu.gpu_id = "cpu";
  gpu.vram_total_bytes = 1000;
  gpu.vram_allocated_bytes = 300;
  input.state.gpus = {gpu};
  wire::WorkerInfo worker;
  worker.status = wire::WorkerStatus::kReady;
  input.state.workers = {worker};
  input.workers.starts_by_outcome["success"] = 2;
  input.workers.failures[{"oom", "cpu"}] = 1;
  input.pulls.failed = 3;
  input.connected = true;
  input.log_lines_dropped = 7;
  const std::string text = metrics_text(input);
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << text;
  };
  const std::string common = R"(component="pool-managerd",pool_id="pool-1"})";
  has("# TYPE pool_mgr_gpus_total gauge");
  has("pool_mgr_gpus_total{" + common + " 1");
  has(R"(pool_mgr_gpu_vram_total_bytes{gpu_id="cpu",)" + common + " 1000");
  has(R"(pool_mgr_gpu_vram_allocated_bytes{gpu_id="cpu",)" + common + " 300");
  has(R"(pool_mgr_workers_total{status="ready",)" + common + " 1");
  has(R"(pool_mgr_workers_total{status="draining",)" + common + " 0");
  has("# TYPE pool_mgr_worker_starts_total counter");
  has(R"(pool_mgr_worker_starts_total{outcome="success",)" + common + " 2");
  has(R"(pool_mgr_worker_stops_total{reason="crash",)" + common + " 0");
  has(R"(pool_mgr_worker_failures_total{category="oom",gpu_id="cpu",)" + common + " 1");
  has(R"(pool_mgr_model_downloads_total{outcome="success",)" + common + " 0");
  has(R"(pool_mgr_model_downloads_total{outcome="failure",)" + common + " 3");
  has("pool_mgr_connection_status{" + common + " 1");
  has("# TYPE pool_mgr_log_lines_dropped_total counter");
  has("pool_mgr_log_lines_dropped_total{" + common + " 7");
  EXPECT_EQ(text.find("job_id"), std::string::npos);
}

}  // namespace
}  // namespace llorch::pool_managerd::control_api
