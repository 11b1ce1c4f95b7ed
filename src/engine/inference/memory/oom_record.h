#pragma once
#include <cstdint>
#include <string>

namespace llorch::engine::inference::memory {

// An allocation that failed, and what was done about it: one entry of a report's `errors`, of kind "oom".
struct OomRecord {
  static constexpr const char* kKind = "oom";
  std::string stage;    // "load" or "run"
  std::string purpose;  // what the memory was for
  std::uint64_t requested_bytes = 0;
  std::uint64_t free_bytes = 0;  // of the device's budget, then
  std::string action;            // "prefill_chunk 512 -> 256", "refused"
};

}  // namespace llorch::engine::inference::memory
