#pragma once
// What the families of latent attention share: its weights, its sizes and its rotation.
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {

// The keys' and values' half of kv_b: GGUF holds them apart, in old files together as Hugging Face does.
inline constexpr std::array kLatentAttention{
    optional_row(MlaSlot::kQ, "blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"),
    optional_row(MlaSlot::kQA, "blk.{}.attn_q_a.weight", "layers.{}.self_attn.q_a_proj.weight"),
    optional_row(MlaSlot::kQANorm, "blk.{}.attn_q_a_norm.weight", "layers.{}.self_attn.q_a_layernorm.weight"),
    optional_row(MlaSlot::kQB, "blk.{}.attn_q_b.weight", "layers.{}.self_attn.q_b_proj.weight"),
    row(MlaSlot::kKvA, "blk.{}.attn_kv_a_mqa.weight", "layers.{}.self_attn.kv_a_proj_with_mqa.weight"),
    row(MlaSlot::kKvANorm, "blk.{}.attn_kv_a_norm.weight", "layers.{}.self_attn.kv_a_layernorm.weight"),
    row(MlaSlot::kKB, "blk.{}.attn_k_b.weight", Source("layers.{}.self_attn.kv_b_proj.weight", Load::kHeadKeys)),
    row(MlaSlot::kKB, Source("blk.{}.attn_kv_b.weight", Load::kHeadKeys), ""),
    row(MlaSlot::kVB, "blk.{}.attn_v_b.weight", Source("layers.{}.self_attn.kv_b_proj.weight", Load::kHeadValues)),
    row(MlaSlot::kVB, Source("blk.{}.attn_kv_b.weight", Load::kHeadValues), ""),
    row(MlaSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"),
    optional_row(MlaSlot::kQABias, "blk.{}.attn_q_a.bias", "layers.{}.self_attn.q_a_proj.bias"),
    optional_row(MlaSlot::kKvABias, "blk.{}.attn_kv_a_mqa.bias", "layers.{}.self_attn.kv_a_proj_with_mqa.bias"),
    optional_row(MlaSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.self_attn.o_proj.bias"),
};

// The norms inside attention have an epsilon of their own in the library, whatever the configuration says of the others.
inline constexpr float kLatentNormEps = 1e-6F;

// What files of a family may leave out; 0: they must name it.
struct LatentAbsent {
  std::uint32_t d_v = 0;
  std::uint32_t original_context = 0;  // that factors of a long rotation stretch, in GGUF
};

// Sizes and scale; the second of each with the rotation that all layers have.
base::Result<> read_gguf_latent_sizes(const GgufKeys& keys, ModelConfig& config, const LatentAbsent& absent = {});
base::Result<> read_gguf_latent(const GgufKeys& keys, ModelConfig& config, const LatentAbsent& absent = {});
base::Result<> read_hf_latent_sizes(const HfKeys& keys, ModelConfig& config, const LatentAbsent& absent = {});
base::Result<> read_hf_latent(const HfKeys& keys, ModelConfig& config, const LatentAbsent& absent = {});
// Which slots a file must fill and which not, by the query compression and attention_bias.
base::Result<> demand_latent_weights(const HfKeys& keys, ModelConfig& config);
// Head counts of every layer, the first rotation for all of them where there is one, and what must hold.
base::Result<> finish_latent(const KeyNames& names, std::uint32_t heads, ModelConfig& config);

}  // namespace llorch::engine::models::families
