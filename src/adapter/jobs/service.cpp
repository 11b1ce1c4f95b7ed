#include "adapter/jobs/service.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>
#include <utility>

#include "adapter/jobs/job.h"
#include "base/log.h"
#include "base/sha256.h"

namespace llorch::adapter::jobs {
namespace {

using base::Error;
using base::ErrorCode;

base::Result<> check(const wire::ExecuteRequest& request) {
  const auto refuse = [](std::string field, std::string why) {
    return base::fail(Error{ErrorCode::kInvalidParams, std::move(why), {}}.with("field", std::move(field)));
  };
  if (request.prompt_tokens) return refuse("prompt_tokens", "this engine takes text: send prompt or messages");
  if (request.embedding) return refuse("embedding", "no embeddings are asked of this engine");
  if (!request.images.empty()) return refuse("images", "no images are sent to this engine");
  return {};
}

}  // namespace

bool Service::take_slot() {
  std::int64_t running = counts_.running;
  do {
    if (running >= options_.slots) return false;
  } while (!counts_.running.compare_exchange_weak(running, running + 1));
  return true;
}

void Service::execute(wire::ExecuteRequest request, base::CorrelationId correlation_id, net::ExchangePtr exchange) {
  if (const auto fits = check(request); !fits) return void(exchange->respond_error(fits.error()));
  const std::uint64_t seed = request.seed.value_or(options_.entropy->next_u64() >> 1);
  request.seed = seed;
  auto submission = options_.engine->submit(request, options_.target, options_.facts);
  if (!submission) return void(exchange->respond_error(submission.error()));
  std::int64_t wait_ms = 0;
  {
    const std::lock_guard lock(mutex_);
    wait_ms = breaker_.wait_ms(options_.clock->now().mono_ms);
  }
  if (wait_ms > 0) {
    counts_.refused += 1;
    return void(exchange->respond_error(Error{
        ErrorCode::kWorkerUnavailable,
        "the engine has failed several times and is left alone for a while",
        {}}.with("retry_after_ms", wait_ms)));
  }
  if (!take_slot()) {
    counts_.refused += 1;
    return void(exchange->respond_error({ErrorCode::kWorkerBusy, "every slot of this worker has a job", {}}));
  }
  std::string prompt_sha256 = request.prompt_sha256.value_or("");
  if (prompt_sha256.empty()) {
    prompt_sha256 = base::to_hex(base::sha256(request.prompt ? *request.prompt : request.messages->text));
  }
  request.prompt.reset();  // the submission has them
  request.messages.reset();
  Job::Order order{.number = 0,
                   .request = std::move(request),
                   .submission = std::move(*submission),
                   .seed = seed,
                   .prompt_sha256 = std::move(prompt_sha256),
                   .correlation_id = std::move(correlation_id),
                   .exchange = exchange};
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    order.number = ++jobs_count_;
    job = std::make_shared<Job>(*this, std::move(order));
    running_.emplace(jobs_count_, job);
  }
  options_.client->post([job] { job->begin(); });
  exchange->on_close([client = options_.client, weak = std::weak_ptr(job)](net::CloseReason reason) {
    if (reason == net::CloseReason::kFinished) return;
    client->post([weak] {
      if (const auto gone = weak.lock()) gone->stop({ErrorCode::kCancelled, "the connection was closed", {}});
    });
  });
}

bool Service::cancel(const wire::WorkerCancelRequest& wanted) {
  std::shared_ptr<Job> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, job] : running_) {
      if (job->job_id() == wanted.job_id && job->execution_id() == wanted.execution_id) found = job;
    }
  }
  if (found == nullptr) return false;
  options_.client->post([found] { found->stop({ErrorCode::kCancelled, "the job was cancelled", {}}); });
  return true;
}

void Service::drain(std::int64_t grace_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(grace_ms);
  while (counts_.running > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::map<std::uint64_t, std::shared_ptr<Job>> running;
  {
    const std::lock_guard lock(mutex_);
    running = running_;
  }
  for (const auto& [number, job] : running) {
    options_.client->post([job = job] { job->stop({ErrorCode::kShuttingDown, "the worker stops", {}}); });
  }
}

void Service::ended(std::uint64_t number, Outcome outcome) {
  {
    const std::lock_guard lock(mutex_);
    running_.erase(number);
  }
  counts_.running -= 1;
  auto& count = outcome == Outcome::kCompleted ? counts_.completed
                : outcome == Outcome::kFailed  ? counts_.failed
                                               : counts_.cancelled;
  count += 1;
}

void Service::engine_failed() {
  const std::lock_guard lock(mutex_);
  breaker_.failed(options_.clock->now().mono_ms);
}

void Service::engine_answered() {
  const std::lock_guard lock(mutex_);
  breaker_.succeeded();
}

void Service::probed(bool well) {
  is_well_ = well;
  if (well) engine_answered();
}

bool Service::breaker_open() {
  const std::lock_guard lock(mutex_);
  return breaker_.is_open();
}

}  // namespace llorch::adapter::jobs
