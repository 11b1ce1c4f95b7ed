#pragma once
// The parameters of one request's sampling. What each does, in which order and by which formula: docs/internals/sampling.md.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace llorch::engine::sampling {

using base::TokenId;

// Names the exact arithmetic; in every receipt. Change it with any change that can change a draw of existing parameters.
inline constexpr std::string_view kSamplerVersion = "s1";

inline constexpr std::uint32_t kTopLogprobsMax = 20;

// Where temperature stands: before the cuts, or after them as the last step before the draw.
enum class SamplerOrder : std::uint8_t { kTemperatureFirst = 0, kTemperatureLast = 1 };
// Whose tokens a penalty counts.
enum class PenaltyScope : std::uint8_t { kAll = 0, kOutput = 1 };

struct LogitBias {
  TokenId token{};
  float bias = 0;
};

// The defaults change nothing but the draw at temperature 1. Ranges: validate().
struct SamplingParams {
  float temperature = 1.0f;         // 0..2; 0 takes the largest logit
  std::uint32_t top_k = 0;          // 0..vocab; 0 is off
  float top_p = 1.0f;               // 0..1; 1 is off
  float min_p = 0.0f;               // 0..1; 0 is off
  float repetition_penalty = 1.0f;  // 0..2; 1 is off
  float frequency_penalty = 0.0f;   // -2..2; 0 is off
  float presence_penalty = 0.0f;    // -2..2; 0 is off
  PenaltyScope repetition_scope = PenaltyScope::kAll;
  PenaltyScope frequency_scope = PenaltyScope::kOutput;  // of the frequency and the presence penalty
  std::uint32_t penalty_last_n = 0;                      // newest tokens the three penalties look at; 0 is all

  float dry_multiplier = 0.0f;           // 0..10; 0 is off
  float dry_base = 1.75f;                // 1..4
  std::uint32_t dry_allowed_length = 2;  // 1..
  std::uint32_t dry_last_n = 0;          // newest tokens DRY looks at; 0 is all

  float dynatemp_range = 0.0f;     // 0..2; 0 is off
  float dynatemp_exponent = 1.0f;  // 0..10
  float top_n_sigma = 0.0f;        // 0..100; 0 is off
  float typical_p = 1.0f;          // 0..1; 1 is off
  float xtc_probability = 0.0f;    // 0..1; 0 is off
  float xtc_threshold = 0.1f;      // 0..0.5
  std::uint32_t min_keep = 1;      // 1..; no cut leaves fewer candidates

  std::uint32_t mirostat = 0;  // 0 is off, 1 or 2: replaces the cuts
  float mirostat_tau = 5.0f;   // 0..20 bits
  float mirostat_eta = 0.1f;   // 0..1
  SamplerOrder order = SamplerOrder::kTemperatureFirst;

  std::vector<LogitBias> logit_bias;  // each -100..100; added in this order
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;  // index of the choice when one request asks for several
};

// INVALID_PARAMS with the field and its range.
base::Result<> validate(const SamplingParams& params, std::size_t vocab_size);

}  // namespace llorch::engine::sampling
