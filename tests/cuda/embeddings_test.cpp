// Models of embeddings on the emulated CUDA device: against the float64 references, and each alone against all together.
#include <gtest/gtest.h>

#include "cuda_support.h"
#include "engine/compute/cuda/backend.h"

namespace llorch::cuda_test {
namespace {

using engine::inference::RowsWanted;
using engine::inference::SlotRows;

class Embeddings : public testing::TestWithParam<const char*> {};

// As families_test.cpp, weights are BF16 and activations meet them with eleven bits.
TEST_P(Embeddings, AgreeToTheActivationsAloneAndTogether) {
  const Model model{.name = GetParam(),
                    .path = golden::embeddings_directory(GetParam()),
                    .projector = {},
                    .family = {},
                    .reference = {},
                    .pixels = {}};
  const std::vector<golden::Embedded> inputs = golden::read_vectors(model.path / "vectors.bin");
  const auto slots = static_cast<std::uint32_t>(inputs.size());
  const auto backend = engine::compute::cuda::emulation::make_backend({});
  const auto engine = load(model, {.chunk = 128, .context_tokens = 128, .slots = slots}, *backend);
  std::vector<std::vector<float>> alone;
  for (const golden::Embedded& input : inputs) {
    ASSERT_TRUE(engine->reset(0));
    const auto vector = engine->prefill(0, input.tokens).value();
    alone.emplace_back(vector.begin(), vector.end());
    EXPECT_LE(golden::relative_error(alone.back(), input.vector), 2e-3) << input.tokens.size() << " tokens";
  }
  // As many of them as a step has rows for.
  std::vector<SlotRows> requests;
  std::size_t rows = 0;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    ASSERT_TRUE(engine->reset(slot));
    rows += inputs[slot].tokens.size();
    if (rows <= engine->facts().rows_max) requests.push_back({slot, inputs[slot].tokens, RowsWanted::kLast});
  }
  ASSERT_GT(requests.size(), 3U);
  const auto together = engine->step(requests).value();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(golden::same_bits(together.row(i), alone[i])) << "input " << i;
}

INSTANTIATE_TEST_SUITE_P(Cuda, Embeddings,
                         testing::Values("qwen3_last", "qwen3_mean", "bert_mean", "bert_cls", "nomic_mean",
                                         "embeddinggemma", "embeddinggemma_wide", "bert_rank"),
                         [](const testing::TestParamInfo<const char*>& test) { return std::string(test.param); });

}  // namespace
}  // namespace llorch::cuda_test
