#pragma once
// How long a request, a job and what is told of each token may ever be.
#include <cstdint>

namespace llorch::wire {

// The highest that limits.request_bytes_max may be set to. Fields that may be most of a request have no lower bound of their own.
inline constexpr double kRequestBytesMax = 1e9;
// Of one job.
inline constexpr std::int64_t kPromptTokensMax = 4 << 20;
// Of one job's inputs of embeddings or scores together: what is queued lies in memory.
inline constexpr std::int64_t kInputTokensMax = 1 << 20;
// Of one output. Other systems' APIs take more, and have it lowered.
inline constexpr std::int64_t kOutputTokensMax = 1'000'000;
inline constexpr double kOutputTokensAskedMax = 9e15;
// Alternatives that are listed with one token, at most.
inline constexpr std::int64_t kTopLogprobsMax = 20;

}  // namespace llorch::wire
