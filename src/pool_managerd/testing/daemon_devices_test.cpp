// The real pool-managerd and devices: masks of several, GPUs of a fake driver.
#include <signal.h>

#include "engine/compute/cuda/backend.h"
#include "pool_managerd/testing/daemon_fixture.h"

namespace llorch::pool_managerd {
namespace {

// SYS-3.3.1, SYS-6.3.3: a worker over several devices holds its part of each, and is refused with the numbers of each.
TEST_F(DaemonTest, AMaskOfSeveralDevices) {
  NEEDS_MODEL();
  run();
  start_ready("worker-one", "cpu");
  const std::int64_t alone = worker("worker-one")->vram_bytes;
  start_ready("worker-two", "cpu,cpu");
  const auto info = *worker("worker-two");
  EXPECT_EQ(info.gpu_id, "cpu,cpu");
  ASSERT_EQ(info.vram_bytes_by_device.size(), 2u);
  EXPECT_EQ(info.vram_bytes, info.vram_bytes_by_device[0] + info.vram_bytes_by_device[1]);
  EXPECT_LT(info.vram_bytes_by_device[0], alone) << "half of the model";
  EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, alone + info.vram_bytes);
  EXPECT_EQ(state().gpus.at(0).workers, (std::vector<std::string>{"worker-one", "worker-two"}));
  EXPECT_NE(content(directory / "state/logs/worker-two.log").find(R"("gpu_device":"cpu,cpu","visible":"")"),
            std::string::npos);
  // What a worker of two needs of each of them is what orchestratord hears.
  const auto path = [&](int devices) {
    return fmt::format("/v2/models/describe?context_tokens=64&devices={}&ref={}", devices,
                       net::http::percent_encode(model_ref()));
  };
  const auto facts = wire::decode<wire::ModelFacts>(call("GET", path(2)).body).value();
  EXPECT_EQ(facts.devices, 2);
  EXPECT_EQ(facts.memory_bytes, info.vram_bytes_by_device[0]);
  // Three do not divide its heads.
  const auto odd = start("w", model_ref(), "cpu,cpu,cpu");
  EXPECT_EQ(net::http::error_of(odd).code, ErrorCode::kModelIncompatible) << odd.body;
  EXPECT_EQ(start("w", model_ref(), "cpu,0").status, 400);
  EXPECT_EQ(call("GET", path(17)).status, 400);
  ASSERT_EQ(kill(static_cast<pid_t>(info.pid), SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return state().gpus.at(0).vram_allocated_bytes == alone; }));
}

// GPUINV-12001, ORCH-1102, OC-POOL-3012: GPUs are listed; there is no silent fallback to the CPU. A worker sees its own GPU
// and no other; where this build has no machine code for a GPU, that is said instead of starting one.
TEST_F(DaemonTest, GpusTakeWorkers) {
  daemon = std::make_unique<Daemon>(directory, arguments({"--nvml-library", LLORCH_FAKE_NVML}));
  ASSERT_FALSE(daemon->bind.empty()) << content(directory / "stderr");
  const auto gpus = state().gpus;
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].model, "Fake GPU 0");
  EXPECT_EQ(net::http::error_of(start("w", model_ref(), "cpu")).code, ErrorCode::kGpuUnavailable);
  NEEDS_MODEL();
  const std::string missing = engine::compute::cuda::missing_kernels("9.0");
  if (!missing.empty()) {
    const auto refusal = net::http::error_of(start("w", model_ref(), "1"));
    EXPECT_EQ(refusal.code, ErrorCode::kGpuUnavailable);
    EXPECT_NE(refusal.message.find(missing), std::string::npos) << refusal.message;
    return;
  }
  start_ready("worker-g", "1");
  EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, 0);
  EXPECT_EQ(state().gpus.at(1).vram_allocated_bytes, worker("worker-g")->vram_bytes);
  EXPECT_NE(content(directory / "state/logs/worker-g.log").find(R"("gpu_device":"0","visible":"GPU-fake-1")"),
            std::string::npos);
  const std::int64_t alone = worker("worker-g")->vram_bytes;
  start_ready("worker-mask", "1,0");
  const auto info = *worker("worker-mask");
  ASSERT_EQ(info.vram_bytes_by_device.size(), 2u);
  EXPECT_EQ(state().gpus.at(1).vram_allocated_bytes, alone + info.vram_bytes_by_device[0]);
  EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, info.vram_bytes_by_device[1]);
  EXPECT_NE(
      content(directory / "state/logs/worker-mask.log").find(R"("gpu_device":"0,1","visible":"GPU-fake-1,GPU-fake-0")"),
      std::string::npos);
  // One process: all its GPUs are given back at once.
  ASSERT_EQ(kill(static_cast<pid_t>(info.pid), SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return !worker("worker-mask"); }));
  EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, 0);
  EXPECT_EQ(state().gpus.at(1).vram_allocated_bytes, alone);
}

// SYS-3.3.1: one GPU without room refuses the whole mask, with its numbers.
TEST_F(DaemonTest, OneFullGpuRefusesTheMask) {
  NEEDS_MODEL();
  if (!engine::compute::cuda::missing_kernels("9.0").empty()) GTEST_SKIP() << "this build takes no worker on a GPU";
  setenv("FAKE_NVML", "free1=1000", 1);
  daemon = std::make_unique<Daemon>(directory, arguments({"--nvml-library", LLORCH_FAKE_NVML}));
  ASSERT_FALSE(daemon->bind.empty()) << content(directory / "stderr");
  const auto refused = start("w", model_ref(), "0,1");
  EXPECT_EQ(refused.status, 409);
  const base::Error error = net::http::error_of(refused);
  EXPECT_EQ(error.code, ErrorCode::kInsufficientVram);
  EXPECT_NE(error.message.find("of device 1, which has 1000 available"), std::string::npos) << error.message;
  EXPECT_NE(refused.body.find(R"("gpu_id":"1")"), std::string::npos) << refused.body;
  start_ready("worker-alone", "0");
  EXPECT_EQ(state().gpus.at(1).vram_allocated_bytes, 0);
}

}  // namespace
}  // namespace llorch::pool_managerd
