// The engine on the CPU device against float64 references of the same stored weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "engine/io/gguf.h"
#include "golden_support.h"

namespace llorch::golden {
namespace {

using engine::plan::DType;

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

// Float weights: everything is f32, so what is left is rounding (the references' own f32 runs differ by 4e-7).
class FloatWeights : public testing::TestWithParam<const char*> {};

TEST_P(FloatWeights, AgreeToRoundingWithAnF32Cache) {
  const Golden golden = read_golden(repository() / "tests/golden/demo" / (std::string(GetParam()) + "-f16.bin"));
  const auto logits = logits_of(demo_model("f16"), golden.tokens, {.kv_dtype = DType::kF32});
  const double error = relative_error(logits, golden.logits);
  RecordProperty("relative_error", fmt::format("{:.3g}", error));
  EXPECT_LE(error, 5e-5) << GetParam();
}

// F16 keeps 11 bits, so k and v move by up to 2^-12 relative each.
TEST_P(FloatWeights, AgreeToTheCacheTypeWithAnF16Cache) {
  const Golden golden = read_golden(repository() / "tests/golden/demo" / (std::string(GetParam()) + "-f16.bin"));
  const auto logits = logits_of(demo_model("f16"), golden.tokens, {.kv_dtype = DType::kF16});
  const double error = relative_error(logits, golden.logits);
  RecordProperty("relative_error", fmt::format("{:.3g}", error));
  EXPECT_LE(error, 2e-3) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Demo, FloatWeights, testing::Values("tale", "random", "one"));

// Expected KL of one step from int8 activations alone; docs/internals/numerics.md derives it.
double expected_divergence(std::span<const float> expected, double layers) {
  constexpr double kAmaxSquared = 5.71;  // of 32 standard normals
  constexpr double kNoise = kAmaxSquared / (127.0 * 127.0 * 12.0);
  const double z = log_sum_exp(expected);
  double sum = 0, squares = 0, collision = 0;
  for (float logit : expected) {
    sum += logit;
    squares += double{logit} * logit;
    collision += std::exp(2 * (logit - z));
  }
  const auto n = static_cast<double>(expected.size());
  const double variance = squares / n - (sum / n) * (sum / n);
  return 0.5 * kNoise * (1 + 2.5 / (2 * layers)) * variance * (1 - collision);
}

class Quantized : public testing::TestWithParam<const char*> {};

TEST_P(Quantized, LosesOnlyWhatInt8ActivationsCost) {
  constexpr double kLayers = 6;
  double steps = 0, same = 0, kl = 0, expected = 0;
  for (const char* name : {"tale", "random", "one"}) {
    const std::string file = fmt::format("{}-{}.bin", name, GetParam());
    const Golden golden = read_golden(repository() / "tests/golden/demo" / file);
    const auto logits = logits_of(demo_model(GetParam()), golden.tokens, {.kv_dtype = DType::kF32});
    for (std::size_t i = 0; i < golden.tokens.size(); ++i) {
      const std::span<const float> row = std::span(logits).subspan(i * golden.vocab, golden.vocab);
      same += argmax(row) == argmax(golden.row(i)) ? 1 : 0;
      kl += divergence(row, golden.row(i));
      expected += expected_divergence(golden.row(i), kLayers);
      steps += 1;
    }
  }
  RecordProperty("same_argmax", fmt::format("{:.4f}", same / steps));
  RecordProperty("mean_kl", fmt::format("{:.3g}", kl / steps));
  RecordProperty("expected_kl", fmt::format("{:.3g}", expected / steps));
  EXPECT_GE(same / steps, 0.97);
  EXPECT_LE(kl, 1.25 * expected);  // real activations have heavier tails than normal ones
  EXPECT_LE(kl / steps, 2e-4);
}

// Its logits were computed from these bits of the weights. When the quantizer is meant to give others: make the logits again
// (demo/make_logits.py), then record the hash.
TEST(DemoModel, TheQ4TwinIsTheOneTheReferenceIsOf) {
  const auto file = engine::io::GgufFile::open(demo_model("q4_0"));
  ASSERT_TRUE(file) << file.error().message;
  base::Sha256 hash;
  for (const auto& tensor : file->tensors()) hash.update(tensor.name).update(tensor.data.read_all().value());
  EXPECT_EQ(base::to_hex(hash.digest()), "6247faa420c1db36848711740995a50475710056f62b72e494b56bb771e09208");
}

INSTANTIATE_TEST_SUITE_P(Demo, Quantized, testing::Values("q8_0", "q4_0"));

}  // namespace
}  // namespace llorch::golden
