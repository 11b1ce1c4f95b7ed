#pragma once
// How long a request, and a job, may ever be.
#include <cstdint>

namespace llorch::wire {

// The highest that limits.request_bytes_max may be set to. Fields that may be most of a request have no lower bound of their own.
inline constexpr double kRequestBytesMax = 1e9;
// Of one job, the inputs of embeddings and scores together.
inline constexpr std::int64_t kPromptTokensMax = 4 << 20;

}  // namespace llorch::wire
