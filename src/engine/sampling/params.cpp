#include "engine/sampling/params.h"

#include <fmt/format.h>

namespace llorch::engine::sampling {
namespace {

struct Range {
  std::string_view field;
  float value, low, high;
};

}  // namespace

base::Result<> validate(const SamplingParams& p, std::size_t vocab_size) {
  const Range ranges[] = {
      {"temperature", p.temperature, 0, 2},
      {"top_p", p.top_p, 0, 1},
      {"min_p", p.min_p, 0, 1},
      {"repetition_penalty", p.repetition_penalty, 0, 2},
      {"frequency_penalty", p.frequency_penalty, -2, 2},
      {"presence_penalty", p.presence_penalty, -2, 2},
      {"dry_multiplier", p.dry_multiplier, 0, 10},
      {"dry_base", p.dry_base, 1, 4},
      {"dynatemp_range", p.dynatemp_range, 0, 2},
      {"dynatemp_exponent", p.dynatemp_exponent, 0, 10},
      {"top_n_sigma", p.top_n_sigma, 0, 100},
      {"typical_p", p.typical_p, 0, 1},
      {"xtc_probability", p.xtc_probability, 0, 1},
      {"xtc_threshold", p.xtc_threshold, 0, 0.5f},
      {"mirostat_tau", p.mirostat_tau, 0, 20},
      {"mirostat_eta", p.mirostat_eta, 0, 1},
  };
  for (const Range& r : ranges) {
    if (r.value >= r.low && r.value <= r.high) continue;  // false for NaN
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} is {}, the range is {}..{}", r.field, r.value, r.low, r.high));
  }
  if (p.top_k > vocab_size) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("top_k is {}, the range is 0..{} (the vocabulary)", p.top_k, vocab_size));
  }
  const auto refuse_zero = [](std::string_view field) {
    return base::fail(base::ErrorCode::kInvalidParams, fmt::format("{} is 0, it must be at least 1", field));
  };
  if (p.min_keep == 0) return refuse_zero("min_keep");
  if (p.dry_allowed_length == 0) return refuse_zero("dry_allowed_length");
  if (p.mirostat > 2) {
    return base::fail(base::ErrorCode::kInvalidParams, fmt::format("mirostat is {}, it is 0, 1 or 2", p.mirostat));
  }
  for (const LogitBias& b : p.logit_bias) {
    if (index(b.token) >= vocab_size || !(b.bias >= -100.0f && b.bias <= 100.0f)) {
      return base::fail(
          base::ErrorCode::kInvalidParams,
          fmt::format("logit_bias takes ids below {} (the vocabulary) and values of -100..100", vocab_size));
    }
  }
  return {};
}

}  // namespace llorch::engine::sampling
