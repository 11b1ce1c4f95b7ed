#pragma once
// How the KV cache is cut into pages.
#include <cstdint>

namespace llorch::engine::plan {

// Positions per cache page. Position p of a slot lives in row p % 64 of the slot's page p / 64, whatever was cached when and
// in which chunks: the order in which keys are visited never depends on how they arrived.
inline constexpr std::uint32_t kPageTokens = 64;

constexpr std::uint64_t pages_of(std::uint64_t tokens_count) { return (tokens_count + kPageTokens - 1) / kPageTokens; }

}  // namespace llorch::engine::plan
