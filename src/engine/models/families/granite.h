#pragma once
// What Granite's families share: multipliers everywhere, and the weights of their experts.
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {

// Of the embeddings, of each branch and of the logits; in config.json that of attention's scores as well. In GGUF also whether layers
// rotate, which rope.scaling.finetuned says.
base::Result<> read_gguf_multipliers(const GgufKeys& keys, ModelConfig& config);
base::Result<> read_hf_multipliers(const HfKeys& keys, ModelConfig& config);

// Granite 4 without a state-space layer is written as granite or granitemoe, with the keys of the hybrid that its class is.
inline constexpr OtherKeys kGraniteGgufOthers =
    "feed_forward_length expert_shared_feed_forward_length ssm.conv_kernel ssm.group_count ssm.inner_size "
    "ssm.state_size "
    "ssm.time_step_rank";

// Hugging Face: gate rows, then up rows. GGUF splits them.
constexpr WeightRow granite_experts(MoeSlot slot, const char* gguf) {
  return row(slot, gguf,
             Source("layers.{}.block_sparse_moe.input_linear.weight", Load::kRows, MoeSlot::kGate, MoeSlot::kUp));
}
inline constexpr std::array kGraniteExperts{
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.router.layer.weight"),
    granite_experts(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight"),
    granite_experts(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight"),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight", "layers.{}.block_sparse_moe.output_linear.weight"),
};

}  // namespace llorch::engine::models::families
