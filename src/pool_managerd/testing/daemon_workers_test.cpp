// The real pool-managerd and its workers: starts, ends, and what is refused.
#include <signal.h>

#include <algorithm>
#include <optional>

#include "pool_managerd/testing/daemon_fixture.h"

namespace llorch::pool_managerd {
namespace {

// POOL-2040, POOL-2042, POOL-2060, SYS-5.3.1, SYS-6.2.4: a worker's whole life, and what orchestratord hears of it.
TEST_F(DaemonTest, StartReadyStop) {
  NEEDS_MODEL();
  run();
  start_ready("worker-a");
  const auto info = worker("worker-a");
  EXPECT_GT(info->vram_bytes, 0);
  EXPECT_EQ(info->context_length, 64);
  const auto gpu = state().gpus.at(0);
  EXPECT_EQ(gpu.gpu_id, "cpu");
  EXPECT_EQ(gpu.memory_architecture, "host");
  EXPECT_EQ(gpu.vram_total_bytes, 2'000'000'000);
  EXPECT_EQ(gpu.vram_allocated_bytes, info->vram_bytes);
  EXPECT_EQ(gpu.vram_available_bytes, gpu.vram_total_bytes - info->vram_bytes);
  EXPECT_TRUE(eventually([&] { return orchestrator->read([&] { return orchestrator->ready.size() == 1; }); }));
  EXPECT_EQ(orchestrator->ready[0].worker.uri, info->uri);
  EXPECT_TRUE(eventually([&] { return orchestrator->read([&] { return orchestrator->heartbeats.size() >= 3; }); }));
  EXPECT_EQ(orchestrator->read([&] { return orchestrator->registrations.at(0).boot_id; }), state().boot_id);
  // The same start again starts nothing.
  EXPECT_EQ(start("worker-a", model_ref()).status, 200);
  EXPECT_EQ(worker("worker-a")->pid, info->pid);
  const auto log = directory / "state/logs/worker-a.log";
  EXPECT_TRUE(fs::exists(log));
  EXPECT_EQ(fs::status(log).permissions() & fs::perms::mask, fs::perms::owner_read | fs::perms::owner_write);
  const std::string of_worker = R"(worker_slots{worker_id="worker-a"} 1)";
  EXPECT_NE(call("GET", "/metrics").body.find(of_worker), std::string::npos);
  EXPECT_EQ(call("POST", "/v2/workers/stop", R"({"worker_id":"worker-a"})").status, 200);
  const auto report = expect_gone("worker-a");
  EXPECT_EQ(report.category, FailureCategory::kExplicitStop);
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.vram_released_bytes, info->vram_bytes);
  const std::string metrics = call("GET", "/metrics").body;
  EXPECT_NE(metrics.find(R"(pool_mgr_worker_starts_total{outcome="success")"), std::string::npos);
  EXPECT_EQ(metrics.find(of_worker), std::string::npos);
  EXPECT_EQ(call("GET", "/health").status, 200);
}

// POOL-2043, SYS-6.2.5, SYS-7.3.1: a killed worker is noticed, released and reported.
TEST_F(DaemonTest, KilledWorker) {
  NEEDS_MODEL();
  run();
  start_ready("worker-a");
  ASSERT_EQ(kill(static_cast<pid_t>(worker("worker-a")->pid), SIGKILL), 0);
  const auto report = expect_gone("worker-a");
  EXPECT_EQ(report.category, FailureCategory::kCrash);
  EXPECT_EQ(report.exit_code, 137);
  EXPECT_EQ(report.error_code, "WORKER_RESET");
  EXPECT_GT(report.vram_released_bytes, 0);
  start_ready("worker-b");
}

// No worker outlives its pool manager, so no process that nobody knows holds VRAM.
TEST_F(DaemonTest, WorkersDieWithTheDaemon) {
  NEEDS_MODEL();
  run();
  start_ready("worker-a");
  start_ready("worker-stubborn");
  const int first = static_cast<int>(worker("worker-a")->pid),
            second = static_cast<int>(worker("worker-stubborn")->pid);
  kill(daemon->pid, SIGKILL);
  daemon->wait_exit();
  EXPECT_TRUE(eventually([&] { return !alive(first) && !alive(second); }));
  run();  // the lock went with the process
  EXPECT_TRUE(state().workers.empty());
}

// POOL-2041, WLIFE-10010: the ways a start can fail.
TEST_F(DaemonTest, StartsThatFail) {
  NEEDS_MODEL();
  run();
  EXPECT_EQ(start("worker-crash", model_ref()).status, 202);
  auto report = expect_gone("worker-crash");
  EXPECT_EQ(report.error_code, "MODEL_LOAD_FAILED");
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_EQ(report.vram_released_bytes, 0);
  EXPECT_EQ(start("worker-greedy", model_ref()).status, 202);
  report = expect_gone("worker-greedy");
  EXPECT_EQ(report.error_code, "INSUFFICIENT_VRAM");
}

// POOL-2041: nobody waits for a worker that never says a word.
TEST_F(DaemonTest, AStartThatIsNeverReported) {
  NEEDS_MODEL();
  run({"--set", "pool-managerd.worker_start_timeout_ms=1000"});
  EXPECT_EQ(start("worker-mute", model_ref()).status, 202);
  const auto report = expect_gone("worker-mute");
  EXPECT_EQ(report.error_code, "WORKER_START_TIMEOUT");
  EXPECT_EQ(report.category, FailureCategory::kTimeout);
}

// POOL-2050: a worker that hangs is killed and reported as such.
TEST_F(DaemonTest, HangingWorker) {
  NEEDS_MODEL();
  run({"--set", "pool-managerd.worker_health_interval_ms=300"});
  EXPECT_EQ(start("worker-hang", model_ref()).status, 202);
  const auto report = expect_gone("worker-hang");
  EXPECT_EQ(report.category, FailureCategory::kHang);
  EXPECT_EQ(report.exit_code, 137);
}

// WLIFE-10040: a worker that ignores /shutdown and SIGTERM is killed.
TEST_F(DaemonTest, StubbornWorker) {
  NEEDS_MODEL();
  run({"--set", "pool-managerd.worker_drain_grace_ms=200"});
  start_ready("worker-stubborn");
  EXPECT_EQ(call("POST", "/v2/workers/worker-stubborn/drain").status, 202);
  EXPECT_EQ(call("POST", "/v2/workers/stop", R"({"worker_id":"worker-stubborn"})").status, 200);
  const auto report = expect_gone("worker-stubborn");
  EXPECT_EQ(report.category, FailureCategory::kExplicitStop);
  EXPECT_EQ(report.exit_code, 137);
}

// SYS-6.2.3, OC-CTRL-2030: refusals have stable codes and spawn nothing.
TEST_F(DaemonTest, Refusals) {
  NEEDS_MODEL();
  run({"--set", "devices.cpu_memory_bytes=2000000"});
  std::ofstream(directory / "models/garbage.gguf") << "this is no model";
  fs::create_directories(directory / "elsewhere");
  fs::create_symlink(demo_model(), directory / "models/link.gguf");
  const auto code = [](const net::Response& r) { return net::http::error_of(r).code; };
  const auto small = start("w", model_ref());
  EXPECT_EQ(small.status, 409);
  EXPECT_EQ(code(small), ErrorCode::kInsufficientVram);
  for (const char* field : {"required_bytes", "available_bytes", "gpu_id"}) {
    EXPECT_NE(small.body.find(field), std::string::npos) << small.body;
  }
  const auto garbage = start("w", model_ref("garbage.gguf"));
  EXPECT_EQ(garbage.status, 409);
  EXPECT_EQ(code(garbage), ErrorCode::kModelIncompatible);
  EXPECT_NE(garbage.body.find("CORRUPT_FILE"), std::string::npos) << garbage.body;
  EXPECT_EQ(start("w", model_ref("none.gguf")).status, 404);
  EXPECT_EQ(code(start("w", model_ref("link.gguf"))), ErrorCode::kModelNotFound);
  EXPECT_EQ(code(start("w", "hf:org/repo")), ErrorCode::kModelNotFound);
  EXPECT_EQ(code(start("w", model_ref(), "0")), ErrorCode::kGpuUnavailable);
  EXPECT_EQ(code(call("POST", "/v2/workers/start", "{")), ErrorCode::kInvalidParams);
  EXPECT_EQ(code(call("POST", "/v2/workers/stop", R"({"worker_id":"none"})")), ErrorCode::kWorkerNotFound);
  EXPECT_EQ(code(call("POST", "/v2/workers/none/drain")), ErrorCode::kWorkerNotFound);
  EXPECT_EQ(code(call("POST", "/v2/internal/workers/ready", "{}")), ErrorCode::kForbidden);
  bearer = credential.worker_token();
  EXPECT_EQ(code(call("POST", "/v2/internal/workers/ready", "{}")), ErrorCode::kInvalidParams);
  bearer.clear();
  EXPECT_EQ(code(call("GET", "/v2/models/describe")), ErrorCode::kInvalidParams);
  EXPECT_EQ(code(call("GET", "/v2/models/describe?ref=x&slots=0")), ErrorCode::kInvalidParams);
  EXPECT_EQ(code(call("GET", "/v2/models/sha256:00/tokenizer")), ErrorCode::kModelNotFound);
  EXPECT_TRUE(state().workers.empty());
  EXPECT_FALSE(fs::exists(directory / "state/logs"));
}

// M0-W-1621: how far a load has come is in the state, and orchestratord hears it at once.
TEST_F(DaemonTest, LoadProgress) {
  NEEDS_MODEL();
  run({"--set", "pool-managerd.heartbeat_interval_ms=300000"});
  EXPECT_EQ(start("worker-loading", model_ref()).status, 202);
  EXPECT_TRUE(eventually([&] { return worker("worker-loading")->load_percent == 75; }));
  EXPECT_TRUE(eventually([&] {
    return orchestrator->read([&] {
      return std::ranges::any_of(orchestrator->heartbeats, [](const wire::PoolState& beat) {
        return beat.workers.size() == 1 && beat.workers[0].load_percent == 75;
      });
    });
  }));
  const auto forged = [&] {
    return call("POST", "/v2/internal/workers/progress",
                R"({"worker_id":"worker-loading","spawn_token":"","percent":100})")
        .status;
  };
  EXPECT_EQ(forged(), 403) << "no worker";
  bearer = credential.worker_token();
  EXPECT_EQ(forged(), 403) << "another worker";
  EXPECT_EQ(call("POST", "/v2/internal/workers/progress", "{}").status, 400);
  bearer.clear();
  EXPECT_EQ(worker("worker-loading")->load_percent, 75);
}

// The socket of somebody, at any port of two that are neighbours and that the system gives to nobody who names none.
struct TwoPorts {
  int first = 20'000 + getpid() % 8'000;
  net::IoRuntime runtime;
  std::optional<net::Server> taken;  // the first one

  TwoPorts() {
    const auto listens = [this](int port, std::optional<net::Server>& server) {
      server.emplace(runtime, net::ServerOptions{.component = "other", .port = static_cast<std::uint16_t>(port)});
      return server->start().has_value();
    };
    for (;; first += 2) {
      std::optional<net::Server> second;
      if (listens(first, taken) && listens(first + 1, second)) return;
    }
  }
};

// A firewall lets those through. What is taken is passed over, and a range without a free port refuses the start.
TEST_F(DaemonTest, WorkersListenAtThePortsThatAreNamed) {
  NEEDS_MODEL();
  TwoPorts ports;
  const std::string range = fmt::format("{}-{}", ports.first, ports.first + 1);
  const std::vector<std::string> named{"--set", "pool-managerd.worker_ports=" + range};
  run(named);
  start_ready("worker-a");
  const std::string uri = fmt::format("http://127.0.0.1:{}", ports.first + 1);
  EXPECT_EQ(worker("worker-a")->uri, uri);
  const auto refused = start("worker-b", model_ref());
  EXPECT_EQ(refused.status, 500);
  const base::Error error = net::http::error_of(refused);
  EXPECT_EQ(error.code, ErrorCode::kPortInUse) << refused.body;
  EXPECT_NE(error.message.find("every port of pool-managerd.worker_ports (" + range + ") is taken"), std::string::npos)
      << error.message;
  EXPECT_FALSE(worker("worker-b"));
  EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, worker("worker-a")->vram_bytes);
  EXPECT_EQ(call("POST", "/v2/workers/stop", R"({"worker_id":"worker-a"})").status, 200);
  expect_gone("worker-a");
  start_ready("worker-b");
  EXPECT_EQ(worker("worker-b")->uri, uri);
  // The worker of a daemon that was killed leaves its port to the next one.
  const int pid = static_cast<int>(worker("worker-b")->pid);
  kill(daemon->pid, SIGKILL);
  daemon->wait_exit();
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
  run(named);
  start_ready("worker-c");
  EXPECT_EQ(worker("worker-c")->uri, uri);
}

}  // namespace
}  // namespace llorch::pool_managerd
