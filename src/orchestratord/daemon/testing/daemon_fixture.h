#pragma once
// An Orchestrator in this process, in a fresh state directory, with its log lines captured.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "base/entropy.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestratord/daemon/orchestrator.h"
#include "orchestratord/daemon/testing/fake_pool.h"
#include "orchestratord/daemon/testing/test_client.h"
#include "orchestratord/pool_access/pool_access.h"

namespace llorch::orchestratord::daemon::testing {

inline std::filesystem::path fresh_directory() {
  static std::atomic<int> n{0};
  const std::filesystem::path memory = "/dev/shm";
  const auto parent = ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
  auto dir = parent / ("llorch-orch-" + std::to_string(::getpid()) + "-" + std::to_string(n++));
  std::filesystem::remove_all(dir);
  return dir;
}

inline void wait_until(const std::function<bool()>& condition, const char* what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);  // bounds a hang
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "waited in vain for: " << what;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline bool any_file_holds(const std::filesystem::path& dir, const std::string& needle) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    if (bytes.view().find(needle) != std::string_view::npos) return true;
  }
  return false;
}

class DaemonTest : public ::testing::Test {
 public:
  ~DaemonTest() override {
    client_.reset();
    daemon_.reset();
    pool_.reset();
    base::capture_log_lines({});
    std::filesystem::remove_all(options_.state_directory);
  }

 protected:
  DaemonTest() {
    base::capture_log_lines(
        [this](std::string_view line) {
          const std::lock_guard lock(log_mutex_);
          log_ += line;
          log_ += '\n';
        },
        base::LogLevel::kDebug);
    options_.state_directory = fresh_directory();
    pair_the_fake_pool();
    options_.config.orchestratord.bind = "127.0.0.1:0";
    options_.config.orchestratord.retry.initial_delay_ms = 5;
    options_.config.orchestratord.retry.jitter = false;
    options_.config.models.aliases["demo"] = "file:/models/demo.gguf";
    options_.config.models.allowed_roots = {"/models"};
  }
  void pair_the_fake_pool() {
    EXPECT_TRUE(base::ensure_private_directory(options_.state_directory));
    base::SeededEntropy entropy(1);  // as FakePool::credential()
    const auto access = pool_access::PoolAccess::open(options_.state_directory / pool_access::kFileName, entropy);
    EXPECT_TRUE(access && (*access)->pair(base::PoolId("pool-1")));
  }
  void start() {
    auto opened = Orchestrator::open(options_);
    ASSERT_TRUE(opened) << opened.error().message;
    daemon_ = std::move(*opened);
    client_ = std::make_unique<TestClient>("http://" + daemon_->bind());
  }
  void start_with_pool(int slots = 1) {
    pool_ = std::make_unique<FakePool>(slots);
    start();
    pool_->register_at(client_->url());
  }
  void restart() {
    client_.reset();
    daemon_.reset();
    start();
  }
  static std::string task(std::uint64_t seed, int max_tokens = 10, const std::string& more = "") {
    return R"({"model":"demo","prompt":"Once upon a time","max_tokens":)" + std::to_string(max_tokens) +
           ",\"seed\":" + std::to_string(seed) + more + "}";
  }
  static std::string code_of(const net::Response& response) { return field(response.body, "code"); }
  std::string status_of(const std::string& job_id) { return field(client_->get("/v2/tasks/" + job_id).body, "status"); }
  std::string log() const {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  OrchestratorOptions options_;
  std::unique_ptr<FakePool> pool_;
  std::unique_ptr<Orchestrator> daemon_;
  std::unique_ptr<TestClient> client_;

 private:
  mutable std::mutex log_mutex_;
  std::string log_;
};

}  // namespace llorch::orchestratord::daemon::testing
