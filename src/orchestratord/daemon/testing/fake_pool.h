#pragma once
// A pool manager and its worker behind one real socket, for tests of the daemon. The worker's output is a function of the
// request alone, as the real one's is.
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "config/pool_credential.h"
#include "net/client.h"
#include "net/server.h"
#include "wire/pool.h"
#include "wire/worker.h"

namespace llorch::orchestratord::daemon::testing {

class FakePool {
 public:
  explicit FakePool(int slots = 1);
  ~FakePool();
  FakePool(const FakePool&) = delete;
  FakePool& operator=(const FakePool&) = delete;

  // What it is paired with, as pool-1.
  static config::PoolCredential credential();

  std::string url() const { return server_.url(); }
  // POST /v2/pools/register.
  void register_at(const std::string& orchestrator_url);

  // What an undisturbed run of this request says.
  static std::vector<std::string> expected_tokens(std::uint64_t seed, std::int64_t max_tokens);

  // While held, running jobs make no progress.
  void hold(bool held) { held_ = held; }
  // The next execution closes its connection after so many tokens.
  void break_after(int tokens) { break_after_ = tokens; }
  // Executions from now on say something else from token `index` on.
  void diverge_at(int index) { diverge_at_ = index; }
  // Executions from now on are answered with this error.
  void refuse_with(std::string code) {
    const std::lock_guard lock(mutex_);
    refuse_with_ = std::move(code);
  }

  int executions() const { return executions_; }
  int running() const;
  int starts() const { return starts_; }
  int stops() const { return stops_; }  // of a worker that was there
  int cancels() const { return cancels_; }
  std::map<std::string, int> completed() const;  // by job_id
  wire::ExecuteRequest last_request() const;
  std::string last_correlation_id() const;

 private:
  struct Running {
    wire::ExecuteRequest request;
    net::ExchangePtr exchange;
    std::int64_t next = 0;
    base::Sha256 output{};
    int break_after = -1;
    int diverge_at = -1;
  };
  void add_routes();
  void execute(const net::Request& request, const net::ExchangePtr& exchange);
  void step();
  bool step_one(Running& job);  // whether it goes on
  wire::PoolState state() const;
  void announce_worker();
  void stop_worker(const std::string& worker_id);

  const int slots_;
  mutable std::mutex mutex_;
  std::vector<Running> running_;
  std::map<std::string, int> completed_;
  wire::ExecuteRequest last_request_;
  std::string last_correlation_id_, refuse_with_, worker_id_, orchestrator_url_;
  std::atomic<bool> held_{false};
  std::atomic<int> break_after_{-1}, diverge_at_{-1}, executions_{0}, starts_{0}, stops_{0}, cancels_{0};
  net::IoRuntime runtime_;
  net::Server server_;
  net::Client client_{runtime_};
  net::Timer timer_;
};

}  // namespace llorch::orchestratord::daemon::testing
