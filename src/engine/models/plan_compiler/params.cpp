#include "engine/models/plan_compiler/params.h"

#include <algorithm>
#include <cmath>

#include "engine/models/plan_compiler/layer_program.h"
#include "engine/models/rope.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {

using namespace plan;

namespace {

// Keeps the weights of a mixture from dividing by zero.
constexpr float kMoeNormEpsilon = 1e-20F;

// Of a bit for each position.
std::uint32_t index_words(const ModelConfig& config) { return (config.context_tokens + 31) / 32; }

std::uint32_t layer_number(std::uint16_t layer) { return layer == kNoLayer ? 0xFFFFFFFF : std::uint32_t{layer}; }

}  // namespace

EmbeddingParams embedding_params(const ModelConfig& config) {
  return {.kind_version = kind_version(Opcode::kEmbedding),
          .rows = config.vocab,
          .width = config.width,
          .scale = config.embedding_scale};
}

RmsNormParams norm_params(const ModelConfig& config, std::uint16_t layer) {
  RmsNormParams p{};
  p.kind_version = kind_version(Opcode::kRmsNorm);
  p.width = config.width;
  p.eps = config.norm_eps;
  p.weight_offset = config.norm_offset;
  p.layer = layer_number(layer);
  p.kind = config.norm_kind;
  return p;
}

AttentionParams attention_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present) {
  const LayerConfig& l = config.layers[layer];
  const RopeTableIds tables = rope_table_ids(config.ropes, l.rope);
  AttentionParams p{};
  p.kind_version = kind_version(Opcode::kMultiheadAttention);
  p.width = config.width;
  p.heads = l.heads;
  p.kv_heads = l.kv_heads;
  p.d_qk = l.d_head != 0 ? l.d_head : config.attention.d_qk;
  p.d_v = l.d_head != 0 ? l.d_head : config.attention.d_v;
  p.rotary_dims = l.rope == kNoRope ? 0 : config.ropes[l.rope].dims;
  p.rope_table_id = tables.table;
  p.rope_table_long_id = tables.long_table;
  p.window = l.window;
  p.layer = layer;
  for (std::size_t i = 0; i < 3; ++i) p.sections[i] = config.attention.sections[i];
  p.scale = config.attention.scale;
  p.logit_softcap = config.attention.logit_softcap;
  p.rope_layout = l.rope == kNoRope ? RopeLayout::kNone : config.attention.rope_layout;
  p.mrope = config.attention.mrope;
  p.causal = config.attention.causal;
  p.has_sinks = has(present, AttentionSlot::kSinks);
  p.has_qkv_bias =
      has(present, AttentionSlot::kQBias) || has(present, AttentionSlot::kKBias) || has(present, AttentionSlot::kVBias);
  p.has_o_bias = has(present, AttentionSlot::kOBias);
  p.value_scale = config.attention.value_scale;
  p.chunked = config.attention.chunked && l.window != 0;
  if (has(present, AttentionSlot::kGate)) p.gate = config.attention.gate;
  const Temperature& temperature = config.attention.temperature;
  if (temperature.length != 0 && temperature.of_rotated == (l.rope != kNoRope)) {
    p.temperature = temperature.factor;
    p.temperature_length = temperature.length;
    p.temperature_offset = static_cast<std::uint8_t>(temperature.offset);
  }
  p.shares_cache = l.cache_of != kOwnCache;
  p.unit_values = config.attention.unit_values && p.shares_cache == 0;
  const bool is_weighted = has(present, AttentionSlot::kQNorm);
  if (is_weighted || l.qk_norm != QkNorm::kNone) {
    p.qk_norm = is_weighted ? config.attention.qk_norm : l.qk_norm;
    p.qk_norm_eps = config.norm_eps;
    p.qk_norm_offset = config.norm_offset;
  }
  return p;
}

MlaAttentionParams mla_params(const ModelConfig& config, std::uint16_t layer) {
  const LayerConfig& l = config.layers[layer];
  MlaAttentionParams p{};
  p.kind_version = kind_version(Opcode::kMlaAttention);
  p.width = config.width;
  p.heads = l.heads;
  p.q_lora = config.mla.q_lora;
  p.kv_lora = config.mla.kv_lora;
  p.d_nope = config.mla.d_nope;
  p.d_rope = config.mla.d_rope;
  p.d_v = config.mla.d_v;
  p.rope_table_id = rope_table_ids(config.ropes, l.rope).table;
  p.layer = layer;
  p.scale = config.mla.scale;
  p.norm_eps = config.mla.norm_eps;
  p.rope_layout = l.rope == kNoRope ? RopeLayout::kNone : config.attention.rope_layout;
  p.index_words = config.index.top_k != 0 ? index_words(config) : 0;
  return p;
}

LightningIndexParams lightning_index_params(const ModelConfig& config, std::uint16_t layer) {
  const IndexConfig& index = config.index;
  LightningIndexParams p{};
  p.kind_version = kind_version(Opcode::kLightningIndex);
  p.width = config.width;
  p.q_lora = config.mla.q_lora;
  p.heads = index.heads;
  p.d_index = index.d_index;
  p.d_rope = config.mla.d_rope;
  p.top_k = index.top_k;
  p.words = index_words(config);
  p.rope_table_id = rope_table_ids(config.ropes, config.layers[layer].rope).table;
  p.layer = layer;
  p.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(index.heads) * index.d_index));
  p.q_norm_eps = config.mla.norm_eps;
  p.k_norm_eps = index.norm_eps;
  p.rope_layout = index.rope_layout;
  return p;
}

HyperCollapseParams hyper_collapse_params(const ModelConfig& config, std::uint8_t variant, bool is_spread) {
  const HyperConfig& hyper = config.hyper;
  const bool ends = variant == static_cast<std::uint8_t>(HyperVariant::kOutput);
  return {.kind_version = kind_version(Opcode::kHyperCollapse),
          .width = config.width,
          .streams = hyper.streams,
          .mix_rows = ends ? hyper.streams : hyper.streams * (hyper.streams + 2),
          .norm_eps = config.norm_eps,
          .floor_eps = hyper.floor_eps,
          .is_spread = is_spread,
          .padding = {}};
}

HyperAddParams hyper_add_params(const ModelConfig& config, bool is_spread) {
  const HyperConfig& hyper = config.hyper;
  return {.kind_version = kind_version(Opcode::kHyperAdd),
          .width = config.width,
          .streams = hyper.streams,
          .mix_rows = hyper.streams * (hyper.streams + 2),
          .norm_eps = config.norm_eps,
          .floor_eps = hyper.floor_eps,
          .iterations = hyper.iterations,
          .is_spread = is_spread,
          .padding = {}};
}

CompressorParams compressor_params(const ModelConfig& config, std::uint16_t layer) {
  const LayerConfig& l = config.layers[layer];
  return {.kind_version = kind_version(Opcode::kCompressor),
          .width = config.width,
          .d_head = config.compressed.d_head,
          .d_index = l.indexed ? config.index.d_index : 0,
          .d_rope = config.ropes[l.rope].dims,
          .rate = l.rate,
          .rope_table_id = rope_table_ids(config.ropes, l.rope).table,
          .layer = layer,
          .norm_eps = config.norm_eps,
          .rope_layout = config.attention.rope_layout,
          .overlaps = l.indexed,
          .padding = {},
          .state_offset_bytes = 0};
}

CompressedAttentionParams compressed_attention_params(const ModelConfig& config, std::uint16_t layer) {
  const LayerConfig& l = config.layers[layer];
  const IndexConfig& index = config.index;
  CompressedAttentionParams p{};
  p.kind_version = kind_version(Opcode::kCompressedAttention);
  p.width = config.width;
  p.heads = l.heads;
  p.q_lora = config.compressed.q_lora;
  p.d_head = config.compressed.d_head;
  p.d_rope = config.ropes[l.rope].dims;
  p.groups = config.compressed.groups;
  p.o_rank = config.compressed.o_rank;
  p.window = l.window;
  p.rate = l.rate;
  if (l.indexed) {
    p.index_heads = index.heads;
    p.d_index = index.d_index;
    p.top_k = index.top_k;
    p.index_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(index.heads) * index.d_index));
  }
  p.rope_table_id = rope_table_ids(config.ropes, l.rope).table;
  p.layer = layer;
  p.scale = config.attention.scale;
  p.norm_eps = config.norm_eps;
  p.rope_layout = config.attention.rope_layout;
  return p;
}

SwigluParams ffn_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present) {
  SwigluParams p{};
  p.kind_version = kind_version(Opcode::kSwiglu);
  p.width = config.width;
  p.ffn = config.layers[layer].ffn;
  p.alpha = config.ffn.alpha;
  p.limit = config.ffn.limit;
  p.act = config.ffn.activation;
  if (p.act == Activation::kXielu) {
    const XieluConfig& xielu = config.layers[layer].xielu;
    p.alpha = xielu.alpha;
    p.alpha_negative = xielu.alpha_negative;
    p.beta = xielu.beta;
    p.eps = xielu.eps;
  }
  p.gated = has(present, FfnSlot::kGate);
  return p;
}

MoeParams moe_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present) {
  const MoeConfig& moe = config.moe;
  MoeParams p{};
  p.kind_version = kind_version(Opcode::kMoe);
  p.width = config.width;
  p.experts = moe.experts;
  p.experts_used = moe.experts_used;
  p.ffn_expert = moe.ffn_expert;
  p.groups = moe.groups;
  p.groups_used = moe.groups_used;
  p.ffn_shared = moe.ffn_shared;
  p.norm_epsilon = kMoeNormEpsilon;
  p.weights_scale = moe.weights_scale;
  p.alpha = config.ffn.alpha;
  p.limit = config.ffn.limit;
  p.gate = moe.gate;
  p.group_score = moe.group_score;
  p.act = config.ffn.activation;
  p.has_router_bias = has(present, MoeSlot::kRouterBias);
  p.has_selection_bias = has(present, MoeSlot::kSelectionBias);
  p.norm_topk = moe.norm_topk;
  p.ungated = !has(present, MoeSlot::kGate);
  p.weighs_inputs = moe.weighs_inputs;
  p.has_shared_gate = has(present, MoeSlot::kSharedRouter);
  p.router_apart = moe.router_apart;
  p.has_expert_scale = has(present, MoeSlot::kExpertScale);
  p.table_rows = config.layers[layer].routed_by_table ? config.vocab : 0;
  p.latent = moe.latent;
  p.reach = moe.reach;
  p.has_expert_bias =
      has(present, MoeSlot::kGateBias) || has(present, MoeSlot::kUpBias) || has(present, MoeSlot::kDownBias);
  return p;
}

MambaMixerParams mamba_params(const ModelConfig& config, std::uint16_t layer) {
  const MambaConfig& m = config.mamba;
  MambaMixerParams p{};
  p.kind_version = kind_version(Opcode::kMambaMixer);
  p.width = config.width;
  p.d_inner = m.d_inner;
  p.heads = m.heads;
  p.d_head = m.d_head;
  p.d_state = m.d_state;
  p.groups = m.groups;
  p.d_conv = m.d_conv;
  p.dt_min = m.dt_min;
  p.dt_max = m.dt_max;
  p.norm_eps = config.norm_eps;
  p.norm_groups = m.groups;
  p.layer = layer;
  return p;
}

GatedDeltaParams gated_delta_params(const ModelConfig& config, std::uint16_t layer) {
  const DeltaConfig& d = config.delta;
  return {.kind_version = kind_version(Opcode::kGatedDelta),
          .width = config.width,
          .key_heads = d.key_heads,
          .value_heads = d.value_heads,
          .d_k = d.d_k,
          .d_v = d.d_v,
          .d_conv = d.d_conv,
          .layer = layer,
          .norm_eps = config.norm_eps,
          .unit_eps = 1e-6F,
          .keys_take_turns = d.keys_take_turns,
          .channel_decay = d.channel_decay,
          .sigmoid_gate = d.sigmoid_gate,
          .padding = {},
          .rank = d.rank,
          .state_offset_bytes = 0};
}

ShortconvParams shortconv_params(const ModelConfig& config, std::uint16_t layer) {
  return {.kind_version = kind_version(Opcode::kShortconv),
          .width = config.width,
          .l_cache = config.shortconv.l_cache,
          .layer = layer,
          .state_offset_bytes = 0};
}

ResidualAddParams add_params(const ModelConfig& config, std::uint16_t layer, bool scaled) {
  return {.kind_version = kind_version(Opcode::kResidualAdd),
          .width = config.width,
          .scale = config.residual_scale,
          .sum_scale = scaled ? config.layers[layer].output_scale : 0};
}

ModelConfig predictor_config(const ModelConfig& config) {
  ModelConfig predictor = config;
  const auto attends = [](const LayerConfig& layer) { return layer.heads != 0; };
  const auto last = std::find_if(config.layers.rbegin(), config.layers.rend(), attends);
  predictor.layers.assign(1, config.predictor_layer         ? *config.predictor_layer
                             : last == config.layers.rend() ? config.layers.back()
                                                            : *last);
  return predictor;
}

PredictorInputParams predictor_input_params(const ModelConfig& config) {
  return {.kind_version = kind_version(Opcode::kPredictorInput),
          .width = config.width,
          .norm_eps = config.norm_eps,
          .weight_offset = config.norm_offset};
}

LayerInputParams layer_input_params(const ModelConfig& config, std::uint16_t layer) {
  const LayerInputConfig& input = config.layer_input;
  return {.kind_version = kind_version(Opcode::kLayerInput),
          .width = config.width,
          .inner = input.inner,
          .rows = config.vocab,
          .layers = static_cast<std::uint32_t>(config.layers.size()),
          .layer = layer,
          .table_scale = input.table_scale,
          .context_scale = input.context_scale,
          .sum_scale = input.sum_scale,
          .norm_eps = config.norm_eps,
          .act = config.ffn.activation,
          .padding = {}};
}

LmHeadParams head_params(const ModelConfig& config, bool tied) {
  return {.kind_version = kind_version(Opcode::kLmHead),
          .rows = config.vocab,
          .width = config.width,
          .logit_mul = config.logit_mul,
          .softcap = config.logit_softcap,
          .tied = tied,
          .padding = {}};
}

PoolParams pool_params(const ModelConfig& config) {
  return {.kind_version = kind_version(Opcode::kPool), .width = config.width, .pooling = config.pooling, .padding = {}};
}

PositionEmbeddingParams position_embedding_params(const ModelConfig& config) {
  return {.kind_version = kind_version(Opcode::kPositionEmbedding),
          .width = config.width,
          .positions = config.positions,
          .first = config.first_position,
          .types = config.token_types,
          .padding = 0};
}

DenseParams dense_params(const ModelConfig& config, std::uint8_t number) {
  const auto layer = std::ranges::find(config.dense, number, &DenseConfig::number);
  ASSERT(layer != config.dense.end(), "no linear layer {}", number);
  return {.kind_version = kind_version(Opcode::kDense),
          .width = layer->width,
          .rows = layer->rows,
          .act = layer->activation,
          .padding = {}};
}

ModelConfig tower_config(const ModelConfig& config) {
  const VisionConfig& vision = config.vision;
  ModelConfig tower;
  tower.architecture = config.architecture;
  tower.width = vision.width;
  tower.ropes = config.ropes;
  tower.norm_kind = NormKind::kLayerNorm;
  tower.norm_eps = vision.norm_eps;
  tower.ffn.activation = vision.activation;
  tower.vision = vision;
  const LayerConfig block{.rope = vision.rope, .heads = vision.heads, .kv_heads = vision.heads, .ffn = vision.ffn};
  tower.layers.assign(vision.depth, block);
  const std::uint32_t head = vision.width / vision.heads;
  tower.attention = {.d_qk = head,
                     .d_v = head,
                     .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head))),
                     .rope_layout = RopeLayout::kVision2d,
                     .causal = false};
  return tower;
}

VisionPatchEmbedParams patch_embed_params(const VisionConfig& vision) {
  return {.kind_version = kind_version(Opcode::kVisionPatchEmbed),
          .width = vision.width,
          .patch = vision.patch,
          .temporal = vision.temporal,
          .merge = vision.merge,
          .grid_side = vision.grid_side};
}

VisionSpatialMergeParams spatial_merge_params(const VisionConfig& vision) {
  return {.kind_version = kind_version(Opcode::kVisionSpatialMerge),
          .width_in = vision.width,
          .width_out = vision.width_out,
          .merge_size = vision.merge,
          .norm_eps = vision.norm_eps,
          .parts = vision.parts()};
}

VisionDeepstackExtractParams deepstack_extract_params(const VisionConfig& vision, std::uint32_t extraction) {
  return {.kind_version = kind_version(Opcode::kVisionDeepstackExtract),
          .width_in = vision.width,
          .width_out = vision.width_out,
          .merge_size = vision.merge,
          .norm_eps = vision.norm_eps,
          .parts = vision.parts(),
          .part = 1 + extraction,
          .layer = vision.extractions[extraction].layer};
}

VisionScatterParams scatter_params(const VisionConfig& vision, std::uint32_t part) {
  return {.kind_version = kind_version(Opcode::kVisionScatter),
          .width = vision.width_out,
          .image_row_ids = {vision.image_row_ids[0], vision.image_row_ids[1]},
          .parts = vision.parts(),
          .part = part,
          .mode = part == 0 ? ScatterMode::kReplace : ScatterMode::kAdd,
          .padding = {}};
}

}  // namespace llorch::engine::models
