#include "engine/sampling/params.h"

#include <gtest/gtest.h>

#include <limits>

namespace llorch::engine::sampling {
namespace {

constexpr std::size_t kVocab = 100;

// M0-W-1302: both ends of each parameter's range are allowed.
TEST(SamplingParams, RangesAreClosed) {
  EXPECT_TRUE(validate({}, kVocab).has_value());
  const SamplingParams high{.temperature = 2,
                            .top_k = 100,
                            .top_p = 1,
                            .min_p = 1,
                            .repetition_penalty = 2,
                            .frequency_penalty = 2,
                            .presence_penalty = 2,
                            .dry_multiplier = 10,
                            .dry_base = 4,
                            .dynatemp_range = 2,
                            .dynatemp_exponent = 10,
                            .top_n_sigma = 100,
                            .typical_p = 1,
                            .xtc_probability = 1,
                            .xtc_threshold = 0.5f,
                            .min_keep = 1000,
                            .mirostat = 2,
                            .mirostat_tau = 20,
                            .mirostat_eta = 1,
                            .logit_bias = {{TokenId{99}, 100.0f}}};
  EXPECT_TRUE(validate(high, kVocab).has_value());
  const SamplingParams low{.temperature = 0,
                           .top_p = 0,
                           .min_p = 0,
                           .repetition_penalty = 0,
                           .frequency_penalty = -2,
                           .presence_penalty = -2,
                           .dry_base = 1,
                           .dry_allowed_length = 1,
                           .dynatemp_exponent = 0,
                           .typical_p = 0,
                           .xtc_threshold = 0,
                           .mirostat_tau = 0,
                           .mirostat_eta = 0,
                           .logit_bias = {{TokenId{0}, -100.0f}}};
  EXPECT_TRUE(validate(low, kVocab).has_value());
}

TEST(SamplingParams, ErrorsNameTheField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [&](const SamplingParams& params, std::string_view field) {
    const auto result = validate(params, kVocab);
    return !result && result.error().code == base::ErrorCode::kInvalidParams &&
           result.error().message.starts_with(field);
  };
  EXPECT_TRUE(refused({.temperature = 2.001f}, "temperature"));
  EXPECT_TRUE(refused({.temperature = -0.1f}, "temperature"));
  EXPECT_TRUE(refused({.temperature = nan}, "temperature"));
  EXPECT_TRUE(refused({.top_k = 101}, "top_k"));
  EXPECT_TRUE(refused({.top_p = 1.001f}, "top_p"));
  EXPECT_TRUE(refused({.top_p = nan}, "top_p"));
  EXPECT_TRUE(refused({.min_p = -1}, "min_p"));
  EXPECT_TRUE(refused({.repetition_penalty = 2.5f}, "repetition_penalty"));
  EXPECT_TRUE(refused({.frequency_penalty = -2.1f}, "frequency_penalty"));
  EXPECT_TRUE(refused({.presence_penalty = nan}, "presence_penalty"));
  EXPECT_TRUE(refused({.dry_multiplier = -1}, "dry_multiplier"));
  EXPECT_TRUE(refused({.dry_base = 0.5f}, "dry_base"));
  EXPECT_TRUE(refused({.dry_allowed_length = 0}, "dry_allowed_length"));
  EXPECT_TRUE(refused({.dynatemp_range = 3}, "dynatemp_range"));
  EXPECT_TRUE(refused({.dynatemp_exponent = -1}, "dynatemp_exponent"));
  EXPECT_TRUE(refused({.top_n_sigma = -1}, "top_n_sigma"));
  EXPECT_TRUE(refused({.typical_p = 1.5f}, "typical_p"));
  EXPECT_TRUE(refused({.xtc_probability = 1.5f}, "xtc_probability"));
  EXPECT_TRUE(refused({.xtc_threshold = 0.6f}, "xtc_threshold"));
  EXPECT_TRUE(refused({.min_keep = 0}, "min_keep"));
  EXPECT_TRUE(refused({.mirostat = 3}, "mirostat"));
  EXPECT_TRUE(refused({.mirostat_tau = -1}, "mirostat_tau"));
  EXPECT_TRUE(refused({.mirostat_eta = 2}, "mirostat_eta"));
  EXPECT_TRUE(refused({.logit_bias = {{TokenId{100}, 1.0f}}}, "logit_bias"));
  EXPECT_TRUE(refused({.logit_bias = {{TokenId{1}, 100.5f}}}, "logit_bias"));
  EXPECT_TRUE(refused({.logit_bias = {{TokenId{1}, nan}}}, "logit_bias"));
}

}  // namespace
}  // namespace llorch::engine::sampling
