#include "engine/compute/adapter_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

namespace llorch::engine::compute {
namespace {

using namespace plan;
using base::ErrorCode;
using base::fail;
using base::Result;

bool is_limited(Activation act) { return act == Activation::kSwigluOai || act == Activation::kSiluClamped; }

// One instruction of one device.
class Checks {
 public:
  Checks(const PrepareArgs& args, const DeviceKernels& kernels) : args_(args), kernels_(kernels) {}

  Result<> run() const {
    switch (args_.insn.opcode) {
      case Opcode::kRmsNorm: return rms_norm(param_as<RmsNormParams>(args_.params));
      case Opcode::kMultiheadAttention: return attention(param_as<AttentionParams>(args_.params));
      case Opcode::kSwiglu: return swiglu(param_as<SwigluParams>(args_.params));
      case Opcode::kMoe: return moe(param_as<MoeParams>(args_.params));
      case Opcode::kMambaMixer: return mamba(param_as<MambaMixerParams>(args_.params));
      case Opcode::kGatedDelta: return gated_delta(param_as<GatedDeltaParams>(args_.params));
      case Opcode::kShortconv: return shortconv(param_as<ShortconvParams>(args_.params));
      case Opcode::kMlaAttention: return mla(param_as<MlaAttentionParams>(args_.params));
      case Opcode::kEmbedding: return weights({EmbeddingSlot::kWeight});
      case Opcode::kResidualAdd: return {};
      case Opcode::kVisionPatchEmbed: return patch_embed(param_as<VisionPatchEmbedParams>(args_.params));
      case Opcode::kVisionSpatialMerge: {
        const auto& p = param_as<VisionSpatialMergeParams>(args_.params);
        return merger({.merge_size = p.merge_size, .part = 0, .parts = p.parts});
      }
      case Opcode::kVisionDeepstackExtract: {
        const auto& p = param_as<VisionDeepstackExtractParams>(args_.params);
        return merger({.merge_size = p.merge_size, .part = p.part, .parts = p.parts});
      }
      case Opcode::kVisionScatter: return scatter(param_as<VisionScatterParams>(args_.params));
      case Opcode::kPositionEmbedding:
        return weights({PositionEmbeddingSlot::kPositions, PositionEmbeddingSlot::kTypes});
      case Opcode::kDense: return dense(param_as<DenseParams>(args_.params));
      case Opcode::kLmHead: return weights({LmHeadSlot::kWeight, LmHeadSlot::kBias});
      case Opcode::kPool: return pool(param_as<PoolParams>(args_.params));
      case Opcode::kLightningIndex: return lightning_index(param_as<LightningIndexParams>(args_.params));
      case Opcode::kHyperCollapse: return hyper(param_as<HyperCollapseParams>(args_.params));
      case Opcode::kHyperAdd: return hyper(param_as<HyperAddParams>(args_.params));
      case Opcode::kCompressor: return compressor(param_as<CompressorParams>(args_.params));
      case Opcode::kCompressedAttention: return compressed_attention(param_as<CompressedAttentionParams>(args_.params));
      case Opcode::kLayerInput: return layer_input(param_as<LayerInputParams>(args_.params));
      case Opcode::kPredictorInput:
        return weights(
            {PredictorInputSlot::kEmbeddingNorm, PredictorInputSlot::kHiddenNorm, PredictorInputSlot::kWeight});
    }
    ASSERT(false, "opcode {}", static_cast<int>(args_.insn.opcode));
  }

 private:
  struct Merger {
    std::uint32_t merge_size, part, parts;
  };

  Result<> rms_norm(const RmsNormParams& p) const;
  Result<> attention(const AttentionParams& p) const;
  Result<> axes(const AttentionParams& p) const;
  Result<> swiglu(const SwigluParams& p) const;
  Result<> moe(const MoeParams& p) const;
  Result<> mamba(const MambaMixerParams& p) const;
  Result<> gated_delta(const GatedDeltaParams& p) const;
  Result<> lightning_index(const LightningIndexParams& p) const;
  template <class Params>
  Result<> hyper(const Params& p) const;
  Result<> compressor(const CompressorParams& p) const;
  Result<> compressed_attention(const CompressedAttentionParams& p) const;
  Result<> shortconv(const ShortconvParams& p) const;
  Result<> mla(const MlaAttentionParams& p) const;
  Result<> patch_embed(const VisionPatchEmbedParams& p) const;
  Result<> merger(const Merger& m) const;
  Result<> scatter(const VisionScatterParams& p) const;
  Result<> pool(const PoolParams& p) const;
  Result<> dense(const DenseParams& p) const;
  Result<> layer_input(const LayerInputParams& p) const;

  // Every weight against its slot; `allowed` are the slots the opcode's adapters read.
  template <class Slot>
  Result<> weights(std::initializer_list<Slot> allowed) const;
  Result<> weight(const SlotSpec& slot, const TensorViewDesc& view) const;
  template <class Slot>
  bool present(Slot slot) const {
    return args_.weights[static_cast<std::size_t>(slot)].ptr != nullptr;
  }
  Result<> require(bool supported, std::string_view what) const;
  Result<> require_taps(std::uint32_t taps) const;
  Result<> require_positions() const;

  const PrepareArgs& args_;
  const DeviceKernels& kernels_;
};

Result<> Checks::rms_norm(const RmsNormParams& p) const {
  TRY(require(p.rows_per_group == 0 || p.width % p.rows_per_group == 0, "groups that do not fill the row"));
  if (p.kind != NormKind::kLayerNorm) return weights({NormSlot::kWeight});
  TRY(require(p.weight_offset == 0, "LayerNorm and an offset of the weight"));
  return weights({NormSlot::kWeight, NormSlot::kBias});
}

Result<> Checks::attention(const AttentionParams& p) const {
  const auto kv_dtype = static_cast<DType>(p.kv_dtype);
  TRY(require(p.causal == 0 || kv_dtype == DType::kF32 || kv_dtype == DType::kF16, "a KV type other than f32 and f16"));
  TRY(require(p.kv_heads != 0 && p.heads % p.kv_heads == 0, "heads that kv heads do not divide"));
  TRY(require(
      p.d_qk <= kernels_.key_dims_max && p.d_v <= kernels_.value_dims_max,
      fmt::format("heads of more than {} key or {} value dimensions", kernels_.key_dims_max, kernels_.value_dims_max)));
  TRY(require(p.rope_layout == RopeLayout::kNone || (p.rotary_dims % 2 == 0 && p.rotary_dims <= p.d_qk),
              "an odd rotation width, or one beyond the head"));
  TRY(axes(p));
  TRY(require_positions());
  using enum AttentionSlot;
  TRY(weights({kQ, kK, kV, kO, kQNorm, kKNorm, kQBias, kKBias, kVBias, kOBias, kSinks, kGate}));
  TRY(require(present(kK) == (p.shares_cache == 0) && present(kV) == (p.shares_cache == 0),
              "keys and values that params and weights disagree on"));
  TRY(require(p.shares_cache == 0 || (p.causal != 0 && p.qk_norm != QkNorm::kPerRow),
              "another layer's cache without one, or with norms over all heads"));
  TRY(require(p.chunked == 0 || (p.causal != 0 && p.window != 0),
              "windows of no width, or of rows that see each other"));
  TRY(require(present(kGate) == (p.gate != AttentionGate::kNone), "a gate that params and weights disagree on"));
  const bool wants_norm = p.qk_norm != QkNorm::kNone && p.qk_norm != QkNorm::kUnitRotated;
  TRY(require(present(kQNorm) == wants_norm && present(kKNorm) == (wants_norm && p.shares_cache == 0),
              "head norms that params and weights disagree on"));
  TRY(require(p.qk_norm != QkNorm::kCenteredPerHead || p.qk_norm_offset == 0,
              "LayerNorm of heads and an offset of its weight"));
  return require(present(kSinks) == (p.has_sinks != 0), "sinks that params and weights disagree on");
}

Result<> Checks::axes(const AttentionParams& p) const {
  const std::uint64_t sections = std::uint64_t{p.sections[0]} + p.sections[1] + p.sections[2];
  const bool vision = p.rope_layout == RopeLayout::kVision2d;
  const bool several = p.mrope != MropeKind::kNone;
  TRY(require(!several || (p.rope_layout != RopeLayout::kNone && !vision),
              "sections without a rotation, or with that of an image"));
  TRY(require(!several || sections * 2 == p.rotary_dims, "sections that do not add up to the rotation"));
  return require(!vision || p.rotary_dims % 4 == 0, "two axes that do not halve the rotation");
}

Result<> Checks::swiglu(const SwigluParams& p) const {
  if (is_limited(p.act)) TRY(require(p.gated != 0 && p.limit > 0, "a limited activation without a gate or a limit"));
  if (p.act == Activation::kXielu) TRY(require(p.gated == 0 && p.eps <= 0, "xielu with a gate or an epsilon above 0"));
  using enum FfnSlot;
  TRY(weights({kGate, kUp, kDown, kGateBias, kUpBias, kDownBias}));
  return require(present(kGate) == (p.gated != 0) && (p.gated != 0 || !present(kGateBias)),
                 "a gate that params and weights disagree on");
}

Result<> Checks::moe(const MoeParams& p) const {
  TRY(require(routable(p),
              "a gate that is none, or numbers of experts, groups and choices that do not fit each other"));
  TRY(require(routable(p, kernels_),
              fmt::format("more than {} experts, {} choices of a row or {} groups", kernels_.experts_max,
                          kernels_.experts_used_max, kernels_.expert_groups_max)));
  TRY(require(!is_limited(p.act) || p.limit > 0, "a limited activation without a limit"));
  TRY(require(p.act != Activation::kXielu, "experts with xielu"));
  using enum MoeSlot;
  TRY(weights({kRouter, kGate, kUp, kDown, kRouterBias, kGateBias, kUpBias, kDownBias, kSelectionBias, kSharedGate,
               kSharedUp, kSharedDown, kSharedRouter, kExpertTable, kExpertScale, kLatentDown, kLatentUp}));
  const auto given = [&](bool wanted, std::initializer_list<MoeSlot> slots) {
    return std::ranges::all_of(slots, [&](MoeSlot slot) { return present(slot) == wanted; });
  };
  TRY(require(given(p.has_router_bias != 0, {kRouterBias}) && given(p.has_selection_bias != 0, {kSelectionBias}),
              "biases of the router that params and weights disagree on"));
  TRY(require(given(p.has_expert_bias != 0, {kUpBias, kDownBias}) &&
                  given(p.has_expert_bias != 0 && p.ungated == 0, {kGateBias}),
              "biases of the experts that params and weights disagree on"));
  TRY(require(given(p.ungated == 0, {kGate}), "gates of experts that params and weights disagree on"));
  TRY(require(p.ungated == 0 || !is_limited(p.act), "a limited activation without gates"));
  TRY(require(given(p.table_rows != 0, {kExpertTable}) && given(p.has_expert_scale != 0, {kExpertScale}),
              "a table or scales of experts that params and weights disagree on"));
  TRY(require(given(p.latent != 0, {kLatentDown, kLatentUp}),
              "projections of experts that params and weights disagree on"));
  TRY(require(p.ungated == 0 || !present(kGateBias), "a bias of gates that are none"));
  return require(given(p.ffn_shared != 0, {kSharedUp, kSharedDown}) &&
                     given(p.ffn_shared != 0 && p.ungated == 0, {kSharedGate}) &&
                     given(p.has_shared_gate != 0, {kSharedRouter}) && (p.has_shared_gate == 0 || p.ffn_shared != 0),
                 "a shared expert that params and weights disagree on");
}

Result<> Checks::mamba(const MambaMixerParams& p) const {
  TRY(require_taps(p.d_conv));
  TRY(require(p.d_head != 0 && p.d_state != 0 && std::uint64_t{p.heads} * p.d_head == p.d_inner,
              "heads that do not fill the inner width"));
  TRY(require(p.groups != 0 && p.heads % p.groups == 0, "heads that groups do not divide"));
  TRY(require(p.norm_groups != 0 && p.d_inner % p.norm_groups == 0, "an inner width that norm groups do not divide"));
  TRY(require(p.dt_min <= p.dt_max, "a step range that is empty"));
  using enum MambaSlot;
  return weights({kInProj, kConvWeight, kA, kDSkip, kOutProj, kConvBias, kDtBias, kNorm, kInBias, kOutBias});
}

Result<> Checks::gated_delta(const GatedDeltaParams& p) const {
  TRY(require_taps(p.d_conv));
  TRY(require(p.key_heads != 0 && p.value_heads % p.key_heads == 0, "value heads that key heads do not divide"));
  TRY(require(p.d_k != 0 && p.d_v != 0, "heads of no width"));
  TRY(require(p.d_k <= kernels_.key_dims_max,
              fmt::format("heads of more than {} key dimensions", kernels_.key_dims_max)));
  using enum GatedDeltaSlot;
  TRY(require(present(kZA) == (p.rank != 0) && present(kDecayA) == (p.rank != 0),
              "projections in two steps that params and weights disagree on"));
  return weights({kQkv, kZ, kBeta, kDecay, kConvWeight, kA, kDtBias, kNorm, kOutProj, kZA, kDecayA});
}

Result<> Checks::lightning_index(const LightningIndexParams& p) const {
  const auto kv_dtype = static_cast<DType>(p.kv_dtype);
  TRY(require(kv_dtype == DType::kF32 || kv_dtype == DType::kF16, "a KV type other than f32 and f16"));
  TRY(require(p.rope_layout == RopeLayout::kHalf || p.rope_layout == RopeLayout::kInterleaved, "no rotation"));
  TRY(require(p.d_rope % 2 == 0 && p.d_rope <= p.d_index, "an odd rotation width, or one beyond the head"));
  TRY(require(p.top_k != 0 && p.heads != 0, "nothing to choose, or nobody who does"));
  TRY(require(p.d_index <= kernels_.key_dims_max,
              fmt::format("heads of more than {} dimensions", kernels_.key_dims_max)));
  TRY(require(args_.limits.context_tokens_max <= std::uint64_t{p.words} * 32,
              fmt::format("a context beyond its {} bits", std::uint64_t{p.words} * 32)));
  TRY(require_positions());
  using enum IndexSlot;
  return weights({kQA, kQANorm, kQB, kK, kKNorm, kKNormBias, kWeights, kQABias});
}

// Of a row of the mixes' matrix.
constexpr std::uint32_t kStreamsMax = 16;

template <class Params>
Result<> Checks::hyper(const Params& p) const {
  TRY(require(p.streams != 0 && p.streams <= kStreamsMax, fmt::format("no or more than {} streams", kStreamsMax)));
  const bool puts_back = p.mix_rows == p.streams * (p.streams + 2);
  if constexpr (std::is_same_v<Params, HyperAddParams>) {
    TRY(require(puts_back && p.iterations != 0, "weights that put nothing back, or are not balanced"));
  } else {
    TRY(require(puts_back || p.mix_rows == p.streams, "weights of another number of streams"));
  }
  return weights({HyperSlot::kFn, HyperSlot::kBase, HyperSlot::kScale});
}

Result<> Checks::compressor(const CompressorParams& p) const {
  TRY(require(p.rate != 0 && p.d_head != 0, "windows or entries of nothing"));
  TRY(require(p.rope_layout == RopeLayout::kHalf || p.rope_layout == RopeLayout::kInterleaved, "no rotation"));
  TRY(require(p.d_rope % 2 == 0 && p.d_rope <= p.d_head && (p.d_index == 0 || p.d_rope <= p.d_index),
              "an odd rotation width, or one beyond the entry"));
  TRY(require_positions());
  using enum CompressorSlot;
  TRY(weights({kKv, kGate, kBias, kNorm, kIndexKv, kIndexGate, kIndexBias, kIndexNorm}));
  const auto given = [&](CompressorSlot slot) { return present(slot) == (p.d_index != 0); };
  return require(given(kIndexKv) && given(kIndexGate) && given(kIndexBias) && given(kIndexNorm),
                 "entries of an index that params and weights disagree on");
}

Result<> Checks::compressed_attention(const CompressedAttentionParams& p) const {
  const auto kv_dtype = static_cast<DType>(p.kv_dtype);
  TRY(require(kv_dtype == DType::kF32 || kv_dtype == DType::kF16, "a KV type other than f32 and f16"));
  TRY(require(p.rope_layout == RopeLayout::kHalf || p.rope_layout == RopeLayout::kInterleaved, "no rotation"));
  TRY(require(p.d_rope % 2 == 0 && p.d_rope <= p.d_head && (p.top_k == 0 || p.d_rope <= p.d_index),
              "an odd rotation width, or one beyond the head"));
  TRY(require(p.heads != 0 && p.groups != 0 && p.heads % p.groups == 0, "heads that groups do not divide"));
  TRY(require(p.groups <= kernels_.stack_max, fmt::format("more than {} groups", kernels_.stack_max)));
  TRY(require(p.window != 0, "a window of no width"));
  TRY(require(
      p.d_head <= kernels_.key_dims_max && p.d_head <= kernels_.value_dims_max && p.d_index <= kernels_.key_dims_max,
      "heads that are too wide"));
  TRY(require(
      (p.top_k != 0) == (p.index_heads != 0) && (p.top_k != 0) == (p.d_index != 0) && (p.top_k == 0 || p.rate != 0),
      "an index of nothing"));
  TRY(require_positions());
  using enum CompressedAttentionSlot;
  TRY(weights({kQA, kQANorm, kQB, kKv, kKvNorm, kSinks, kOA, kOB, kIndexQ, kIndexWeights}));
  return require(present(kIndexQ) == (p.top_k != 0) && present(kIndexWeights) == (p.top_k != 0),
                 "an index that params and weights disagree on");
}

Result<> Checks::shortconv(const ShortconvParams& p) const {
  TRY(require_taps(p.l_cache));
  using enum ShortconvSlot;
  return weights({kInProj, kConvWeight, kOutProj, kConvBias, kInBias, kOutBias});
}

Result<> Checks::mla(const MlaAttentionParams& p) const {
  const auto kv_dtype = static_cast<DType>(p.kv_dtype);
  TRY(require(kv_dtype == DType::kF32 || kv_dtype == DType::kF16, "a KV type other than f32 and f16"));
  TRY(require(p.rope_layout != RopeLayout::kVision2d, "two-axis rotation"));
  TRY(require(p.d_rope % 2 == 0, "an odd rotation width"));
  TRY(require(p.kv_lora + p.d_rope <= kernels_.key_dims_max && p.kv_lora <= kernels_.value_dims_max,
              fmt::format("compressed rows of more than {} dimensions, or latents of more than {}",
                          kernels_.key_dims_max, kernels_.value_dims_max)));
  TRY(require(p.heads <= kernels_.stack_max, fmt::format("more than {} heads", kernels_.stack_max)));
  TRY(require(p.index_words == 0 || args_.limits.context_tokens_max <= std::uint64_t{p.index_words} * 32,
              fmt::format("a context beyond its index of {} bits", std::uint64_t{p.index_words} * 32)));
  TRY(require_positions());
  using enum MlaSlot;
  TRY(weights({kQ, kQA, kQANorm, kQB, kKvA, kKvANorm, kKB, kVB, kO, kQABias, kKvABias, kOBias}));
  const bool compressed = p.q_lora != 0;
  return require(present(kQ) != compressed && present(kQA) == compressed && present(kQANorm) == compressed &&
                     present(kQB) == compressed && (compressed || !present(kQABias)),
                 "query weights that contradict its query compression");
}

Result<> Checks::patch_embed(const VisionPatchEmbedParams& p) const {
  TRY(require(p.merge != 0, "blocks of no patches"));
  TRY(require(p.grid_side != 0 && p.grid_side <= 0xFFFF, "a position table that is empty or wider than 65535"));
  using enum PatchEmbedSlot;
  return weights({kWeight, kBias, kPositions});
}

Result<> Checks::merger(const Merger& m) const {
  TRY(require(m.merge_size != 0, "blocks of no patches"));
  TRY(require(m.part < m.parts, "a part its rows do not have"));
  using enum SpatialMergeSlot;
  return weights({kNorm, kNormBias, kFc1, kFc1Bias, kFc2, kFc2Bias});
}

Result<> Checks::scatter(const VisionScatterParams& p) const {
  TRY(require(p.part < p.parts, "a part its rows do not have"));
  return require(p.mode == ScatterMode::kReplace || p.mode == ScatterMode::kAdd, "an unknown mode");
}

Result<> Checks::pool(const PoolParams& p) const {
  return require(p.pooling >= Pooling::kMean && p.pooling <= Pooling::kLast, "an unknown kind of pooling");
}

Result<> Checks::dense(const DenseParams& p) const {
  TRY(require(p.act == DenseActivation::kNone || p.act == DenseActivation::kTanh, "an unknown activation"));
  return weights({DenseSlot::kWeight, DenseSlot::kBias});
}

Result<> Checks::layer_input(const LayerInputParams& p) const {
  TRY(require(p.layer < p.layers, "a layer that the table has no columns for"));
  TRY(require(!is_limited(p.act) && p.act != Activation::kXielu, "a limited activation or xielu"));
  const DType table = args_.views[static_cast<std::size_t>(LayerInputSlot::kTable)].dtype;
  TRY(require(p.inner % 32 == 0 || !is_quantized(table), "blocks of the table that several layers share"));
  using enum LayerInputSlot;
  return weights({kGate, kProj, kContext, kNorm, kTable});
}

template <class Slot>
Result<> Checks::weights(std::initializer_list<Slot> allowed) const {
  TRY(require(args_.limits.rows_max <= kernels_.rows_max,
              fmt::format("steps of more than {} rows", kernels_.rows_max)));
  const auto slots = weight_slots(args_.insn.opcode);
  ASSERT(slots && slots->size() == args_.weights.size() && slots->size() == args_.views.size(),
         "validate() was skipped");
  for (std::size_t s = 0; s < slots->size(); ++s) {
    if (args_.weights[s].ptr == nullptr) continue;
    if (std::ranges::find(allowed, static_cast<Slot>(s)) == allowed.end())
      return require(false, fmt::format("a weight in slot {}", (*slots)[s].name));
    TRY(weight((*slots)[s], args_.views[s]));
  }
  return {};
}

Result<> Checks::weight(const SlotSpec& slot, const TensorViewDesc& view) const {
  const std::string place = fmt::format("{} slot {}", opcode_name(args_.insn.opcode), slot.name);
  const std::uint64_t types = slot.use == WeightUse::kVector
                                  ? dtype_bit(DType::kF32) | dtype_bit(DType::kF16) | dtype_bit(DType::kBF16)
                                  : kernels_.matrix_types;
  if ((types & dtype_bit(view.dtype)) == 0)
    return fail(ErrorCode::kWeightDTypeUnsupported,
                fmt::format("{}: no {} kernel takes {} here", place, kernels_.device, dtype_info(view.dtype).name));
  if (view.rank != slot.rank)
    return fail(ErrorCode::kWeightShapeMismatch,
                fmt::format("{} has rank {}, expected {}", place, view.rank, slot.rank));
  for (std::size_t d = 0; d < slot.rank; ++d) {
    const auto expected = dim_value(slot.dims[d], args_.params);
    if (expected && *expected != view.shape[d])
      return fail(ErrorCode::kWeightShapeMismatch,
                  fmt::format("{} dimension {} is {}, the configuration says {}", place, d, view.shape[d], *expected));
  }
  return {};
}

Result<> Checks::require(bool supported, std::string_view what) const {
  if (supported) return {};
  return fail(ErrorCode::kUnsupportedOpcode, fmt::format("{} with {} is not supported by the {} device",
                                                         opcode_name(args_.insn.opcode), what, kernels_.device));
}

Result<> Checks::require_taps(std::uint32_t taps) const {
  return require(taps >= 1 && taps <= kernels_.conv_taps_max,
                 fmt::format("a convolution of no or more than {} taps", kernels_.conv_taps_max));
}

Result<> Checks::require_positions() const {
  return require(args_.limits.context_tokens_max <= kernels_.positions_max,
                 fmt::format("a context beyond {}", kernels_.positions_max));
}

}  // namespace

Result<> check_instruction(const PrepareArgs& args, const DeviceKernels& kernels) {
  return Checks(args, kernels).run();
}

bool routable(const plan::MoeParams& p, const DeviceKernels& kernels) {
  if (p.gate < plan::MoeGate::kSoftmax || p.gate > plan::MoeGate::kSparseMixer) return false;
  if (p.gate == plan::MoeGate::kSparseMixer &&
      (p.groups != 0 || p.table_rows != 0 || p.has_selection_bias != 0 || !(p.reach >= 0)))
    return false;
  if (p.experts == 0 || p.experts_used == 0 || p.experts_used > p.experts) return false;
  if (p.experts > kernels.experts_max || p.experts_used > kernels.experts_used_max) return false;
  if (p.groups == 0) return true;
  if (p.experts % p.groups != 0 || p.groups_used == 0 || p.groups_used > p.groups) return false;
  const std::uint32_t size = p.experts / p.groups;
  return p.groups <= kernels.expert_groups_max && (size >= 2 || p.group_score != plan::GroupScore::kTop2Sum) &&
         p.experts_used <= p.groups_used * size;
}

}  // namespace llorch::engine::compute
