#include "engine/models/plan/compiler.h"

#include <fmt/format.h>

#include <vector>

#include "engine/contract/validate.h"
#include "engine/models/plan/liveness.h"
#include "engine/models/plan/opcode_map.h"
#include "engine/models/plan/plan_hash.h"
#include "engine/models/weights.h"

namespace llorch::engine::models {
namespace {

using namespace contract;
using base::ErrorCode;
using base::Result;

class Compiler {
 public:
  Compiler(const CompileInput& input, PlanArena& arena) : in_(input), config_(input.config), arena_(arena) {}

  Result<CompiledPlan> run() {
    for (const LayerOp& op : in_.family.before) TRY(emit(op, kNoLayer));
    for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
      for (const LayerOp& op : in_.family.layer) TRY(emit(op, static_cast<std::uint16_t>(layer)));
    }
    for (const LayerOp& op : in_.family.after) TRY(emit(op, kNoLayer));
    return finish();
  }

 private:
  // One instruction being made.
  struct Draft {
    LayerOp op;
    std::uint16_t layer;
    std::vector<WeightRef> weights;
    bool used_fallback = false;

    template <class Slot>
    bool has(Slot slot) const {
      return weights[static_cast<std::size_t>(slot)].present();
    }
  };

  Result<> emit(const LayerOp& op, std::uint16_t layer) {
    if (specs_.size() >= index(kInvalidRegister)) {
      return base::fail(ErrorCode::kInvalidRegisterRef,
                        fmt::format("a plan of {} layers has too many registers", config_.layers));
    }
    Draft draft{.op = op, .layer = layer, .weights = {}};
    bind_weights(draft);
    switch (op.type) {
      case OpType::kEmbedding: return push(draft, embedding_params(), config_.width);
      case OpType::kNorm: return push(draft, norm_params(draft), config_.width);
      case OpType::kAttention: return push(draft, attention_params(draft), config_.width);
      case OpType::kFfn: return push(draft, ffn_params(draft), config_.width);
      case OpType::kAdd: return push(draft, add_params(), config_.width);
      case OpType::kLmHead: return push(draft, head_params(draft), config_.vocab);
      default:
        return base::fail(ErrorCode::kUnsupportedOpcode,
                          fmt::format("the plan compiler has no rule for {}", opcode_name(opcode_of(op.type))));
    }
  }

  void bind_weights(Draft& draft) {
    const Opcode opcode = opcode_of(draft.op.type);
    const std::span<const SlotSpec> slots = *weight_slots(opcode);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const WeightKey key{draft.layer, opcode, static_cast<std::uint8_t>(s), draft.op.variant};
      const std::optional<ResolvedWeight> found = resolve_weight(in_.file, in_.family, key);
      draft.weights.emplace_back();
      if (!found) continue;
      draft.used_fallback = draft.used_fallback || found->fallback;
      draft.weights.back().index = static_cast<std::uint32_t>(bindings_.size());
      bindings_.push_back({.index = draft.weights.back().index, .key = key, .tensor = found->tensor});
    }
  }

  EmbeddingParams embedding_params() const {
    return {
        .kind_version = kind_version(Opcode::kEmbedding), .rows = config_.vocab, .width = config_.width, .scale = 1.0F};
  }

  RmsNormParams norm_params(const Draft& draft) const {
    RmsNormParams p{};
    p.kind_version = kind_version(Opcode::kRmsNorm);
    p.width = config_.width;
    p.eps = config_.norm_eps;
    p.layer = layer_number(draft);
    p.kind = NormKind::kRms;
    return p;
  }

  AttentionParams attention_params(const Draft& draft) {
    AttentionParams p{};
    p.kind_version = kind_version(Opcode::kMultiheadAttention);
    p.width = config_.width;
    p.heads = config_.heads;
    p.kv_heads = config_.kv_heads;
    p.d_qk = config_.d_qk;
    p.d_v = config_.d_v;
    p.rotary_dims = config_.rope.layout == RopeLayout::kNone ? 0 : config_.rope.dims;
    p.rope_table_id = config_.rope.layout == RopeLayout::kNone ? kNoRopeTable : 0;
    p.rope_table_long_id = kNoRopeTable;
    p.layer = layer_number(draft);
    p.kv_ordinal = kv_ordinal_++;
    p.scale = config_.attention_scale;
    p.kv_page_offset_bytes = kv_page_bytes_;
    p.rope_layout = config_.rope.layout;
    p.causal = 1;
    p.has_sinks = draft.has(AttentionSlot::kSinks);
    p.has_qkv_bias =
        draft.has(AttentionSlot::kQBias) || draft.has(AttentionSlot::kKBias) || draft.has(AttentionSlot::kVBias);
    p.has_o_bias = draft.has(AttentionSlot::kOBias);
    p.qk_norm = draft.has(AttentionSlot::kQNorm) ? QkNorm::kPerHead : QkNorm::kNone;
    p.kv_dtype = static_cast<std::uint8_t>(in_.kv_dtype);
    const KvLayout layout{in_.kv_dtype, p.kv_heads, p.d_qk, p.d_v};
    kv_page_bytes_ += layout.page_bytes();
    kv_bytes_per_token_ += layout.bytes_per_token();
    return p;
  }

  SwigluParams ffn_params(const Draft& draft) const {
    SwigluParams p{};
    p.kind_version = kind_version(Opcode::kSwiglu);
    p.width = config_.width;
    p.ffn = config_.ffn;
    p.act = config_.activation;
    p.gated = draft.has(FfnSlot::kGate);
    return p;
  }

  ResidualAddParams add_params() const {
    return {.kind_version = kind_version(Opcode::kResidualAdd), .width = config_.width, .scale = 1.0F, .padding = 0};
  }

  LmHeadParams head_params(const Draft& draft) {
    if (draft.used_fallback) note("the head is tied to the embedding table");
    return {.kind_version = kind_version(Opcode::kLmHead),
            .rows = config_.vocab,
            .width = config_.width,
            .logit_mul = 1.0F,
            .softcap = 0.0F,
            .tied = draft.used_fallback,
            .padding = {}};
  }

  static std::uint32_t layer_number(const Draft& draft) {
    return draft.layer == kNoLayer ? 0xFFFFFFFF : std::uint32_t{draft.layer};
  }

  void note(std::string_view message) { diagnostics_.push_back({PlanDiagnostic::Level::kInfo, arena_.copy(message)}); }

  template <ParamStruct P>
  Result<> push(const Draft& draft, const P& params, std::uint32_t output_width) {
    const Opcode opcode = opcode_of(draft.op.type);
    ParamBlock block{kParamBlockVersion, opcode, std::as_bytes(arena_.copy(std::span<const P>(&params, 1)))};
    TRY(check_shapes(draft, block));

    std::vector<RegisterRef> inputs;
    RegisterRef& in = draft.op.in == Stream::kResidual ? residual_ : branch_;
    if (opcode_info(opcode)->inputs == 2) inputs.push_back(residual_);
    if (opcode_info(opcode)->inputs >= 1) inputs.push_back(in);
    const RegisterRef out = reg(static_cast<std::uint16_t>(specs_.size()));
    const bool is_head = opcode == Opcode::kLmHead;
    specs_.push_back({.width = output_width, .rows = is_head ? RowDomain::kOutputRows : RowDomain::kBatchRows});
    (draft.op.out == Stream::kResidual ? residual_ : branch_) = out;

    instructions_.push_back({.opcode = opcode,
                             .inputs = arena_.copy(std::span<const RegisterRef>(inputs)),
                             .outputs = arena_.copy(std::span<const RegisterRef>(&out, 1)),
                             .weights = arena_.copy(std::span<const WeightRef>(draft.weights)),
                             .param_block_id = static_cast<std::uint16_t>(params_.size()),
                             .state_block_id = opcode_info(opcode)->needs_state ? kKvStateId : kNoStateBlock});
    params_.push_back(block);
    return {};
  }

  Result<> check_shapes(const Draft& draft, const ParamBlock& params) const {
    const std::span<const SlotSpec> slots = *weight_slots(params.opcode);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (!draft.weights[s].present()) continue;
      const io::GgufTensor& tensor = in_.file.tensors()[bindings_[draft.weights[s].index].tensor];
      std::string expected;
      bool same = tensor.rank == slots[s].rank;
      for (std::uint8_t d = slots[s].rank; d-- > 0;) {  // files list the contiguous dimension first
        const std::optional<std::uint32_t> value = dim_value(slots[s].dims[d], params);
        same = same && (!value || tensor.dims[slots[s].rank - 1U - d] == *value);
        expected += (expected.empty() ? "" : ", ") + (value ? fmt::to_string(*value) : std::string("any"));
      }
      if (same) continue;
      return base::fail(ErrorCode::kWeightShapeMismatch,
                        fmt::format("{} has shape [{}]; the configuration says [{}]", tensor.name,
                                    fmt::join(tensor.dims.begin(), tensor.dims.begin() + tensor.rank, ", "), expected));
    }
    return {};
  }

  Result<CompiledPlan> finish() {
    std::vector<StateDescriptor> states;
    if (kv_ordinal_ != 0) {
      if (kv_bytes_per_token_ > 0xFFFFFFFF) {
        return base::fail(ErrorCode::kConfigKeyInvalid,
                          "the cache of one position exceeds 4 GiB; the head sizes are impossible");
      }
      states.push_back({.id = kKvStateId,
                        .kind = StateKind::kKv,
                        .lifecycle = StateLifecycle::kSlotPersistent,
                        .zero_init = false,
                        .forkable = true,
                        .align_bytes = 64,
                        .bytes_per_token = static_cast<std::uint32_t>(kv_bytes_per_token_),
                        .size_bytes = kv_page_bytes_});
    }
    CompiledPlan plan;
    plan.plan = {.instructions = arena_.copy(std::span<const Instruction>(instructions_)),
                 .register_count = static_cast<std::uint16_t>(specs_.size()),
                 .state_descs = arena_.copy(std::span<const StateDescriptor>(states))};
    const Liveness liveness = compute_liveness(plan.plan.instructions, plan.plan.register_count, arena_);
    plan.liveness = liveness.map;
    plan.peak_registers = liveness.peak_registers;
    plan.diagnostics = arena_.copy(std::span<const PlanDiagnostic>(diagnostics_));
    plan.param_blocks = arena_.copy(std::span<const ParamBlock>(params_));
    plan.weight_bindings = arena_.copy(std::span<const WeightBinding>(bindings_));
    plan.register_specs = arena_.copy(std::span<const RegisterSpec>(specs_));
    plan.plan_hash = hash_plan(plan, in_.mode);
    TRY(validate(plan));
    return plan;
  }

  const CompileInput& in_;
  const ModelConfig& config_;
  PlanArena& arena_;
  RegisterRef residual_ = kInvalidRegister;
  RegisterRef branch_ = kInvalidRegister;
  std::uint32_t kv_ordinal_ = 0;
  std::uint64_t kv_page_bytes_ = 0;
  std::uint64_t kv_bytes_per_token_ = 0;
  std::vector<Instruction> instructions_;
  std::vector<ParamBlock> params_;
  std::vector<WeightBinding> bindings_;
  std::vector<RegisterSpec> specs_;
  std::vector<PlanDiagnostic> diagnostics_;
};

}  // namespace

Result<CompiledPlan> compile_plan(const CompileInput& input, PlanArena& arena) { return Compiler(input, arena).run(); }

}  // namespace llorch::engine::models
