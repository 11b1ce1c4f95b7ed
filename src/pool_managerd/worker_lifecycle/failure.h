#pragma once
// Why a worker left, in the terms of the wire (ERROPS-16040). Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error_code.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::worker_lifecycle {

// What this pool manager itself did or saw before the exit.
enum class Cause : std::uint8_t { kNone, kStop, kDrain, kStartTimeout, kHang, kDeviceLost, kWrongDigest };

// The facts that the shell has when a worker process has ended.
struct ExitFacts {
  int exit_code = 0;  // 128 + signal when killed
  std::optional<int> signal;
  bool host_oom_kill = false;  // the kernel's memory killer struck in our cgroup while the worker lived
  // The error the worker logged last, if any.
  std::optional<base::ErrorCode> logged_code;
};

struct Failure {
  wire::FailureCategory category = wire::FailureCategory::kCrash;
  std::string error_code;  // empty after an ordered stop
  std::string message;
};

// `was_starting`: it never became ready.
Failure classify(const ExitFacts& facts, Cause cause, bool was_starting);

// The code of the last "error" event among a worker's JSON log lines; other events name codes of jobs.
std::optional<base::ErrorCode> logged_error_code(std::string_view log_tail);

}  // namespace llorch::pool_managerd::worker_lifecycle
