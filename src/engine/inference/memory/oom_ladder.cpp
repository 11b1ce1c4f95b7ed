#include "engine/inference/memory/oom_ladder.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference::memory {
namespace {

// Half of `value`, but no less than `floor`; `value` itself without a floor.
template <class T>
T halved(T value, T floor) {
  return floor == 0 ? value : std::max(floor, value / 2);
}

std::uint64_t kv_tokens_of(const LoadShape& shape) {
  return shape.kv_tokens != 0 ? shape.kv_tokens : std::uint64_t{shape.slots} * shape.context_tokens;
}

}  // namespace

std::optional<LadderStep> next_step(const LoadShape& shape, const LoadFloors& floors) {
  LadderStep step{.shape = shape, .action = {}};
  LoadShape& next = step.shape;
  const auto changed = [&](const char* name, std::uint64_t from, std::uint64_t to) {
    step.action = fmt::format("{} {} -> {}", name, from, to);
    return from != to;
  };
  const std::uint64_t cache = kv_tokens_of(shape);
  const std::uint64_t least =
      std::max<std::uint64_t>(floors.kv_tokens, shape.context_tokens);  // one must be able to run
  if (floors.kv_tokens != 0 && cache > least) {
    next.kv_tokens = halved(cache, least);
    next.kv_tokens_max = 0;  // a device that is full has nothing to grow into
    if (changed("kv_tokens", cache, next.kv_tokens)) return step;
  }
  next.prefill_chunk = halved(shape.prefill_chunk, floors.prefill_chunk);
  if (changed("prefill_chunk", shape.prefill_chunk, next.prefill_chunk)) return step;
  next.slots = halved(shape.slots, floors.slots);
  if (changed("slots", shape.slots, next.slots)) return step;
  next.context_tokens = halved(shape.context_tokens, floors.context_tokens);
  if (changed("context_tokens", shape.context_tokens, next.context_tokens)) return step;
  return std::nullopt;
}

OomRecord record_of(const base::Error& error, std::string stage, std::string action) {
  OomRecord record{.stage = std::move(stage), .purpose = "all", .action = std::move(action)};
  for (const auto& [key, value] : error.details) {
    if (const auto* word = std::get_if<std::string>(&value)) {
      if (key == "purpose") record.purpose = *word;
      continue;
    }
    const auto number = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
    if (key == "required_bytes") record.requested_bytes = number;
    if (key == "free_bytes") record.free_bytes = number;
  }
  return record;
}

}  // namespace llorch::engine::inference::memory
