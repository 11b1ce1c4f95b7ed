#pragma once
// The jobs of one adapter: which run, what becomes of them, whether the engine can be asked.
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "adapter/engines/engine.h"
#include "adapter/upstream/http_client.h"
#include "adapter/upstream/retry.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/id.h"
#include "net/server.h"
#include "wire/worker.h"

namespace llorch::adapter::jobs {

// What a receipt and /health say of this adapter and its engine.
struct Identity {
  std::string worker_id, model_ref, model_digest;
  std::string engine_build;  // "llamacpp/b4321"
  std::string device_class;
};

struct ServiceOptions {
  const engines::Engine* engine = nullptr;  // these four REQUIRE not null and outlive the service
  upstream::HttpClient* client = nullptr;
  const base::Clock* clock = nullptr;
  base::Entropy* entropy = nullptr;
  engines::Target target;
  engines::EngineFacts facts;
  Identity identity;
  std::string bearer;
  std::int64_t slots = 1;
  std::int64_t timeout_ms_max = 86'400'000;
  std::int64_t silence_ms = 120'000;
  upstream::RetryPolicy retry;
  // Asked on the client's thread before each request is sent; an error keeps it back. WORKER_RESET: for good.
  std::function<base::Result<>()> may_send = [] { return base::Result<>(); };
};

struct Counts {
  std::atomic<std::int64_t> running{0};
  std::atomic<std::int64_t> completed{0}, failed{0}, cancelled{0}, refused{0};
  std::atomic<std::int64_t> tokens{0}, retries{0}, first_tokens{0}, first_token_ms{0};
};

class Job;

// execute() and cancel() are thread-safe; a job lives on the client's thread.
class Service {
 public:
  explicit Service(ServiceOptions options) : options_(std::move(options)), breaker_({}) {}

  // Answers `exchange`, which is a job's until it ends. Errors that it answers with: INVALID_PARAMS, WORKER_BUSY (no slot),
  // WORKER_UNAVAILABLE with retry_after_ms (the engine has failed too often and is left alone for a while).
  void execute(wire::ExecuteRequest request, base::CorrelationId correlation_id, net::ExchangePtr exchange);
  // Whether such a run is there; it ends soon.
  bool cancel(const wire::WorkerCancelRequest& wanted);
  // Ends what runs after `grace_ms`. Blocks. REQUIRES: not on the client's thread.
  void drain(std::int64_t grace_ms);

  // Whether the engine answers; of the last probe or call.
  void probed(bool well);
  bool is_well() const { return is_well_; }
  std::int64_t slots_free() const { return options_.slots - counts_.running; }
  const Counts& counts() const { return counts_; }
  bool breaker_open();
  const ServiceOptions& options() const { return options_; }

 private:
  friend class Job;
  enum class Outcome : std::uint8_t { kCompleted, kFailed, kCancelled };
  bool take_slot();
  void ended(std::uint64_t number, Outcome outcome);
  void engine_failed();
  void engine_answered();

  const ServiceOptions options_;
  Counts counts_;
  std::atomic<bool> is_well_{true};
  std::mutex mutex_;  // guards the next three
  std::map<std::uint64_t, std::shared_ptr<Job>> running_;
  std::uint64_t jobs_count_ = 0;
  upstream::Breaker breaker_;
};

}  // namespace llorch::adapter::jobs
