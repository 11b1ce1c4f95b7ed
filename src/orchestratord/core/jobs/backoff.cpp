#include "orchestratord/core/jobs/backoff.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace llorch::orchestratord::core::jobs {

using base::ErrorCode;

std::int64_t backoff_ms(const config::RetryConfig& config, std::int64_t failures, base::Entropy& entropy) {
  ASSERT(failures >= 1, "failures {}", failures);
  const double ceiling = static_cast<double>(config.max_delay_ms);
  double delay = static_cast<double>(config.initial_delay_ms);
  for (std::int64_t i = 1; i < failures && delay < ceiling; ++i) delay *= config.multiplier;
  const auto full_ms = static_cast<std::int64_t>(std::llround(std::min(delay, ceiling)));
  if (!config.jitter || full_ms < 2) return full_ms;
  const std::int64_t half_ms = full_ms / 2;
  const auto spread = static_cast<std::uint64_t>(full_ms - half_ms) + 1;
  return half_ms + static_cast<std::int64_t>(entropy.next_u64() % spread);
}

bool is_transient(ErrorCode code) {
  switch (code) {
    case ErrorCode::kWorkerReset:
    case ErrorCode::kWorkerTimeout:
    case ErrorCode::kWorkerUnavailable:
    case ErrorCode::kWorkerNotFound:
    case ErrorCode::kWorkerBusy:
    case ErrorCode::kUnreachable:
    case ErrorCode::kShuttingDown:
    case ErrorCode::kGpuUnavailable: return true;
    default: return false;
  }
}

bool is_permanent_start_failure(ErrorCode code) {
  const auto number = static_cast<int>(code);
  const bool file_or_plan = number >= 2001 && number < 2200;
  return file_or_plan || code == ErrorCode::kModelNotFound || code == ErrorCode::kModelIncompatible ||
         code == ErrorCode::kInvalidParams;
}

}  // namespace llorch::orchestratord::core::jobs
