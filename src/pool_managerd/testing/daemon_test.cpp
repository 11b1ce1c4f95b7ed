// The real pool-managerd with real processes: a fake worker below it, a fake orchestratord above it.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "config/pool_credential.h"
#include "engine/compute/cuda/backend.h"
#include "engine/io/model_digest.h"
#include "net/client.h"
#include "net/http/url.h"
#include "net/server.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::pool_managerd {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using wire::FailureCategory;
using wire::WorkerStatus;

constexpr auto kPatience = std::chrono::minutes(3);

fs::path demo_model() {
  for (const char* directory : {LLORCH_SOURCE_DIR "/models/demo", LLORCH_SOURCE_DIR "/../shared/models/demo"}) {
    const fs::path file = fs::path(directory) / "fairytale-5m-q8_0.gguf";
    if (fs::exists(file)) return fs::canonical(file);
  }
  return {};
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

bool alive(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  return !text.empty() && text.find(") Z ") == std::string::npos;
}

std::string content(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Keeps what the pool manager tells it, and lets in nobody else.
struct FakeOrchestrator {
  std::mutex mutex;
  std::vector<wire::PoolState> registrations, heartbeats;
  std::vector<wire::WorkerReady> ready;
  std::vector<wire::WorkerFailed> failed;
  int deregistered = 0;
  net::Server server;

  static net::ServerOptions options(const config::PoolCredential& pool) {
    net::ServerOptions out{.component = "fake"};
    out.auth.credentials = {
        net::http::make_credential(pool.node_token(), net::http::Role::kNode, pool.pool_id().value).value()};
    return out;
  }
  FakeOrchestrator(net::IoRuntime& runtime, const config::PoolCredential& pool) : server(runtime, options(pool)) {
    const auto keep = [this](auto& list) {
      return [this, &list](net::Request request, net::ExchangePtr exchange) {
        using T = typename std::remove_reference_t<decltype(list)>::value_type;
        const auto value = wire::decode<T>(request.body);
        {
          const std::lock_guard lock(mutex);
          if (value) list.push_back(*value);
        }
        exchange->respond(net::http::json_response(
            200, R"({"pool_id":"p","status":"registered","heartbeat_interval_ms":300,"next_heartbeat_ms":300})"));
      };
    };
    server.route("POST", "/v2/pools/register", net::Scope::kNode, keep(registrations));
    server.route("POST", "/v2/pools/{id}/heartbeat", net::Scope::kNode, keep(heartbeats));
    server.route("POST", "/v2/internal/workers/ready", net::Scope::kNode, keep(ready));
    server.route("POST", "/v2/internal/workers/failed", net::Scope::kNode, keep(failed));
    server.route("DELETE", "/v2/pools/{id}", net::Scope::kNode, [this](net::Request, net::ExchangePtr exchange) {
      const std::lock_guard lock(mutex);
      ++deregistered;
      exchange->respond({.status = 204});
    });
    EXPECT_TRUE(server.start());
  }
  template <class F>
  auto read(F f) {
    const std::lock_guard lock(mutex);
    return f();
  }
  std::optional<wire::WorkerFailed> failure_of(const std::string& id) {
    const std::lock_guard lock(mutex);
    for (const auto& f : failed) {
      if (f.worker_id == id) return f;
    }
    return std::nullopt;
  }
};

struct Daemon {
  int pid = -1;
  std::string bind;
  fs::path stderr_file;

  // Starts the program; `bind` stays empty if it ends without listening.
  Daemon(const fs::path& directory, std::vector<std::string> arguments) : stderr_file(directory / "stderr") {
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    arguments.insert(arguments.begin(), LLORCH_POOL_MANAGERD);
    std::vector<char*> argv;
    for (auto& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid = fork();
    if (pid == 0) {
      dup2(out[1], 1);
      if (freopen(stderr_file.c_str(), "a", stderr) == nullptr) _exit(126);
      close(out[0]);
      close(out[1]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    std::string line;
    char c;
    while (read(out[0], &c, 1) == 1 && c != '\n') line += c;
    close(out[0]);
    const std::string key = "\"bind\":\"";
    if (const auto at = line.find(key); at != std::string::npos) {
      bind = line.substr(at + key.size(), line.find('"', at + key.size()) - at - key.size());
    }
  }
  ~Daemon() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      wait_exit();
    }
  }
  int wait_exit() {
    int status = 0;
    waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
};

struct DaemonTest : testing::Test {
  fs::path directory;
  const config::PoolCredential credential = config::PoolCredential::parse("pool-1:" + std::string(64, 'c')).value();
  net::IoRuntime runtime;
  net::Client client{runtime};
  std::unique_ptr<FakeOrchestrator> orchestrator = std::make_unique<FakeOrchestrator>(runtime, credential);
  std::unique_ptr<Daemon> daemon;

  void SetUp() override {
    unsetenv("FAKE_NVML");
    directory = fs::temp_directory_path() / ("llorch-pool-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory / "models");
    std::ofstream(directory / "config.yaml") << "{}\n";
    fs::create_directory(directory / "state");
    EXPECT_TRUE(config::store_pool_credential(directory / "state/pool_credential", credential));
    if (!demo_model().empty()) fs::copy_file(demo_model(), directory / "models/demo.gguf");
  }
  void TearDown() override {
    daemon.reset();
    orchestrator->server.stop(0);
    if (HasFailure()) std::fputs(content(directory / "stderr").c_str(), stderr);
    fs::remove_all(directory);
  }
  std::vector<std::string> arguments(std::vector<std::string> more = {}) {
    std::vector<std::string> all{"--config",       (directory / "config.yaml").string(),
                                 "--state-dir",    (directory / "state").string(),
                                 "--bind",         "127.0.0.1:0",
                                 "--orchestrator", orchestrator->server.url(),
                                 "--model-root",   (directory / "models").string(),
                                 "--nvml-library", "/nonexistent/libnvidia-ml.so.1",
                                 "--set",          std::string("pool-managerd.worker_binary=") + LLORCH_FAKE_WORKER,
                                 "--set",          "orchestratord.limits.workers_per_gpu=4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void run(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--cpu", "--set", "devices.cpu_memory_bytes=2000000000"});
    daemon = std::make_unique<Daemon>(directory, arguments(std::move(more)));
    // Without a daemon no later step means anything.
    if (daemon->bind.empty()) throw std::runtime_error(content(daemon->stderr_file));
  }
  std::uint16_t port() const {
    return static_cast<std::uint16_t>(std::stoi(daemon->bind.substr(daemon->bind.rfind(':') + 1)));
  }
  std::string bearer;  // of the calls below
  net::Response call(const std::string& method, const std::string& path, const std::string& body = "") {
    net::ClientRequest request;
    request.bearer = bearer;
    request.method = method;
    request.url = net::http::base_url("127.0.0.1", port()) + path;  // also where it listens at all addresses
    request.body = body;
    auto response = client.call(std::move(request));
    EXPECT_TRUE(response) << (response ? "" : response.error().message);
    return response ? std::move(*response) : net::Response{.status = 0};
  }
  std::string model_ref(const std::string& name = "demo.gguf") const {
    return "file:" + (directory / "models" / name).string();
  }
  net::Response start(const std::string& id, const std::string& ref, const std::string& gpu = "cpu") {
    wire::StartWorkerRequest wanted;
    wanted.worker_id = id;
    wanted.model_ref = ref;
    wanted.gpu_id = gpu;
    wanted.context_tokens = 64;
    return call("POST", "/v2/workers/start", wire::encode(wanted));
  }
  wire::PoolState state() {
    auto decoded = wire::decode<wire::PoolState>(call("GET", "/v2/state").body);
    EXPECT_TRUE(decoded);
    return decoded ? *decoded : wire::PoolState{};
  }
  std::optional<wire::WorkerInfo> worker(const std::string& id) {
    for (const auto& w : state().workers) {
      if (w.worker_id == id) return w;
    }
    return std::nullopt;
  }
  void start_ready(const std::string& id, const std::string& gpu = "cpu") {
    const auto response = start(id, model_ref(), gpu);
    ASSERT_EQ(response.status, 202) << response.body;
    ASSERT_TRUE(eventually([&] {
      const auto w = worker(id);
      return w && w->status == WorkerStatus::kReady;
    }));
  }
  // Waits for the report and checks that nothing is left of the worker.
  wire::WorkerFailed expect_gone(const std::string& id) {
    EXPECT_TRUE(eventually([&] { return orchestrator->failure_of(id).has_value(); }));
    EXPECT_FALSE(worker(id));
    EXPECT_EQ(state().gpus.at(0).vram_allocated_bytes, 0);
    EXPECT_EQ(call("GET", "/v2/workers/" + id).status, 404);
    return orchestrator->failure_of(id).value_or(wire::WorkerFailed{});
  }
};

#define NEEDS_MODEL() \
  if (demo_model().empty()) GTEST_SKIP() << "the demo model is not here"

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
  EXPECT_EQ(call("POST", "/v2/workers/stop", R"({"worker_id":"worker-a"})").status, 200);
  const auto report = expect_gone("worker-a");
  EXPECT_EQ(report.category, FailureCategory::kExplicitStop);
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_EQ(report.vram_released_bytes, info->vram_bytes);
  const std::string metrics = call("GET", "/metrics").body;
  EXPECT_NE(metrics.find(R"(pool_mgr_worker_starts_total{outcome="success")"), std::string::npos);
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

// POOLREG-18050, POOL-2122: SIGTERM stops the workers, deregisters and leaves nothing behind.
TEST_F(DaemonTest, OrderlyStop) {
  NEEDS_MODEL();
  run();
  start_ready("worker-a");
  const int pid = static_cast<int>(worker("worker-a")->pid);
  const std::string announced = content(directory / "state/run/pool-managerd.json");
  EXPECT_NE(announced.find("\"pid\":" + std::to_string(daemon->pid)), std::string::npos);
  EXPECT_NE(announced.find(daemon->bind), std::string::npos);
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
  EXPECT_FALSE(alive(pid));
  EXPECT_TRUE(orchestrator->failure_of("worker-a"));
  EXPECT_EQ(orchestrator->deregistered, 1);
  EXPECT_FALSE(fs::exists(directory / "state/run/pool-managerd.json"));
}

// Only `llorch` reads it. A directory in its place is as good as a disk without room.
TEST_F(DaemonTest, AStartWithoutItsRunRecordServes) {
  fs::create_directories(directory / "state/run/pool-managerd.json/in-the-way");
  run();
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_NE(content(daemon->stderr_file).find("run_file.failed"), std::string::npos);
}

// POOLREG-18020: without an orchestratord everything works; it is told once it is there.
TEST_F(DaemonTest, WorksOffline) {
  NEEDS_MODEL();
  orchestrator->server.stop(0);
  run();
  start_ready("worker-a");
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
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

// A digest that a worker tells is read, not believed: one that is not so ends the worker and poisons nothing.
TEST_F(DaemonTest, ADigestIsReadNotBelieved) {
  NEEDS_MODEL();
  run();
  EXPECT_EQ(start("worker-liar", model_ref()).status, 202);
  EXPECT_EQ(expect_gone("worker-liar").error_code, "WORKER_RESET");
  start_ready("worker-next");
  EXPECT_EQ(worker("worker-next")->model_digest, "sha256:" + engine::io::model_digest(demo_model()).value())
      << "the fake worker repeats what it is told";
  fs::copy_file(demo_model(), directory / "models/copy.gguf");
  EXPECT_EQ(start("worker-hasher", model_ref("copy.gguf")).status, 202);
  EXPECT_TRUE(eventually(
      [&] { return content(directory / "state/model_digests.json").find("copy.gguf") != std::string::npos; }));
  EXPECT_EQ(worker("worker-hasher")->status, WorkerStatus::kReady) << "what it told is so";
}

TEST_F(DaemonTest, DescribesModels) {
  NEEDS_MODEL();
  run();
  start_ready("worker-early");
  EXPECT_EQ(worker("worker-early")->model_digest, "sha256:00") << "not hashed yet: the worker gets no digest";
  const auto response = call("GET", "/v2/models/describe?slots=2&ref=" + net::http::percent_encode(model_ref()));
  const auto facts = wire::decode<wire::ModelFacts>(response.body);
  ASSERT_TRUE(facts) << response.body;
  EXPECT_EQ(facts->architecture, "llama");
  EXPECT_EQ(facts->quant_kind, "Q8_0");
  EXPECT_EQ(facts->slots, 2);
  EXPECT_EQ(facts->size_bytes, static_cast<std::int64_t>(fs::file_size(demo_model())));
  EXPECT_GT(facts->memory_bytes, 0);
  const auto tokenizer = call("GET", "/v2/models/" + facts->digest + "/tokenizer");
  EXPECT_EQ(tokenizer.status, 200);
  EXPECT_EQ(tokenizer.body.substr(0, 4), "LLTK");
  start_ready("worker-late");
  EXPECT_EQ(worker("worker-late")->model_digest, facts->digest) << "known by now: the worker need not hash";
}

// POOL-2110, AUTH-1002: what is refused before anything listens.
// A file is opened that a mount holds which does not answer: it holds what names it, and not the end of the daemon.
TEST_F(DaemonTest, AFileThatDoesNotAnswerHoldsItsOwnModelAlone) {
  NEEDS_MODEL();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
#endif
  const fs::path hung = directory / "models/hung.gguf", gate = directory / "gate";
  fs::copy_file(demo_model(), hung);
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const std::map<std::string, std::string> environment{
      {"LD_PRELOAD", LLORCH_HELD_FILE}, {"LLORCH_HELD_FILE", hung.string()}, {"LLORCH_HELD_GATE", gate.string()}};
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  run();
  for (const auto& [name, value] : environment) unsetenv(name.c_str());
  const auto ask = [&](const std::string& method, const std::string& path, const std::string& body) {
    net::ClientRequest request;
    request.method = method;
    request.url = net::http::base_url("127.0.0.1", port()) + path;
    request.body = body;
    client.request(std::move(request), [](const base::Result<net::Response>&) {});
  };
  ask("POST", "/v2/workers/start",
      wire::encode(wire::StartWorkerRequest{.worker_id = "w", .model_ref = model_ref("hung.gguf"), .gpu_id = "cpu"}));
  const int held = open(gate.c_str(), O_WRONLY | O_CLOEXEC);  // returns when somebody waits for it
  ASSERT_GE(held, 0);
  ask("GET", "/v2/models/describe?ref=" + net::http::percent_encode(model_ref("hung.gguf")), "");
  EXPECT_EQ(call("GET", "/v2/models/describe?ref=" + net::http::percent_encode(model_ref())).status, 200);
  start_ready("worker-a");
  kill(daemon->pid, SIGTERM);
  EXPECT_EQ(daemon->wait_exit(), 0);
  close(held);
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

TEST_F(DaemonTest, RefusesToStart) {
  const auto exit_code = [&](std::vector<std::string> more) {
    fs::remove(directory / "stderr");
    Daemon refused(directory, arguments(std::move(more)));
    EXPECT_TRUE(refused.bind.empty());
    return refused.wait_exit();
  };
  EXPECT_EQ(exit_code({}), 4);
  EXPECT_NE(content(directory / "stderr").find("NO_GPU"), std::string::npos);
  EXPECT_NE(content(directory / "stderr").find("--cpu"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--bind", "0.0.0.0:0"}), 2) << "an address to announce is missing";
  EXPECT_NE(content(directory / "stderr").find("pool-managerd.advertise"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--pool-id", "other"}), 2) << "the credential is pool-1's";
  EXPECT_NE(content(directory / "stderr").find("llorch pool pair other"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--bind", "0.0.0.0:0", "--state-dir", (directory / "unpaired").string()}), 4);
  EXPECT_NE(content(directory / "stderr").find("NON_LOOPBACK_WITHOUT_TOKEN"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--set", "no.such.key=1"}), 2);
  EXPECT_EQ(exit_code({"--no-such-flag"}), 2);
  run();
  EXPECT_EQ(exit_code({"--cpu"}), 1);
  EXPECT_NE(content(directory / "stderr").find("ALREADY_RUNNING"), std::string::npos);
  EXPECT_EQ(exit_code({"--cpu", "--state-dir", (directory / "other").string(), "--bind", daemon->bind}), 1);
  EXPECT_NE(content(directory / "stderr").find("PORT_IN_USE"), std::string::npos);
}

// Each direction has a token of its own, and what one of them opens is closed to the others.
TEST_F(DaemonTest, ATokenOpensItsOwnDirection) {
  run();
  const auto status = [&](const std::string& token, const std::string& method, const std::string& path) {
    bearer = token;
    return call(method, path, "{}").status;
  };
  EXPECT_EQ(status(credential.control_token(), "GET", "/v2/state"), 200);
  EXPECT_EQ(status(credential.control_token(), "POST", "/v2/internal/workers/ready"), 403);
  EXPECT_EQ(status(credential.worker_token(), "POST", "/v2/internal/workers/ready"), 400);
  EXPECT_EQ(status(credential.worker_token(), "GET", "/v2/state"), 403);
  EXPECT_EQ(status(credential.worker_token(), "POST", "/v2/workers/start"), 403);
  EXPECT_EQ(status(credential.node_token(), "GET", "/v2/state"), 401) << "it is for orchestratord";
}

// Bound to every address, the pool announces the one it is told, for itself and its workers, which it reaches itself.
TEST_F(DaemonTest, AnnouncesOneAddress) {
  NEEDS_MODEL();
  run({"--bind", "0.0.0.0:0", "--set", "pool-managerd.advertise=127.0.0.2", "--set",
       "pool-managerd.worker_health_interval_ms=50"});
  bearer = credential.control_token();
  start_ready("worker-a");
  const std::string host = "http://127.0.0.2:";
  EXPECT_EQ(state().endpoint, host + std::to_string(port()));
  EXPECT_EQ(worker("worker-a")->uri.substr(0, host.size()), host);
  EXPECT_TRUE(eventually([&] { return orchestrator->read([&] { return orchestrator->ready.size() == 1; }); }));
  EXPECT_EQ(orchestrator->registrations.at(0).endpoint, state().endpoint);
  bearer.clear();
  EXPECT_EQ(call("GET", "/v2/state").status, 401) << "beyond one machine nobody comes without a token";
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
