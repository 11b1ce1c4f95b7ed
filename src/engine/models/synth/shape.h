#pragma once
// The shape of a made-up model: what is given, and what follows for the rest.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/models/config/model_config.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// Absent numbers take what models of the architecture usually have at this size.
struct SynthShape {
  std::optional<std::uint32_t> layers, width, heads, kv_heads, head_dim, ffn, vocab, context;
  std::optional<std::uint32_t> experts, experts_used, expert_ffn, shared_experts, dense_layers;
  std::optional<std::uint32_t> window;
  std::optional<std::uint32_t> q_rank, kv_rank;     // latent attention
  std::optional<std::uint32_t> state, mixer_heads;  // Mamba-2
  std::optional<std::uint32_t> attention_period;    // of hybrids: every n-th layer attends
  std::optional<bool> tied;                         // the head is the embedding table
};

// A published model's numbers (its card and config.json).
struct SynthPreset {
  std::string_view name;
  std::string_view architecture;  // general.architecture
  SynthShape shape;
};
std::span<const SynthPreset> synth_presets();
const SynthPreset* find_synth_preset(std::string_view name);  // nullptr: no such

// `over` where it has a number, else `base`.
SynthShape merged(const SynthShape& base, const SynthShape& over);

struct SynthConfig {
  ModelConfig config;
  bool tied = false;
};
// Errors: INVALID_PARAMS (numbers that contradict each other).
base::Result<SynthConfig> synth_config(const Family& family, std::string_view architecture, const SynthShape& shape);

}  // namespace llorch::engine::models
