#include "orchestratord/core/placement/requirements.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::core::placement {
namespace {

wire::ModelFacts facts() {
  return {.digest = "sha256:a",
          .quant_kind = "Q8_0",
          .context_length = 4096,
          .images = wire::ModelImages{.tokens_max = 3000}};
}
constexpr WorkerPolicy kPolicy{.context_tokens = {}, .image_tokens_max = 2048, .kv_dtype = "f16"};

// OC-CORE-1014: from what the model's file says and how this server runs it; what is not known stays absent.
// OC-CORE-1015: the context is what a user can have, so the smaller of the model's and the server's.
TEST(Requirements, ComeFromTheModelAndThePolicy) {
  const auto model = facts();
  const auto r = requirements_of(model, kPolicy);
  EXPECT_EQ(r.digest, "sha256:a");
  EXPECT_EQ(r.context_tokens, 4096);
  EXPECT_EQ(r.quant, "Q8_0");
  EXPECT_EQ(r.image_tokens, 2048);
  WorkerPolicy smaller = kPolicy;
  smaller.context_tokens = 1000;
  EXPECT_EQ(requirements_of(model, smaller).context_tokens, 1000);
  smaller.context_tokens = 9000;
  EXPECT_EQ(requirements_of(model, smaller).context_tokens, 4096);
  const wire::ModelFacts terse{.digest = "sha256:b"};
  const auto unknown = requirements_of(terse, kPolicy);
  EXPECT_FALSE(unknown.context_tokens);
  EXPECT_FALSE(unknown.quant);
  EXPECT_EQ(unknown.image_tokens, 0);
}

// OC-CORE-1016: feasible only when the model is the same, the context long enough and every extension there.
TEST(Requirements, DecideWhatIsFeasible) {
  const auto model = facts();
  const auto r = requirements_of(model, kPolicy);
  const wire::WorkerInfo good{
      .model_digest = "sha256:a", .context_length = 4096, .image_tokens_max = 2048, .kv_dtype = "f16"};
  EXPECT_EQ(unmet(r, good), Unmet::kNone);
  auto w = good;
  w.model_digest = "sha256:b";
  EXPECT_EQ(reason(unmet(r, w)), "MODEL_MISMATCH");
  w = good;
  w.context_length = 4095;
  EXPECT_EQ(reason(unmet(r, w)), "INSUFFICIENT_CTX");
  w = good;
  w.image_tokens_max = 2047;
  EXPECT_EQ(reason(unmet(r, w)), "EXTENSIONS_UNSATISFIED");
  w = good;
  w.kv_dtype = "f32";
  EXPECT_EQ(reason(unmet(r, w)), "EXTENSIONS_UNSATISFIED");
  w.context_length = 100;
  EXPECT_EQ(unmet(r, w), Unmet::kContext);
  auto text_only = facts();
  text_only.images.reset();
  w = good;
  w.image_tokens_max = 0;
  EXPECT_EQ(unmet(requirements_of(text_only, kPolicy), w), Unmet::kNone);
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
