#pragma once
// When a failed attempt is tried again (SYS-6.1.6).
#include <cstdint>

#include "base/entropy.h"
#include "base/error_code.h"
#include "config/config.h"

namespace llorch::orchestratord::core::jobs {

// Delay before try number `failures + 1`: d = min(max_delay, initial_delay * multiplier^(failures - 1)); with jitter
// uniform in [d/2, d], so that jobs lost together do not come back together. REQUIRES: failures >= 1.
std::int64_t backoff_ms(const config::RetryConfig& config, std::int64_t failures, base::Entropy& entropy);

// True if the same job may succeed on another attempt: the worker, its connection or its slot was the trouble, not the
// job, the model or the device's arithmetic.
bool is_transient(base::ErrorCode code);

// True if starting a worker for this model again would certainly end the same way: the file is missing, broken or unknown.
bool is_permanent_start_failure(base::ErrorCode code);

}  // namespace llorch::orchestratord::core::jobs
