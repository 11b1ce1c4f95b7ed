#pragma once
// What to give up, and in which order, when a model does not fit its device. Pure.
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/inference/memory/oom_record.h"

namespace llorch::engine::inference::memory {

// What of a load can be made smaller. Fields as in EngineOptions.
struct LoadShape {
  std::uint32_t context_tokens = 0;  // resolved
  std::uint32_t slots = 0;
  std::uint32_t prefill_chunk = 0;
  std::uint64_t kv_tokens = 0;      // 0 = slots x context
  std::uint64_t kv_tokens_max = 0;  // 0 = kv_tokens
  bool operator==(const LoadShape&) const = default;
};

// The least each may become. 0: what was asked for, so nothing is given up.
struct LoadFloors {
  std::uint32_t context_tokens = 0;
  std::uint32_t slots = 0;
  std::uint32_t prefill_chunk = 0;
  std::uint64_t kv_tokens = 0;
};

struct LadderStep {
  LoadShape shape;
  std::string action;  // "prefill_chunk 512 -> 256"
};

// The next smaller shape: first room of the cache that serves company and prefixes only, then the batch (rows of a step,
// then slots), then the sequence. Each is halved, down to its floor. None: every floor is reached.
// REQUIRES: no field of `shape` is below its floor.
std::optional<LadderStep> next_step(const LoadShape& shape, const LoadFloors& floors);

// What a failed allocation says of itself. `error` is an OUT_OF_DEVICE_MEMORY of a backend or of check_fits().
OomRecord record_of(const base::Error& error, std::string stage, std::string action);

}  // namespace llorch::engine::inference::memory
