#include "orchestratord/core/jobs/job.h"

#include <array>

namespace llorch::orchestratord::core::jobs {
namespace {

using wire::JobStatus;

constexpr std::size_t kStatusCount = 6;
// Row: from, column: to, in the order of the enumerators.
constexpr std::array<std::array<bool, kStatusCount>, kStatusCount> kLegal{{
    // queued dispatched running completed failed cancelled
    {false, true, false, false, true, true},     // queued
    {true, false, true, true, true, true},       // dispatched; a short job may end before its `started` is heard
    {true, false, false, true, true, true},      // running
    {false, false, false, false, false, false},  // completed
    {false, false, false, false, false, false},  // failed
    {false, false, false, false, false, false},  // cancelled
}};

}  // namespace

bool is_legal(JobStatus from, JobStatus to) {
  return kLegal[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

double on_time_probability(std::int64_t tokens_left, double ms_per_token, std::int64_t left_ms) {
  const double needed_ms = static_cast<double>(tokens_left) * ms_per_token;
  if (needed_ms <= 0) return left_ms >= 0 ? 1 : 0;
  return std::clamp(static_cast<double>(left_ms) / needed_ms, 0.0, 1.0);
}

std::string_view name(CancelReason reason) {
  switch (reason) {
    case CancelReason::kClientRequest: return "client_request";
    case CancelReason::kDisconnect: return "disconnect";
    case CancelReason::kTimeout: return "timeout";
    case CancelReason::kAdmin: return "admin";
    case CancelReason::kStreamMemory: return "stream_memory";
  }
  return "admin";
}

}  // namespace llorch::orchestratord::core::jobs
