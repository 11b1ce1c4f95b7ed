#include "pool_managerd/worker_lifecycle/failure.h"

#include <fmt/core.h>

#include <algorithm>

namespace llorch::pool_managerd::worker_lifecycle {

using base::ErrorCode;
using wire::FailureCategory;

namespace {

std::string name_of(ErrorCode code) { return std::string(base::info(code).name); }

bool is_memory_shortage(ErrorCode code) {
  return code == ErrorCode::kInsufficientVram || code == ErrorCode::kVramOom || code == ErrorCode::kOutOfDeviceMemory;
}

std::string how_it_ended(const ExitFacts& facts) {
  return facts.signal ? fmt::format("it was killed by signal {}", *facts.signal)
                      : fmt::format("it exited with code {}", facts.exit_code);
}

}  // namespace

Failure classify(const ExitFacts& facts, Cause cause, bool was_starting) {
  switch (cause) {
    case Cause::kStop:
    case Cause::kDrain:
      return {FailureCategory::kExplicitStop, "", fmt::format("stopped as asked; {}", how_it_ended(facts))};
    case Cause::kStartTimeout:
      return {FailureCategory::kTimeout, name_of(ErrorCode::kWorkerStartTimeout),
              "the worker did not become ready in time and was killed; see its log"};
    case Cause::kHang:
      return {FailureCategory::kHang, name_of(ErrorCode::kWorkerTimeout),
              "the worker stopped answering health probes and was killed; see its log"};
    case Cause::kDeviceLost:
      return {FailureCategory::kCrash, name_of(ErrorCode::kGpuUnavailable),
              "the worker's device went into error, so the worker was killed; check the driver and the hardware"};
    case Cause::kWrongDigest:
      return {FailureCategory::kCrash, name_of(ErrorCode::kWorkerReset),
              "the worker told another digest than its model's files have, so it was killed; check the disk and the "
              "memory"};
    case Cause::kNone: break;
  }
  const ErrorCode fallback = was_starting ? ErrorCode::kWorkerStartFailed : ErrorCode::kWorkerReset;
  if (facts.host_oom_kill) {
    return {FailureCategory::kOom, name_of(fallback),
            fmt::format("host memory ran out and the kernel killed the worker; {}", how_it_ended(facts))};
  }
  const ErrorCode code = was_starting && facts.logged_code ? *facts.logged_code : fallback;
  const bool oom = facts.logged_code && is_memory_shortage(*facts.logged_code);
  return {
      oom ? FailureCategory::kOom : FailureCategory::kCrash, name_of(code),
      fmt::format("the worker {}: {} ({}); see its log", was_starting ? "did not start" : "was lost",
                  facts.logged_code ? base::info(*facts.logged_code).text : "no reason logged", how_it_ended(facts))};
}

std::optional<ErrorCode> logged_error_code(std::string_view log_tail) {
  std::optional<ErrorCode> found;
  while (!log_tail.empty()) {
    const std::string_view line = log_tail.substr(0, log_tail.find('\n'));
    log_tail.remove_prefix(std::min(line.size() + 1, log_tail.size()));
    constexpr std::string_view kKey = "\"code\":\"";
    const std::size_t at = line.find(kKey);
    if (at == std::string_view::npos || line.find("\"event\":\"error\"") == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + kKey.size());
    if (const auto code = base::error_code_from_name(rest.substr(0, rest.find('"')))) found = code;
  }
  return found;
}

}  // namespace llorch::pool_managerd::worker_lifecycle
