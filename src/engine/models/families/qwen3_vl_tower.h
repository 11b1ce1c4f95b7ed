#pragma once
// The tower of Qwen3-VL, which turns patches of pictures into rows for the decoder: its blocks, its weights, its sizes.
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace qwen3_vl_tower {

using plan::PatchEmbedSlot;
using plan::SpatialMergeSlot;

inline constexpr std::array kTowerBefore{patch_embed()};
inline constexpr std::array kTowerBlock{norm(NormVariant::kTowerAttention), tower_attention(), add(),
                                        norm(NormVariant::kTowerFfn),       tower_ffn(),       add()};
inline constexpr std::array kTowerAfter{spatial_merge()};
inline constexpr Tower kTower{.before = kTowerBefore, .block = kTowerBlock, .after = kTowerAfter};

constexpr WeightRow in_tower(WeightRow any) {
  any.variant = kTowerVariant;
  return any;
}
// Rows of q, k and v lie in one tensor.
constexpr WeightRow of_qkv(AttentionSlot slot) {
  return in_tower(
      row(slot, Source("v.blk.{}.attn_qkv.weight", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV),
          Source("^model.visual.blocks.{}.attn.qkv.weight", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV)));
}
constexpr WeightRow of_qkv_bias(AttentionSlot slot) {
  return in_tower(
      row(slot, Source("v.blk.{}.attn_qkv.bias", Load::kRows, AttentionSlot::kQBias, AttentionSlot::kVBias),
          Source("^model.visual.blocks.{}.attn.qkv.bias", Load::kRows, AttentionSlot::kQBias, AttentionSlot::kVBias)));
}
constexpr WeightRow merge(SpatialMergeSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kVisionSpatialMerge, slot, gguf, hf);
}
constexpr WeightRow extract(SpatialMergeSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kVisionDeepstackExtract, slot, gguf, hf);
}
constexpr WeightRow patches(PatchEmbedSlot slot, Source gguf, Source hf) {
  return weight(Opcode::kVisionPatchEmbed, slot, gguf, hf);
}

inline constexpr std::array kTowerWeights{
    patches(PatchEmbedSlot::kWeight, Source("v.patch_embd.weight", Load::kFrames),
            Source("^model.visual.patch_embed.proj.weight", Load::kReshaped)),
    patches(PatchEmbedSlot::kBias, "v.patch_embd.bias", "^model.visual.patch_embed.proj.bias"),
    patches(PatchEmbedSlot::kPositions, "v.position_embd.weight", "^model.visual.pos_embed.weight"),
    row(NormVariant::kTowerAttention, "v.blk.{}.ln1.weight", "^model.visual.blocks.{}.norm1.weight"),
    bias_row(NormVariant::kTowerAttention, "v.blk.{}.ln1.bias", "^model.visual.blocks.{}.norm1.bias"),
    of_qkv(AttentionSlot::kQ),
    of_qkv(AttentionSlot::kK),
    of_qkv(AttentionSlot::kV),
    of_qkv_bias(AttentionSlot::kQBias),
    of_qkv_bias(AttentionSlot::kKBias),
    of_qkv_bias(AttentionSlot::kVBias),
    in_tower(row(AttentionSlot::kO, "v.blk.{}.attn_out.weight", "^model.visual.blocks.{}.attn.proj.weight")),
    in_tower(row(AttentionSlot::kOBias, "v.blk.{}.attn_out.bias", "^model.visual.blocks.{}.attn.proj.bias")),
    row(NormVariant::kTowerFfn, "v.blk.{}.ln2.weight", "^model.visual.blocks.{}.norm2.weight"),
    bias_row(NormVariant::kTowerFfn, "v.blk.{}.ln2.bias", "^model.visual.blocks.{}.norm2.bias"),
    in_tower(row(FfnSlot::kUp, "v.blk.{}.ffn_up.weight", "^model.visual.blocks.{}.mlp.linear_fc1.weight")),
    in_tower(row(FfnSlot::kUpBias, "v.blk.{}.ffn_up.bias", "^model.visual.blocks.{}.mlp.linear_fc1.bias")),
    in_tower(row(FfnSlot::kDown, "v.blk.{}.ffn_down.weight", "^model.visual.blocks.{}.mlp.linear_fc2.weight")),
    in_tower(row(FfnSlot::kDownBias, "v.blk.{}.ffn_down.bias", "^model.visual.blocks.{}.mlp.linear_fc2.bias")),
    extract(SpatialMergeSlot::kNorm, "v.deepstack.{}.norm.weight",
            "^model.visual.deepstack_merger_list.{}.norm.weight"),
    extract(SpatialMergeSlot::kNormBias, "v.deepstack.{}.norm.bias",
            "^model.visual.deepstack_merger_list.{}.norm.bias"),
    extract(SpatialMergeSlot::kFc1, "v.deepstack.{}.fc1.weight",
            "^model.visual.deepstack_merger_list.{}.linear_fc1.weight"),
    extract(SpatialMergeSlot::kFc1Bias, "v.deepstack.{}.fc1.bias",
            "^model.visual.deepstack_merger_list.{}.linear_fc1.bias"),
    extract(SpatialMergeSlot::kFc2, "v.deepstack.{}.fc2.weight",
            "^model.visual.deepstack_merger_list.{}.linear_fc2.weight"),
    extract(SpatialMergeSlot::kFc2Bias, "v.deepstack.{}.fc2.bias",
            "^model.visual.deepstack_merger_list.{}.linear_fc2.bias"),
    merge(SpatialMergeSlot::kNorm, "v.post_ln.weight", "^model.visual.merger.norm.weight"),
    merge(SpatialMergeSlot::kNormBias, "v.post_ln.bias", "^model.visual.merger.norm.bias"),
    merge(SpatialMergeSlot::kFc1, "mm.0.weight", "^model.visual.merger.linear_fc1.weight"),
    merge(SpatialMergeSlot::kFc1Bias, "mm.0.bias", "^model.visual.merger.linear_fc1.bias"),
    merge(SpatialMergeSlot::kFc2, "mm.2.weight", "^model.visual.merger.linear_fc2.weight"),
    merge(SpatialMergeSlot::kFc2Bias, "mm.2.bias", "^model.visual.merger.linear_fc2.bias"),
};

}  // namespace qwen3_vl_tower

inline constexpr auto kQwen3VlTowerWeights = qwen3_vl_tower::kTowerWeights;
inline constexpr const Tower& kQwen3VlTower = qwen3_vl_tower::kTower;

// From the projector beside a GGUF model, or vision_config and the processor's file of a directory. REQUIRES: the decoder was read.
base::Result<> read_qwen3_vl_projector(const io::ModelFiles& files, ModelConfig& config);
base::Result<> read_qwen3_vl_tower(const HfKeys& keys, ModelConfig& config);

}  // namespace llorch::engine::models::families
