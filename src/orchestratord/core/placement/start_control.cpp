#include "orchestratord/core/placement/start_control.h"

#include "orchestratord/core/jobs/backoff.h"

namespace llorch::orchestratord::core::placement {
namespace {
constexpr std::int64_t kStartsPerRound = 2;  // one retry (ORCH-1042)
}

StartRound::Verdict StartRound::failed(const base::PoolId& pool, const std::string& gpu_id, const base::Error& error,
                                       bool other_pool) {
  failed_on_.emplace(pool, gpu_id);
  if (jobs::is_permanent_start_failure(error.code)) {
    if (other_pool) {
      ruled_out_.insert(pool);
      return Verdict::kRetry;
    }
  } else if (++failures_ < kStartsPerRound) {
    return Verdict::kRetry;
  }
  *this = {};
  return Verdict::kGiveUp;
}

void StartControl::failed(const base::Error& error, const config::RetryConfig& retry, std::int64_t now_ms,
                          base::Entropy& entropy) {
  ++failures_in_a_row_;
  not_before_ms_ = now_ms + jobs::backoff_ms(retry, failures_in_a_row_, entropy);
  last_error_ = error;
  passed_over_.clear();
}

void StartControl::ruled_out(const base::PoolId& pool, const base::Error& error, const config::RetryConfig& retry,
                             std::int64_t now_ms, base::Entropy& entropy) {
  if (!passed_over_.insert(pool).second) return failed(error, retry, now_ms, entropy);
  last_error_ = error;
}

void StartControl::ready() {
  std::deque<std::int64_t> crashes = std::move(crashes_ms_);
  std::map<base::PoolId, std::int64_t> put_off = std::move(put_off_until_ms_);
  *this = {};
  crashes_ms_ = std::move(crashes);
  put_off_until_ms_ = std::move(put_off);
}

void StartControl::crashed(const base::Error& error, const CrashLimits& limits, const config::RetryConfig& retry,
                           std::int64_t now_ms, base::Entropy& entropy) {
  if (limits.crashes_max == 0) return;
  crashes_ms_.push_back(now_ms);
  while (crashes_ms_.front() <= now_ms - limits.window_ms || crashes_count() > limits.crashes_max + 1) {
    crashes_ms_.pop_front();
  }
  const std::int64_t count = crashes_count();
  if (count < 2) return;
  last_error_ = error;
  const std::int64_t until_ms = count > limits.crashes_max ? crashes_ms_.front() + limits.window_ms
                                                           : now_ms + jobs::backoff_ms(retry, count - 1, entropy);
  not_before_ms_ = std::max(not_before_ms_, until_ms);
}

}  // namespace llorch::orchestratord::core::placement
