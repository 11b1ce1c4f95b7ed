#pragma once
// The real pool-managerd with real processes: a fake worker below it, a fake orchestratord above it.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/pool_credential.h"
#include "net/client.h"
#include "net/http/url.h"
#include "net/server.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::pool_managerd {

namespace fs = std::filesystem;
using base::ErrorCode;
using wire::FailureCategory;
using wire::WorkerStatus;

inline constexpr auto kPatience = std::chrono::minutes(3);

inline fs::path demo_model() {
  for (const char* directory : {LLORCH_SOURCE_DIR "/models/demo", LLORCH_SOURCE_DIR "/../shared/models/demo"}) {
    const fs::path file = fs::path(directory) / "fairytale-5m-q8_0.gguf";
    if (fs::exists(file)) return fs::canonical(file);
  }
  return {};
}

inline bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

inline bool alive(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  return !text.empty() && text.find(") Z ") == std::string::npos;
}

inline std::string content(const fs::path& path) {
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

struct DaemonTest : ::testing::Test {
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

}  // namespace llorch::pool_managerd
