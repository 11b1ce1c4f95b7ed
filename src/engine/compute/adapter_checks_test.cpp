#include "engine/compute/adapter_checks.h"

#include <gtest/gtest.h>

#include "engine/compute/cpu/backend.h"

namespace llorch::engine::compute {
namespace {

using namespace plan;

// Of an instruction without weights, on a device with small kernels.
template <ParamStruct P>
std::string refusal(P params) {
  params.kind_version = kind_version(P::kOpcode);
  const auto backend = cpu::make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1U << 20, .isa = ""}).value();
  const ParamBlock block{kParamBlockVersion, P::kOpcode, std::as_bytes(std::span(&params, 1))};
  const std::size_t slots = weight_slots(P::kOpcode)->size();
  const std::vector<TensorHandle> weights(slots);
  const std::vector<TensorViewDesc> views(slots);
  const Instruction insn{.opcode = P::kOpcode};
  const auto checked = check_instruction(
      {.backend = *backend, .insn = insn, .params = block, .weights = weights, .views = views, .limits = {}},
      {.device = "test",
       .positions_max = 1,
       .conv_taps_max = 1,
       .stack_max = 8,
       .experts_max = 16,
       .experts_used_max = 4,
       .expert_groups_max = 2});
  return checked ? "" : checked.error().message;
}

TEST(AdapterChecks, AStackHasAsManyMatricesAsAGridAtMost) {
  MlaAttentionParams latent{};
  latent.kv_dtype = static_cast<std::uint8_t>(DType::kF16);
  latent.heads = 9;
  EXPECT_NE(refusal(latent).find("more than 8 heads"), std::string::npos) << refusal(latent);
  latent.heads = 8;
  EXPECT_EQ(refusal(latent).find("heads"), std::string::npos) << refusal(latent);
  CompressedAttentionParams compressed{};
  compressed.kv_dtype = static_cast<std::uint8_t>(DType::kF16);
  compressed.rope_layout = RopeLayout::kHalf;
  compressed.heads = compressed.groups = 9;
  EXPECT_NE(refusal(compressed).find("more than 8 groups"), std::string::npos) << refusal(compressed);
  compressed.heads = compressed.groups = 8;
  EXPECT_EQ(refusal(compressed).find("groups"), std::string::npos) << refusal(compressed);
}

// Kernels hold so many scores, choices and groups of a row in arrays of their own.
TEST(AdapterChecks, ExpertsAreAsManyAsTheKernelsHoldAtMost) {
  const auto refused = [](std::uint32_t experts, std::uint32_t used, std::uint32_t groups) {
    MoeParams p{};
    p.experts = experts, p.experts_used = used, p.groups = groups, p.groups_used = groups;
    p.gate = MoeGate::kSoftmax, p.group_score = GroupScore::kMax;
    return refusal(p).find("more than 16 experts, 4 choices of a row or 2 groups") != std::string::npos;
  };
  EXPECT_FALSE(refused(16, 4, 2));
  EXPECT_TRUE(refused(18, 4, 2));
  EXPECT_TRUE(refused(16, 5, 2));
  EXPECT_TRUE(refused(16, 4, 4));
}

}  // namespace
}  // namespace llorch::engine::compute
