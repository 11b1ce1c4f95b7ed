// The engine on the CPU device against float64 references of the same stored weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden_support.h"

namespace llorch::golden {
namespace {

using engine::contract::DType;

float max_abs(std::span<const float> values) {
  float largest = 0;
  for (float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// max |difference| over max |reference|
double relative_error(std::span<const float> got, std::span<const float> expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, std::fabs(double{got[i]} - expected[i]));
  return largest / max_abs(expected);
}

std::size_t argmax(std::span<const float> row) { return static_cast<std::size_t>(std::ranges::max_element(row) - row.begin()); }

double log_sum_exp(std::span<const float> row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (float value : row) sum += std::exp(value - top);
  return top + std::log(sum);
}

// KL(reference || ours), nats.
double divergence(std::span<const float> got, std::span<const float> expected) {
  const double z_got = log_sum_exp(got);
  const double z_expected = log_sum_exp(expected);
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double log_p = expected[i] - z_expected;
    sum += std::exp(log_p) * (log_p - (got[i] - z_got));
  }
  return sum;
}

struct Agreement {
  double same_argmax = 0;  // share of steps
  double mean_kl = 0;
};

Agreement compare(std::span<const float> got, const Golden& golden) {
  Agreement agreement;
  const auto steps = static_cast<double>(golden.tokens.size());
  for (std::size_t i = 0; i < golden.tokens.size(); ++i) {
    const std::span<const float> row = got.subspan(i * golden.vocab, golden.vocab);
    agreement.same_argmax += (argmax(row) == argmax(golden.row(i)) ? 1 : 0) / steps;
    agreement.mean_kl += divergence(row, golden.row(i)) / steps;
  }
  return agreement;
}

// Float weights: everything is f32, so what is left is rounding (the references' own f32 twins differ by 4e-7).
class FloatWeights : public testing::TestWithParam<const char*> {};

TEST_P(FloatWeights, AgreeToRoundingWithAnF32Cache) {
  const Golden golden = read_golden(repository() / "tests/golden/demo" / (std::string(GetParam()) + "-f16.bin"));
  const auto logits = logits_of(demo_model("f16"), golden.tokens, {.kv_dtype = DType::kF32});
  const double error = relative_error(logits, golden.logits);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 5e-5) << GetParam();
}

// F16 keeps 11 bits, so k and v move by up to 2^-12 relative each.
TEST_P(FloatWeights, AgreeToTheCacheTypeWithAnF16Cache) {
  const Golden golden = read_golden(repository() / "tests/golden/demo" / (std::string(GetParam()) + "-f16.bin"));
  const auto logits = logits_of(demo_model("f16"), golden.tokens, {.kv_dtype = DType::kF16});
  const double error = relative_error(logits, golden.logits);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 2e-3) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Demo, FloatWeights, testing::Values("tale", "random", "one"));

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, AgreesToRounding) {
  const auto folder = repository() / "tests/golden" / GetParam();
  const Golden golden = read_golden(folder / "golden.bin");
  const auto logits = logits_of(folder / "model.gguf", golden.tokens, {.kv_dtype = DType::kF32});
  const double error = relative_error(logits, golden.logits);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, Family, testing::Values("llama3", "llama_tied"));

class Quantised : public testing::TestWithParam<const char*> {};

TEST_P(Quantised, LosesOnlyWhatInt8ActivationsCost) {
  double steps = 0;
  double same = 0;
  double kl = 0;
  for (const char* name : {"tale", "random", "one"}) {
    const Golden golden = read_golden(repository() / "tests/golden/demo" / (std::string(name) + "-" + GetParam() + ".bin"));
    const auto logits = logits_of(demo_model(GetParam()), golden.tokens, {.kv_dtype = DType::kF32});
    const Agreement agreement = compare(logits, golden);
    printf("%s-%s: same argmax %.4f, mean KL %.3g, relative error %.3g\n", name, GetParam(), agreement.same_argmax,
           agreement.mean_kl, relative_error(logits, golden.logits));
    const auto count = static_cast<double>(golden.tokens.size());
    steps += count;
    same += agreement.same_argmax * count;
    kl += agreement.mean_kl * count;
  }
  EXPECT_GE(same / steps, 0.97);
  EXPECT_LE(kl / steps, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Demo, Quantised, testing::Values("q8_0", "q4_0"));

}  // namespace
}  // namespace llorch::golden
