// The layer that predicts a further token on the CUDA backend: near to the reference, and nothing to the model.
#include <gtest/gtest.h>

#include "cuda_support.h"
#include "engine/compute/cuda/backend.h"

namespace llorch::cuda_test {
namespace {

using base::TokenId;
using engine::inference::Engine;
using engine::inference::ForeseenRow;
using engine::inference::RowsWanted;
using engine::inference::SlotRows;
using golden::Format;

struct Case {
  const char* family;
  Format format;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.family; }

class Predictor : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Engine> load(engine::plan::Backend& backend, bool predicts) const {
    auto engine = Engine::load(*golden::family_model(GetParam().family, GetParam().format),
                               {.context_tokens = 128,
                                .slots = 2,
                                .kv_dtype = engine::plan::DType::kF32,
                                .prefill_chunk = 64,
                                .proposal_rows_max = 4,
                                .predicts = predicts},
                               backend);
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }
};

// Activations meet the weights with eleven bits, as everywhere there.
TEST_P(Predictor, AgreesToTheActivationsAndChangesNoBit) {
  const golden::Golden model = golden::read_golden(golden::family_directory(GetParam().family) / "golden.bin");
  const golden::Golden reference = golden::read_golden(golden::family_directory(GetParam().family) / "predictor.bin");
  const auto one = engine::compute::cuda::emulation::make_backend({});
  const auto other = engine::compute::cuda::emulation::make_backend({});
  const auto with = load(*one, true), without = load(*other, false);
  EXPECT_EQ(with->memory_plan().total_bytes(), one->memory_used_bytes());
  std::vector<float> foreseen;
  for (std::uint32_t i = 0; i < model.tokens.size(); ++i) {
    const auto expected = without->decode(1, model.tokens[i]);
    const auto logits = with->decode(1, model.tokens[i]);
    ASSERT_TRUE(expected && logits);
    ASSERT_TRUE(golden::same_bits(*logits, *expected)) << "after token " << i;
    if (i + 1 == model.tokens.size()) break;
    const ForeseenRow row{.slot = 1, .position = i + 1, .token = model.tokens[i + 1]};
    ASSERT_TRUE(with->can_foresee(1, row.position));
    const auto output = with->foresee({&row, 1});
    ASSERT_TRUE(output) << output.error().message;
    foreseen.insert(foreseen.end(), output->row(0).begin(), output->row(0).end());
  }
  const double error = golden::relative_error(foreseen, reference.logits);
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 2e-3);
  EXPECT_TRUE(one->check_residency());

  // All at once, in another slot: the same bits of the layer too.
  const auto tokens = std::span<const TokenId>(model.tokens).first(40);
  const SlotRows rows{.slot = 0, .tokens = tokens.first(39), .wanted = RowsWanted::kNone};
  ASSERT_TRUE(with->step({&rows, 1}));
  const ForeseenRow row{.slot = 0, .position = 39, .token = tokens.back()};
  const auto output = with->foresee({&row, 1});
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_TRUE(golden::same_bits(output->row(0), std::span(foreseen).subspan(38 * reference.vocab, reference.vocab)));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Predictor,
    testing::Values(Case{"qwen3_5_predicts", Format::kGguf}, Case{"qwen3_5_predicts", Format::kHuggingFace},
                    Case{"mimo_v2_predicts", Format::kHuggingFace}, Case{"deepseek_v3_predicts", Format::kHuggingFace},
                    Case{"deepseek_v32_predicts", Format::kHuggingFace}),
    [](const auto& test) {
      return std::string(test.param.family) + (test.param.format == Format::kGguf ? "_gguf" : "_hf");
    });

}  // namespace
}  // namespace llorch::cuda_test
