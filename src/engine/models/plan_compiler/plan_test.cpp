#include <gtest/gtest.h>

#include "engine/models/model.h"
#include "engine/models/plan_compiler/liveness.h"
#include "engine/models/plan_compiler/physical.h"
#include "engine/models/testing/tiny_llama.h"

namespace llorch::engine::models {
namespace {

using namespace plan;
using testing::TinyLlama;

AdapterCapabilities in_place_add() {
  AdapterCapabilities capabilities;
  capabilities[static_cast<std::size_t>(Opcode::kResidualAdd)].may_alias_output = true;
  return capabilities;
}

CompiledModel compile(const std::vector<std::byte>& bytes, DType kv_dtype = DType::kF16) {
  const auto files = io::ModelFiles::from_gguf(io::GgufFile::parse(bytes).value());
  EXPECT_TRUE(files);
  auto model = compile_model(*files, kv_dtype);
  EXPECT_TRUE(model) << model.error().message;
  model->tensors.clear();
  return *std::move(model);
}

TEST(Compiler, UnrollsTheWholeModel) {
  const CompiledModel model = compile(TinyLlama{.layers = 5}.bytes());
  const CompiledPlan& plan = model.plans.decoder_prefill;
  EXPECT_EQ(plan.plan.instructions.size(), 6U * 5 + 3);
  EXPECT_EQ(plan.plan.register_count, plan.plan.instructions.size());  // SSA, one output each
  EXPECT_EQ(plan.plan.instructions.front().opcode, Opcode::kEmbedding);
  EXPECT_EQ(plan.plan.instructions.back().opcode, Opcode::kLmHead);
  EXPECT_EQ(plan.peak_registers, 3);
}

TEST(Compiler, SameInputSameHash) {
  const TinyLlama tiny;
  const CompiledModel a = compile(tiny.bytes());
  const CompiledModel b = compile(tiny.bytes());
  EXPECT_EQ(a.plans.decoder_prefill.plan_hash, b.plans.decoder_prefill.plan_hash);
  EXPECT_EQ(a.plans.decoder_decode.plan_hash, b.plans.decoder_decode.plan_hash);
  EXPECT_NE(a.plans.decoder_prefill.plan_hash, a.plans.decoder_decode.plan_hash);
}

TEST(Compiler, AnyDifferenceChangesTheHash) {
  const Hash128 base_hash = compile(TinyLlama{}.bytes()).plans.decoder_prefill.plan_hash;
  EXPECT_NE(base_hash, compile(TinyLlama{.layers = 3}.bytes()).plans.decoder_prefill.plan_hash);
  EXPECT_NE(base_hash, compile(TinyLlama{.biases = true}.bytes()).plans.decoder_prefill.plan_hash);
  EXPECT_NE(base_hash, compile(TinyLlama{}.bytes(), DType::kF32).plans.decoder_prefill.plan_hash);
  TinyLlama eps;
  eps.overrides["llama.attention.layer_norm_rms_epsilon"] = 1e-6F;
  EXPECT_NE(base_hash, compile(eps.bytes()).plans.decoder_prefill.plan_hash);
}

TEST(Compiler, CachePagesHoldAllLayers) {
  const CompiledModel model = compile(TinyLlama{.layers = 3}.bytes(), DType::kF32);
  const StateDescriptor& kv = model.plans.decoder_decode.plan.state_descs[0];
  const KvLayout layout{DType::kF32, 2, 16, 16};
  EXPECT_EQ(kv.size_bytes, 3 * layout.page_bytes());
  EXPECT_EQ(kv.bytes_per_token, 3 * layout.bytes_per_token());
  std::uint32_t ordinal = 0;
  for (const ParamBlock& block : model.plans.decoder_decode.param_blocks) {
    if (block.opcode != Opcode::kMultiheadAttention) continue;
    const auto& params = param_as<AttentionParams>(block);
    EXPECT_EQ(params.kv_ordinal, ordinal);
    EXPECT_EQ(params.kv_page_offset_bytes, ordinal * layout.page_bytes());
    ++ordinal;
  }
  EXPECT_EQ(ordinal, 3U);
}

TEST(Liveness, UnreadRegistersDieAtTheirProducer) {
  PlanArena arena;
  const std::vector<RegisterRef> r0{reg(0)}, r1{reg(1)}, r2{reg(2)};
  const std::vector<Instruction> insns{{.opcode = Opcode::kEmbedding, .outputs = r0},
                                       {.opcode = Opcode::kRmsNorm, .inputs = r0, .outputs = r1},
                                       {.opcode = Opcode::kRmsNorm, .inputs = r0, .outputs = r2}};
  const Liveness liveness = compute_liveness(insns, 3, arena);
  EXPECT_EQ(liveness.peak_registers, 2);
  EXPECT_EQ(liveness.map.register_last_read[0], 2U);
  EXPECT_EQ(liveness.map.register_last_read[1], kNeverRead);
  EXPECT_EQ(liveness.map.kill_after_instruction[0][0], 0U);
  EXPECT_EQ(liveness.map.kill_after_instruction[1][0], 2U);
  EXPECT_EQ(liveness.map.kill_after_instruction[2][0], 5U);
}

// Residual, normed and branch are all the activation buffers that a text model needs, at any depth.
TEST(Physical, ThreeActivationBuffersAndTheLogits) {
  for (std::uint32_t layers : {1U, 2U, 17U}) {
    CompiledModel model = compile(TinyLlama{.layers = layers}.bytes());
    const StepLimits limits{.rows_max = 8, .output_rows_max = 2, .slots_max = 1, .context_tokens_max = 64};
    const PhysicalMapping mapping = map_registers(model.plans.decoder_prefill, in_place_add(), limits, *model.arena);
    ASSERT_EQ(mapping.physical_count, 4) << layers;
    for (int b = 0; b < 3; ++b) {
      EXPECT_EQ(mapping.physical_specs[b].rows, RowDomain::kBatchRows);
      EXPECT_EQ(mapping.physical_specs[b].size_bytes, 8U * 64 * 4);
    }
    EXPECT_EQ(mapping.physical_specs[3].rows, RowDomain::kOutputRows);
    EXPECT_EQ(mapping.physical_specs[3].size_bytes, 2U * 40 * 4);
  }
}

// Replays the plan on the buffers: every value must still be there when it is read.
TEST(Physical, NoBufferIsOverwrittenBeforeItsLastRead) {
  for (const bool in_place : {false, true}) {
    CompiledModel model = compile(TinyLlama{.layers = 4}.bytes());
    const CompiledPlan& plan = model.plans.decoder_decode;
    const StepLimits limits{.rows_max = 8, .output_rows_max = 2, .slots_max = 1, .context_tokens_max = 64};
    const AdapterCapabilities capabilities = in_place ? in_place_add() : AdapterCapabilities{};
    const PhysicalMapping mapping = map_registers(plan, capabilities, limits, *model.arena);
    std::vector<RegisterRef> holds(mapping.physical_count, kInvalidRegister);
    for (const Instruction& insn : plan.plan.instructions) {
      for (RegisterRef in : insn.inputs) EXPECT_EQ(holds[mapping.register_to_physical[index(in)]], in);
      for (RegisterRef out : insn.outputs) {
        const std::uint16_t buffer = mapping.register_to_physical[index(out)];
        for (std::size_t i = 0; i < insn.inputs.size(); ++i) {
          const bool aliases = mapping.register_to_physical[index(insn.inputs[i])] == buffer;
          EXPECT_FALSE(aliases && !(in_place && insn.opcode == Opcode::kResidualAdd && i == 0));
        }
        holds[buffer] = out;
      }
    }
  }
}

}  // namespace
}  // namespace llorch::engine::models
