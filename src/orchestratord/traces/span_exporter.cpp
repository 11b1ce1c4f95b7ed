#include "orchestratord/traces/span_exporter.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "orchestratord/traces/otlp.h"

namespace llorch::orchestratord::traces {
namespace {

// As the protocol says: these are asked again, every other refusal is for good.
bool is_worth_another_try(const base::Result<net::Response>& response) {
  if (!response) return true;
  const int status = response->status;
  return status == 429 || status == 502 || status == 503 || status == 504;
}

std::string words_for(const base::Result<net::Response>& response) {
  return response ? fmt::format("it answers with status {}", response->status) : response.error().message;
}

}  // namespace

void SpanExporter::add(FinishedJob job) {
  if (!is_sampled(job)) return;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() < options_.limits.jobs_max) {
      jobs_.push_back(std::move(job));
      return;
    }
  }
  options_.count(Outcome::kDropped, 1);
}

void SpanExporter::tick() {
  std::shared_ptr<const Batch> batch = next_batch();
  if (batch) send(std::move(batch));
}

std::shared_ptr<const SpanExporter::Batch> SpanExporter::next_batch() {
  std::vector<FinishedJob> taken;
  {
    const std::lock_guard lock(mutex_);
    if (on_its_way_ || options_.clock->now().mono_ms < paused_until_ms_) return nullptr;
    if (!unsent_ && jobs_.empty()) return nullptr;
    on_its_way_ = true;
    if (unsent_) return std::exchange(unsent_, nullptr);
    const auto end =
        jobs_.begin() + static_cast<std::ptrdiff_t>(std::min(jobs_.size(), options_.limits.jobs_per_request));
    taken.assign(std::make_move_iterator(jobs_.begin()), std::make_move_iterator(end));
    jobs_.erase(jobs_.begin(), end);
  }
  std::vector<Span> spans;
  for (const FinishedJob& job : taken) std::ranges::move(job_spans(job, *options_.entropy), std::back_inserter(spans));
  return std::make_shared<const Batch>(
      Batch{otlp_json(spans, options_.service_version), static_cast<std::int64_t>(taken.size())});
}

void SpanExporter::send(std::shared_ptr<const Batch> batch) {
  net::ClientRequest request{.method = "POST",
                             .url = options_.endpoint + "/v1/traces",
                             .headers = {{"Content-Type", "application/json"}},
                             .body = batch->body,
                             .correlation_id = {},
                             .timeout_ms = options_.limits.request_timeout_ms};
  options_.client->request(std::move(request),
                           [this, batch](const base::Result<net::Response>& response) { answered(batch, response); });
}

void SpanExporter::answered(const std::shared_ptr<const Batch>& batch, const base::Result<net::Response>& response) {
  const bool is_exported = response && response->status >= 200 && response->status < 300;
  const bool comes_again = !is_exported && is_worth_another_try(response);
  bool was_failing = false;
  {
    const std::lock_guard lock(mutex_);
    on_its_way_ = false;
    was_failing = std::exchange(failing_, !is_exported);
    if (comes_again) unsent_ = batch;
    pause_ms_ = is_exported ? 0 : std::clamp(2 * pause_ms_, options_.limits.pause_ms, options_.limits.pause_ms_max);
    paused_until_ms_ = is_exported ? 0 : options_.clock->now().mono_ms + pause_ms_;
  }
  if (!comes_again) options_.count(is_exported ? Outcome::kExported : Outcome::kDropped, batch->jobs);
  if (is_exported == was_failing) {
    const bool cancelled = !response && response.error().code == base::ErrorCode::kCancelled;
    if (is_exported) {
      base::log_event(base::LogLevel::kInfo, "traces.recovered", {}, "The collector of traces takes spans again.");
    } else if (!cancelled) {
      base::log_event(base::LogLevel::kWarn, "traces.failed", {}, "The collector of traces does not take spans.",
                      {{"reason", words_for(response)}});
    }
  }
}

}  // namespace llorch::orchestratord::traces
