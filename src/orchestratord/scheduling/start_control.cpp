#include "orchestratord/scheduling/start_control.h"

#include "orchestratord/retry/backoff.h"

namespace llorch::orchestratord::scheduling {
namespace {
constexpr std::int64_t kStartsPerRound = 2;  // one retry (ORCH-1042, C-48)
}

StartRound::Verdict StartRound::failed(const base::PoolId& pool, const std::string& gpu_id, const base::Error& error) {
  ++failures_;
  failed_on_.emplace(pool, gpu_id);
  if (failures_ < kStartsPerRound && !retry::is_permanent_start_failure(error.code)) return Verdict::kRetry;
  *this = {};
  return Verdict::kGiveUp;
}

void StartControl::failed(const base::Error& error, const contract::RetryConfig& retry, std::int64_t now_ms,
                          base::Entropy& entropy) {
  ++failures_in_a_row_;
  not_before_ms_ = now_ms + retry::backoff_ms(retry, failures_in_a_row_, entropy);
  last_error_ = error;
}

void StartControl::ready() { *this = {}; }

}  // namespace llorch::orchestratord::scheduling
