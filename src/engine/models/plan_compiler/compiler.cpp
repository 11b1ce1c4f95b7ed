#include "engine/models/plan_compiler/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/models/plan_compiler/liveness.h"
#include "engine/models/plan_compiler/opcode_map.h"
#include "engine/models/plan_compiler/params.h"
#include "engine/models/plan_compiler/plan_hash.h"
#include "engine/plan/validate.h"

namespace llorch::engine::models {
namespace {

using namespace plan;
using base::ErrorCode;
using base::Result;

class Compiler {
 public:
  Compiler(const CompileInput& input, TensorTable& tensors, PlanArena& arena)
      : in_(input), config_(input.config), tensors_(tensors), arena_(arena) {}

  Result<CompiledPlan> run() {
    if (in_.mode == ExecutionMode::kVisionEncode) {
      TRY(emit_tower());
    } else {
      TRY(in_.mode == ExecutionMode::kPredict ? emit_predictor() : emit_decoder());
    }
    return finish();
  }

 private:
  // One instruction being made.
  struct Draft {
    LayerOp op;
    std::uint16_t layer;
    std::vector<std::optional<FoundWeight>> found;  // by slot
    SlotsPresent present = 0;
  };

  // The cache of some of the layers, page by page.
  struct Cache {
    std::uint32_t layers_count = 0;
    std::uint32_t window_tokens = 0;  // the largest of its layers; 0 = none
    std::uint64_t page_bytes = 0;
    std::uint64_t bytes_per_token = 0;

    // Where the layer's part of a page begins.
    std::uint64_t add(const KvLayout& layout) { return add(layout.page_bytes(), layout.bytes_per_token()); }
    std::uint64_t add(std::uint64_t bytes, std::uint64_t token_bytes) {
      ++layers_count;
      bytes_per_token += token_bytes;
      return std::exchange(page_bytes, page_bytes + bytes);
    }
  };

  Result<> emit_decoder() {
    const Family& family = in_.names.family();
    for (const LayerOp& op : family.before) TRY(emit(op, kNoLayer));
    TRY(emit_scatter(0));
    for (std::size_t layer = 0; layer < config_.layers.size(); ++layer) {
      for (const LayerOp& op : family.layer_templates[config_.layers[layer].layer_template])
        TRY(emit(op, static_cast<std::uint16_t>(layer)));
      TRY(emit_scatter(static_cast<std::uint32_t>(layer) + 1));
    }
    for (const LayerOp& op : family.after) TRY(emit(is_replaced(op) ? pool() : op, kNoLayer));
    for (const DenseConfig& layer : config_.dense) TRY(emit(dense(layer.number), kNoLayer));
    return {};
  }

  // One layer between the model's embedding table and its head.
  Result<> emit_predictor() {
    cache_ = {.layers_count = in_.shared_pages.layers_count,
              .page_bytes = in_.shared_pages.page_bytes,
              .bytes_per_token = in_.shared_pages.bytes_per_token};
    TRY(emit(embedding(), kNoLayer));
    TRY(emit(predictor_input(), kNoLayer));
    for (const LayerOp& op : in_.names.family().layer_templates[config_.layers[0].layer_template]) TRY(emit(op, 0));
    TRY(emit(norm(NormVariant::kPredictor), kNoLayer));
    return emit(lm_head(), kNoLayer);
  }

  // A model of embeddings has no use for a head, whether its files hold one or not.
  bool is_replaced(const LayerOp& op) const { return op.type == OpType::kLmHead && config_.pooling != Pooling::kNone; }

  // Images only ever come with prefill.
  Result<> emit_scatter(std::uint32_t part) {
    const VisionConfig& vision = config_.vision;
    if (in_.mode != ExecutionMode::kPrefill || vision.depth == 0 || part >= vision.parts()) return {};
    return push({.op = vision_scatter(), .layer = kNoLayer, .found = {}}, scatter_params(vision, part), config_.width);
  }

  Result<> emit_tower() {
    const Tower& tower = *in_.names.family().tower;
    for (const LayerOp& op : tower.before) TRY(emit(op, kNoLayer));
    for (std::uint32_t layer = 0; layer < config_.vision.depth; ++layer) {
      for (const LayerOp& op : tower.block) TRY(emit(op, static_cast<std::uint16_t>(layer)));
      for (std::uint32_t i = 0; i < config_.vision.extractions.size(); ++i) {
        if (config_.vision.extractions[i].layer == layer) TRY(emit_extraction(i));
      }
    }
    for (const LayerOp& op : tower.after) TRY(emit(op, kNoLayer));
    return {};
  }

  Result<> emit_extraction(std::uint32_t extraction) {
    const VisionConfig& vision = config_.vision;
    Draft draft{.op = deepstack_extract(),
                .layer = static_cast<std::uint16_t>(vision.extractions[extraction].number),
                .found = {}};
    find_weights(draft);
    return push(draft, deepstack_extract_params(vision, extraction), 0);
  }

  Result<> emit(const LayerOp& op, std::uint16_t layer) {
    if (specs_.size() >= index(kInvalidRegister)) {
      return base::fail(ErrorCode::kInvalidRegisterRef,
                        fmt::format("a plan of {} layers has too many registers", config_.layers.size()));
    }
    Draft draft{.op = op, .layer = layer, .found = {}};
    find_weights(draft);
    const std::uint32_t width = config_.width;
    switch (op.type) {
      case OpType::kEmbedding: return push(draft, embedding_params(config_), width);
      case OpType::kNorm: return push(draft, norm_params(config_, layer), width);
      case OpType::kAttention: return push_attention(draft);
      case OpType::kMlaAttention: return push(draft, mla_params(config_, layer), width);
      case OpType::kFfn: return push(draft, ffn_params(config_, layer, draft.present), width);
      case OpType::kMoe: return push(draft, moe_params(config_, layer, draft.present), width);
      case OpType::kMambaMixer: return push(draft, mamba_params(config_, layer), width);
      case OpType::kGatedDelta: return push(draft, gated_delta_params(config_, layer), width);
      case OpType::kShortconv: return push(draft, shortconv_params(config_, layer), width);
      case OpType::kAdd: return push(draft, add_params(config_, layer, op.variant == kScaledVariant), width);
      case OpType::kLightningIndex: {
        const LightningIndexParams params = lightning_index_params(config_, layer);
        return push(draft, params, params.words);
      }
      case OpType::kHyperCollapse: return push(draft, hyper_collapse_params(config_, op.variant, is_spread()), width);
      case OpType::kHyperAdd: return push(draft, hyper_add_params(config_, is_spread()), config_.hyper.streams * width);
      case OpType::kCompressor: {
        const CompressorParams params = compressor_params(config_, layer);
        return push(draft, params, params.d_head + params.d_index);
      }
      case OpType::kCompressedAttention: return push(draft, compressed_attention_params(config_, layer), width);
      case OpType::kLayerInput: return push(draft, layer_input_params(config_, layer), width);
      case OpType::kPredictorInput: return push(draft, predictor_input_params(config_), width);
      case OpType::kLmHead: return emit_head(draft);
      case OpType::kPool: return push(draft, pool_params(config_), width);
      case OpType::kPositionEmbedding: return push(draft, position_embedding_params(config_), width);
      case OpType::kDense: return push_dense(draft);
      case OpType::kVisionPatchEmbed: return push(draft, patch_embed_params(config_.vision), width);
      case OpType::kVisionSpatialMerge: return push(draft, spatial_merge_params(config_.vision), 0);
      default:
        return base::fail(ErrorCode::kUnsupportedOpcode,
                          fmt::format("the plan compiler has no rule for {}", opcode_name(opcode_of(op.type))));
    }
  }

  // Lists of a file may say of any layer that it has no heads, as those that do not attend do.
  Result<> push_attention(const Draft& draft) {
    const LayerConfig& layer = config_.layers[draft.layer];
    if (layer.heads == 0 || layer.kv_heads == 0) {
      return base::fail(ErrorCode::kConfigKeyInvalid,
                        fmt::format("layer {} attends with {} heads and {} key-value heads; it needs both", draft.layer,
                                    layer.heads, layer.kv_heads));
    }
    return push(draft, attention_params(config_, draft.layer, draft.present), config_.width);
  }

  Result<> push_dense(const Draft& draft) {
    const DenseParams params = dense_params(config_, draft.op.variant);
    return push(draft, params, params.rows);
  }

  static WeightKey key_of(const Draft& draft, std::size_t slot) {
    return {draft.layer, opcode_of(draft.op.type), static_cast<std::uint8_t>(slot), draft.op.variant};
  }

  void find_weights(Draft& draft) const {
    const std::size_t slots = weight_slots(opcode_of(draft.op.type))->size();
    for (std::size_t s = 0; s < slots; ++s) {
      const WeightKey key = key_of(draft, s);
      draft.found.push_back(is_of_another_cache(config_, key) ? std::nullopt : in_.names.find(key));
      if (draft.found.back()) draft.present |= 1U << s;
    }
  }

  // A model without a head of its own reads its logits off the embedding table. Where the configuration ties them and a file
  // has one nevertheless, the file is believed, as transformers 5 does: copies of the table give the same bits.
  Result<> emit_head(Draft& draft) {
    const bool stored = draft.found[0].has_value();
    if (stored && config_.head_tied)
      note("the file's head is used, though the configuration ties it to the embeddings");
    if (!stored) {
      note("the head is tied to the embedding table");
      draft.found[0] = in_.names.find({.opcode = Opcode::kEmbedding});
    }
    return push(draft, head_params(config_, !stored), 0);
  }

  // Each gives a layer its part of the slot's state, if it has one.
  template <ParamStruct P>
  P placed(P p) {
    return p;
  }
  AttentionParams placed(AttentionParams p) {
    if (p.causal == 0) return p;  // caches nothing
    Cache& cache = is_windowed(p.window) ? window_cache_ : cache_;
    p.kv_dtype = static_cast<std::uint8_t>(in_.kv_dtype);
    if (p.shares_cache != 0) {
      const AttentionParams& owner = cached_.at(config_.layers[p.layer].cache_of);
      p.kv_ordinal = owner.kv_ordinal;
      p.kv_page_offset_bytes = owner.kv_page_offset_bytes;
      return p;
    }
    cache.window_tokens = is_windowed(p.window) ? std::max(cache.window_tokens, p.window) : 0;
    p.kv_ordinal = cache.layers_count;
    p.kv_page_offset_bytes = cache.add({in_.kv_dtype, p.kv_heads, p.d_qk, p.d_v});
    cached_.emplace(p.layer, p);
    return p;
  }
  MlaAttentionParams placed(MlaAttentionParams p) {
    p.kv_dtype = static_cast<std::uint8_t>(in_.kv_dtype);
    p.kv_ordinal = cache_.layers_count;
    p.kv_page_offset_bytes = cache_.add({in_.kv_dtype, 1, p.kv_lora + p.d_rope, 0});
    return p;
  }
  LightningIndexParams placed(LightningIndexParams p) {
    p.kv_dtype = static_cast<std::uint8_t>(in_.kv_dtype);
    p.kv_ordinal = cache_.layers_count;
    p.kv_page_offset_bytes = cache_.add({in_.kv_dtype, 1, p.d_index, 0});
    return p;
  }
  CompressorParams placed(CompressorParams p) {
    p.state_offset_bytes = compressor_bytes_;
    compressor_bytes_ +=
        CompressorStateLayout{.d_head = p.d_head, .d_index = p.d_index, .overlaps = p.overlaps != 0}.bytes();
    return p;
  }
  // Entries are in the page of their window's last position, so rows of such layers are kept as long as entries are.
  CompressedAttentionParams placed(CompressedAttentionParams p) {
    Cache& cache = p.rate == 0 && is_windowed(p.window) ? window_cache_ : cache_;
    if (p.rate == 0 && is_windowed(p.window)) cache.window_tokens = std::max(cache.window_tokens, p.window);
    p.kv_dtype = static_cast<std::uint8_t>(in_.kv_dtype);
    p.kv_ordinal = cache.layers_count;
    const CompressedKvLayout layout{.dtype = in_.kv_dtype, .d_head = p.d_head, .d_index = p.d_index, .rate = p.rate};
    p.kv_page_offset_bytes = cache.add(layout.page_bytes(), layout.bytes_per_token());
    return p;
  }
  MambaMixerParams placed(MambaMixerParams p) {
    p.state_offset_bytes = ssm_bytes_;
    ssm_bytes_ += MambaStateLayout{.conv_rows = p.d_inner + 2 * p.groups * p.d_state,
                                   .d_conv = p.d_conv,
                                   .heads = p.heads,
                                   .d_head = p.d_head,
                                   .d_state = p.d_state}
                      .bytes();
    return p;
  }
  GatedDeltaParams placed(GatedDeltaParams p) {
    p.state_offset_bytes = delta_bytes_;
    delta_bytes_ += GatedDeltaStateLayout{.conv_rows = 2 * p.key_heads * p.d_k + p.value_heads * p.d_v,
                                          .d_conv = p.d_conv,
                                          .value_heads = p.value_heads,
                                          .d_k = p.d_k,
                                          .d_v = p.d_v}
                        .bytes();
    return p;
  }
  ShortconvParams placed(ShortconvParams p) {
    p.state_offset_bytes = conv_bytes_;
    conv_bytes_ += shortconv_state_bytes(p.width, p.l_cache);
    return p;
  }
  // Whether all residual streams still are the embeddings.
  bool is_spread() const { return specs_[index(residual_)].width == config_.width; }
  // A window that no position falls out of is none, and the layer that predicts keeps its rows in the model's pages in any case.
  bool is_windowed(std::uint32_t window) const {
    return window != 0 && window < config_.context_tokens && in_.mode != ExecutionMode::kPredict;
  }
  std::uint8_t state_of(const Draft& draft) const {
    switch (opcode_of(draft.op.type)) {
      case Opcode::kMultiheadAttention:
        if (!config_.attention.causal) return kNoStateBlock;
        return is_windowed(config_.layers[draft.layer].window) ? kWindowKvStateId : kKvStateId;
      case Opcode::kMlaAttention:
      case Opcode::kLightningIndex: return kKvStateId;
      case Opcode::kVisionSpatialMerge:
      case Opcode::kVisionDeepstackExtract:
      case Opcode::kVisionScatter: return kVisionStateId;
      case Opcode::kShortconv: return kConvStateId;
      case Opcode::kMambaMixer: return kSsmStateId;
      case Opcode::kGatedDelta: return kDeltaStateId;
      case Opcode::kCompressor: return kCompressorStateId;
      case Opcode::kCompressedAttention: {
        const LayerConfig& l = config_.layers[draft.layer];
        return l.rate == 0 && is_windowed(l.window) ? kWindowKvStateId : kKvStateId;
      }
      default: return kNoStateBlock;
    }
  }

  void note(std::string_view message) { diagnostics_.push_back({PlanDiagnostic::Level::kInfo, arena_.copy(message)}); }

  // Of the columns that a feed-forward sums over, in whichever of its matrices they are in the largest blocks.
  Result<std::uint32_t> block_of(const Draft& draft, const ParamBlock& whole) {
    std::uint32_t block = 1;
    if (in_.shard.ranks == 1) return block;
    for (std::size_t s = 0; s < draft.found.size(); ++s) {
      if (!draft.found[s] || !is_summed_over(whole.opcode, static_cast<std::uint8_t>(s))) continue;
      block = std::max(block, TRY(tensors_.block_of(in_.names, *draft.found[s], key_of(draft, s), whole)));
    }
    return block;
  }

  Result<std::vector<WeightRef>> bind(const Draft& draft, const ParamBlock& whole, const ParamBlock& own,
                                      std::uint32_t block) {
    std::vector<WeightRef> refs(draft.found.size());
    for (std::size_t s = 0; s < refs.size(); ++s) {
      if (!draft.found[s]) continue;
      const WeightKey key = key_of(draft, s);
      const TensorShare share = share_of(key.slot, whole, own, in_.shard, block);
      const std::uint32_t tensor = TRY(tensors_.add(in_.names, *draft.found[s], key, whole, share));
      refs[s].index = static_cast<std::uint32_t>(bindings_.size());
      bindings_.push_back({.index = refs[s].index, .key = key, .tensor = tensor});
    }
    return refs;
  }

  RegisterRef& stream(Stream which) {
    switch (which) {
      case Stream::kResidual: return residual_;
      case Stream::kBranch: return branch_;
      case Stream::kSide: return side_;
      case Stream::kEmbedded: break;
    }
    return embedded_;
  }

  // Beyond the inputs of the opcode.
  template <ParamStruct P>
  static bool reads_side(const P& params) {
    if constexpr (std::is_same_v<P, MlaAttentionParams>) return params.index_words != 0;
    if constexpr (std::is_same_v<P, CompressedAttentionParams>) return params.rate != 0;
    if constexpr (std::is_same_v<P, MoeParams>) return params.router_apart != 0;
    return false;
  }

  template <ParamStruct P>
  Result<> push(const Draft& draft, const P& params, std::uint32_t output_width) {
    const Opcode opcode = opcode_of(draft.op.type);
    const ParamBlock whole{kParamBlockVersion, opcode, std::as_bytes(std::span<const P>(&params, 1))};
    P own = params;
    const std::uint32_t stored_block = TRY(block_of(draft, whole));
    const bool partial_sum = TRY(share_out(own, in_.shard, stored_block));
    own = placed(own);
    const ParamBlock block{kParamBlockVersion, opcode, std::as_bytes(arena_.copy(std::span<const P>(&own, 1)))};
    const std::vector<WeightRef> weights = TRY(bind(draft, whole, block, stored_block));

    std::vector<RegisterRef> inputs;
    const RegisterRef in = stream(draft.op.in);
    if (opcode_info(opcode)->inputs == 2)
      inputs.push_back(opcode == Opcode::kLayerInput ? residual_ : stream(draft.op.out));
    if (opcode_info(opcode)->inputs >= 1) inputs.push_back(in);
    if (reads_side(params)) inputs.push_back(side_);
    std::vector<RegisterRef> outputs;
    if (opcode_info(opcode)->outputs == 1) {
      outputs.push_back(reg(static_cast<std::uint16_t>(specs_.size())));
      constexpr bool is_head = std::is_same_v<P, LmHeadParams>,
                     is_last = is_head || std::is_same_v<P, PoolParams> || std::is_same_v<P, DenseParams>;
      if constexpr (is_head) output_width = own.rows;  // this device's
      const DType dtype = opcode == Opcode::kLightningIndex ? DType::kI32 : DType::kF32;
      specs_.push_back(
          {.width = output_width, .dtype = dtype, .rows = is_last ? RowDomain::kOutputRows : RowDomain::kBatchRows});
      stream(draft.op.out) = outputs[0];
      if (opcode == Opcode::kEmbedding) embedded_ = outputs[0];
    }

    instructions_.push_back({.opcode = opcode,
                             .inputs = arena_.copy(std::span<const RegisterRef>(inputs)),
                             .outputs = arena_.copy(std::span<const RegisterRef>(outputs)),
                             .weights = arena_.copy(std::span<const WeightRef>(weights)),
                             .param_block_id = static_cast<std::uint16_t>(params_.size()),
                             .state_block_id = state_of(draft),
                             .partial_sum = partial_sum});
    params_.push_back(block);
    uses_vision_ = uses_vision_ || instructions_.back().state_block_id == kVisionStateId;
    return {};
  }

  Result<std::vector<StateDescriptor>> states() const {
    std::vector<StateDescriptor> states;
    for (const auto& [id, cache] : {std::pair(kKvStateId, cache_), std::pair(kWindowKvStateId, window_cache_)}) {
      if (cache.bytes_per_token > 0xFFFFFFFF) {
        return base::fail(ErrorCode::kConfigKeyInvalid,
                          "the cache of one position exceeds 4 GiB; the head sizes are impossible");
      }
      if (cache.layers_count == 0) continue;
      states.push_back({.id = id,
                        .kind = StateKind::kKv,
                        .forkable = true,
                        .bytes_per_token = static_cast<std::uint32_t>(cache.bytes_per_token),
                        .size_bytes = cache.page_bytes,
                        .window_tokens = cache.window_tokens});
    }
    // A recurrence begins with zeros.
    if (conv_bytes_ != 0)
      states.push_back({.id = kConvStateId,
                        .kind = StateKind::kConv,
                        .zero_init = true,
                        .forkable = true,
                        .size_bytes = conv_bytes_});
    if (ssm_bytes_ != 0)
      states.push_back(
          {.id = kSsmStateId, .kind = StateKind::kSsm, .zero_init = true, .forkable = true, .size_bytes = ssm_bytes_});
    if (delta_bytes_ != 0)
      states.push_back({.id = kDeltaStateId,
                        .kind = StateKind::kDelta,
                        .zero_init = true,
                        .forkable = true,
                        .size_bytes = delta_bytes_});
    if (compressor_bytes_ != 0)
      states.push_back({.id = kCompressorStateId,
                        .kind = StateKind::kCompressor,
                        .zero_init = true,
                        .forkable = true,
                        .size_bytes = compressor_bytes_});
    if (uses_vision_) {
      const VisionConfig& vision = config_.vision;
      const VisionStateLayout layout{
          .image_rows_max = vision.image_rows_max, .parts = vision.parts(), .width = vision.width_out};
      states.push_back({.id = kVisionStateId,
                        .kind = StateKind::kVision,
                        .lifecycle = StateLifecycle::kRequestScoped,
                        .size_bytes = layout.bytes()});
    }
    return states;
  }

  Result<CompiledPlan> finish() {
    const std::vector<StateDescriptor> descs = TRY(states());
    CompiledPlan plan;
    plan.plan = {.instructions = arena_.copy(std::span<const Instruction>(instructions_)),
                 .register_count = static_cast<std::uint16_t>(specs_.size()),
                 .state_descs = arena_.copy(std::span<const StateDescriptor>(descs))};
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
  TensorTable& tensors_;
  PlanArena& arena_;
  RegisterRef residual_ = kInvalidRegister;
  RegisterRef branch_ = kInvalidRegister;
  RegisterRef side_ = kInvalidRegister;
  RegisterRef embedded_ = kInvalidRegister;
  Cache cache_;
  Cache window_cache_;                               // of layers that see only the last positions
  std::map<std::uint32_t, AttentionParams> cached_;  // by layer, of those that have a cache of their own
  std::uint64_t conv_bytes_ = 0;
  std::uint64_t ssm_bytes_ = 0;
  std::uint64_t delta_bytes_ = 0;
  std::uint64_t compressor_bytes_ = 0;
  bool uses_vision_ = false;
  std::vector<Instruction> instructions_;
  std::vector<ParamBlock> params_;
  std::vector<WeightBinding> bindings_;
  std::vector<RegisterSpec> specs_;
  std::vector<PlanDiagnostic> diagnostics_;
};

}  // namespace

Result<CompiledPlan> compile_plan(const CompileInput& input, TensorTable& tensors, PlanArena& arena) {
  return Compiler(input, tensors, arena).run();
}

}  // namespace llorch::engine::models
