// One malformed plan per invariant: each must give its own code.
#include "engine/plan/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/plan/slots.h"

namespace llorch::engine::plan {
namespace {

using base::ErrorCode;

// embedding -> r0; attention(r0) -> r1; residual_add(r0, r1) -> r2; every part open to damage.
struct PlanDraft {
  struct Insn {
    Opcode opcode;
    std::vector<RegisterRef> inputs, outputs;
    std::vector<WeightRef> weights;
    std::uint16_t params;
    std::uint8_t state = kNoStateBlock;
  };
  EmbeddingParams embedding{kind_version(Opcode::kEmbedding), 10, 64, 1.0F};
  AttentionParams attention{};
  ResidualAddParams add{kind_version(Opcode::kResidualAdd), 64, 1.0F, 0};
  VisionSpatialMergeParams merge{};
  std::vector<ParamBlock> blocks;
  std::vector<Insn> insns;
  std::vector<WeightBinding> bindings;
  std::vector<RegisterSpec> specs{3, RegisterSpec{.width = 64}};
  std::vector<StateDescriptor> states{{.id = kKvStateId, .kind = StateKind::kKv, .size_bytes = 64}};
  std::vector<std::uint32_t> last_read{2, 2, kNeverRead};
  std::vector<std::vector<std::uint64_t>> kills{{0}, {0}, {7}};
  std::uint16_t peak = 3;

  PlanDraft() {
    attention.kind_version = kind_version(Opcode::kMultiheadAttention);
    attention.causal = 1;
    blocks = {{kParamBlockVersion, Opcode::kEmbedding, std::as_bytes(std::span(&embedding, 1))},
              {kParamBlockVersion, Opcode::kMultiheadAttention, std::as_bytes(std::span(&attention, 1))},
              {kParamBlockVersion, Opcode::kResidualAdd, std::as_bytes(std::span(&add, 1))}};
    std::vector<WeightRef> attention_weights(static_cast<std::size_t>(AttentionSlot::kCount));
    for (std::uint32_t s = 0; s < 4; ++s) attention_weights[s] = {s + 1};
    insns = {{Opcode::kEmbedding, {}, {reg(0)}, {{0}}, 0},
             {Opcode::kMultiheadAttention, {reg(0)}, {reg(1)}, attention_weights, 1, kKvStateId},
             {Opcode::kResidualAdd, {reg(0), reg(1)}, {reg(2)}, {}, 2}};
    for (std::uint32_t i = 0; i < 5; ++i) bindings.push_back({.index = i, .key = {}, .tensor = i});
  }
  PlanDraft(const PlanDraft&) = delete;

  base::Result<> check() {
    std::vector<Instruction> list;
    for (const Insn& insn : insns) {
      list.push_back({insn.opcode, insn.inputs, insn.outputs, insn.weights, insn.params, insn.state});
    }
    std::vector<std::span<const std::uint64_t>> rows(kills.begin(), kills.end());
    CompiledPlan plan;
    plan.plan = {list, static_cast<std::uint16_t>(last_read.size()), states};
    plan.liveness = {last_read, rows};
    plan.peak_registers = peak;
    plan.param_blocks = blocks;
    plan.weight_bindings = bindings;
    plan.register_specs = specs;
    return validate(plan);
  }
};

TEST(Validate, AcceptsTheSoundPlan) {
  PlanDraft draft;
  const auto result = draft.check();
  EXPECT_TRUE(result) << result.error().message;
}

struct Case {
  const char* name;
  ErrorCode code;
  std::function<void(PlanDraft&)> damage;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, HasItsOwnCode) {
  PlanDraft draft;
  GetParam().damage(draft);
  const auto result = draft.check();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, GetParam().code) << result.error().message;
  EXPECT_FALSE(result.error().message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Validate, Malformed,
    testing::Values(
        Case{"unknown_opcode", ErrorCode::kUnsupportedOpcode, [](PlanDraft& d) { d.insns[1].opcode = Opcode{200}; }},
        Case{"too_many_inputs", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.insns[1].inputs.push_back(reg(0)); }},
        Case{"no_output", ErrorCode::kInvalidInstructionBinding, [](PlanDraft& d) { d.insns[1].outputs.clear(); }},
        Case{"unread_instruction", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.insns[2].inputs[1] = reg(0); }},
        Case{"state_missing", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.insns[1].state = kNoStateBlock; }},
        Case{"state_needless", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.insns[2].state = kKvStateId; }},
        Case{"state_where_nothing_is_cached", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.attention.causal = 0; }},
        Case{"state_forgets_what_is_seen", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.states[0].window_tokens = 8, d.attention.window = 9; }},
        Case{"state_forgets_but_all_is_seen", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) { d.states[0].window_tokens = 8; }},
        Case{"register_out_of_range", ErrorCode::kInvalidRegisterRef,
             [](PlanDraft& d) { d.insns[2].inputs[0] = reg(9); }},
        Case{"register_never_written", ErrorCode::kInvalidRegisterRef,
             [](PlanDraft& d) { d.last_read.push_back(kNeverRead), d.specs.push_back(d.specs[0]); }},
        Case{"register_written_twice", ErrorCode::kRegisterRedefined,
             [](PlanDraft& d) { d.insns[2].outputs[0] = reg(1); }},
        Case{"register_read_too_early", ErrorCode::kRegisterReadBeforeWrite,
             [](PlanDraft& d) { d.insns[1].inputs[0] = reg(2); }},
        Case{"register_without_width", ErrorCode::kInvalidRegisterSpec, [](PlanDraft& d) { d.specs[1].width = 0; }},
        Case{"register_of_blocks", ErrorCode::kInvalidRegisterSpec,
             [](PlanDraft& d) { d.specs[1].dtype = DType::kQ8_0; }},
        Case{"register_spec_missing", ErrorCode::kInvalidRegisterSpec, [](PlanDraft& d) { d.specs.pop_back(); }},
        Case{"weight_count", ErrorCode::kInvalidWeightRefCount, [](PlanDraft& d) { d.insns[1].weights.pop_back(); }},
        Case{"weight_index", ErrorCode::kInvalidWeightRefIndex, [](PlanDraft& d) { d.insns[0].weights[0].index = 77; }},
        Case{"weight_list_shuffled", ErrorCode::kInvalidWeightRefIndex, [](PlanDraft& d) { d.bindings[0].index = 3; }},
        Case{"weight_required", ErrorCode::kMissingWeight, [](PlanDraft& d) { d.insns[1].weights[3] = {}; }},
        Case{"keys_of_a_cache_of_its_own", ErrorCode::kMissingWeight, [](PlanDraft& d) { d.insns[1].weights[1] = {}; }},
        Case{"params_missing", ErrorCode::kMissingParamBlock, [](PlanDraft& d) { d.insns[0].params = kNoParamBlock; }},
        Case{"params_unknown", ErrorCode::kUnknownParamBlockId, [](PlanDraft& d) { d.insns[0].params = 3; }},
        Case{"params_of_another", ErrorCode::kParamBlockOpcodeMismatch, [](PlanDraft& d) { d.insns[0].params = 2; }},
        Case{"params_version", ErrorCode::kInvalidParamBlockABI, [](PlanDraft& d) { d.blocks[0].version = 2; }},
        Case{"params_kind", ErrorCode::kInvalidParamBlockABI, [](PlanDraft& d) { d.embedding.kind_version = 5; }},
        Case{"params_size", ErrorCode::kInvalidParamBlockABI,
             [](PlanDraft& d) { d.blocks[0].data = d.blocks[0].data.first(8); }},
        Case{"params_empty", ErrorCode::kInvalidParamBlockABI, [](PlanDraft& d) { d.blocks[0].data = {}; }},
        Case{"state_unknown", ErrorCode::kUnknownStateDescriptorId, [](PlanDraft& d) { d.insns[1].state = 5; }},
        Case{"state_twice", ErrorCode::kDuplicateStateDescriptorId,
             [](PlanDraft& d) { d.states.push_back(d.states[0]); }},
        Case{"state_alignment", ErrorCode::kInvalidStateAlignment, [](PlanDraft& d) { d.states[0].align_bytes = 48; }},
        Case{"liveness_last_read", ErrorCode::kInvalidLiveness, [](PlanDraft& d) { d.last_read[0] = 1; }},
        Case{"liveness_rows", ErrorCode::kInvalidLiveness, [](PlanDraft& d) { d.kills.pop_back(); }},
        Case{"liveness_row_width", ErrorCode::kInvalidLiveness, [](PlanDraft& d) { d.kills[0].push_back(0); }},
        Case{"liveness_killed_early", ErrorCode::kInvalidLiveness,
             [](PlanDraft& d) { d.kills[1][0] = 1, d.kills[2][0] = 6; }},
        Case{"liveness_never_killed", ErrorCode::kInvalidLiveness, [](PlanDraft& d) { d.kills[2][0] = 3; }},
        Case{"state_of_an_instruction_without_outputs", ErrorCode::kInvalidInstructionBinding,
             [](PlanDraft& d) {
               d.merge.kind_version = kind_version(Opcode::kVisionSpatialMerge);
               d.blocks.push_back(
                   {kParamBlockVersion, Opcode::kVisionSpatialMerge, std::as_bytes(std::span(&d.merge, 1))});
               d.insns.push_back({Opcode::kVisionSpatialMerge,
                                  {reg(2)},
                                  {},
                                  std::vector<WeightRef>(static_cast<std::size_t>(SpatialMergeSlot::kCount), {0}),
                                  3});
             }},
        Case{"peak", ErrorCode::kInvalidPeakRegisters, [](PlanDraft& d) { d.peak = 2; }}),
    [](const testing::TestParamInfo<Case>& test) { return std::string(test.param.name); });

// Plans of which only what validate_vision_handoff() reads is real: two writers, two readers, one deepstack part.
struct HandoffDraft {
  VisionSpatialMergeParams merge{kind_version(Opcode::kVisionSpatialMerge), 8, 32, 2, 1e-6F, 2};
  VisionDeepstackExtractParams extract{kind_version(Opcode::kVisionDeepstackExtract), 8, 32, 2, 1e-6F, 2, 1, 5};
  VisionScatterParams replace{kind_version(Opcode::kVisionScatter), 32, {7, kNoRowId}, 2, 0, ScatterMode::kReplace, {}};
  VisionScatterParams add{kind_version(Opcode::kVisionScatter), 32, {7, kNoRowId}, 2, 1, ScatterMode::kAdd, {}};
  StateDescriptor written{.id = kVisionStateId,
                          .kind = StateKind::kVision,
                          .lifecycle = StateLifecycle::kRequestScoped,
                          .size_bytes = VisionStateLayout{4, 2, 32}.bytes()};
  StateDescriptor read = written;
  bool encodes = true, scatters = true, decode_scatters = false;

  base::Result<> check() {
    const auto block = [](const auto& p) {
      return ParamBlock{kParamBlockVersion, p.kOpcode, std::as_bytes(std::span(&p, 1))};
    };
    const auto plan = [](const std::vector<ParamBlock>& blocks, std::vector<Instruction>& list,
                         const StateDescriptor& state) {
      for (const ParamBlock& b : blocks)
        list.push_back({.opcode = b.opcode, .param_block_id = static_cast<std::uint16_t>(list.size())});
      CompiledPlan out;
      out.plan = {.instructions = list, .register_count = 0, .state_descs = {&state, 1}};
      out.param_blocks = blocks;
      return out;
    };
    const std::vector<ParamBlock> writers{block(extract), block(merge)}, readers{block(replace), block(add)}, none;
    std::vector<Instruction> encode, prefill, decode;
    ModelPlans plans;
    if (encodes) plans.vision_encode = plan(writers, encode, written);
    plans.decoder_prefill = plan(scatters ? readers : none, prefill, read);
    plans.decoder_decode = plan(decode_scatters ? readers : none, decode, read);
    return validate_vision_handoff(plans);
  }
};

TEST(VisionHandoff, AcceptsWhatFitsAndModelsWithoutImages) {
  HandoffDraft draft;
  const auto result = draft.check();
  EXPECT_TRUE(result) << result.error().message;
  draft.encodes = draft.scatters = false;
  EXPECT_TRUE(draft.check());
}

TEST(VisionHandoff, EveryMismatchIsRefused) {
  const std::function<void(HandoffDraft&)> damages[] = {
      [](HandoffDraft& d) { d.encodes = false; },
      [](HandoffDraft& d) { d.scatters = false; },
      [](HandoffDraft& d) { d.decode_scatters = true; },
      [](HandoffDraft& d) { d.replace.width = d.add.width = 16; },
      [](HandoffDraft& d) { d.add.width = 16; },
      [](HandoffDraft& d) { d.add.part = 0; },
      [](HandoffDraft& d) { d.add.part = 2; },
      [](HandoffDraft& d) { d.extract.part = 0; },
      [](HandoffDraft& d) { d.merge.parts = d.extract.parts = 3; },
      [](HandoffDraft& d) { d.read.size_bytes += 64; },
      [](HandoffDraft& d) { d.read.id = kKvStateId; },
      [](HandoffDraft& d) { d.written.lifecycle = d.read.lifecycle = StateLifecycle::kSlotPersistent; },
      [](HandoffDraft& d) { d.written.size_bytes = d.read.size_bytes = 64; },
  };
  for (const auto& damage : damages) {
    HandoffDraft draft;
    damage(draft);
    const auto result = draft.check();
    ASSERT_FALSE(result) << "damage " << &damage - damages;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidVisionStageHandoff);
  }
}

}  // namespace
}  // namespace llorch::engine::plan
