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

std::string_view name(CancelReason reason) {
  switch (reason) {
    case CancelReason::kClientRequest: return "client_request";
    case CancelReason::kDisconnect: return "disconnect";
    case CancelReason::kTimeout: return "timeout";
    case CancelReason::kAdmin: return "admin";
  }
  return "admin";
}

}  // namespace llorch::orchestratord::core::jobs
