#include <algorithm>
#include <array>

#include "engine/models/synth/shape.h"

namespace llorch::engine::models {
namespace {

// clang-format off
constexpr std::array kPresets{
    SynthPreset{"llama-1b", "llama", {.layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .ffn = 8192, .vocab = 128256, .context = 131072, .tied = true}},
    SynthPreset{"llama-3b", "llama", {.layers = 28, .width = 3072, .heads = 24, .kv_heads = 8, .ffn = 8192, .vocab = 128256, .context = 131072, .tied = true}},
    SynthPreset{"llama-8b", "llama", {.layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 128256, .context = 131072}},
    SynthPreset{"llama-70b", "llama", {.layers = 80, .width = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672, .vocab = 128256, .context = 131072}},
    SynthPreset{"mistral-7b", "llama", {.layers = 32, .width = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32768, .context = 32768}},
    SynthPreset{"qwen2.5-0.5b", "qwen2", {.layers = 24, .width = 896, .heads = 14, .kv_heads = 2, .ffn = 4864, .vocab = 151936, .context = 32768, .tied = true}},
    SynthPreset{"qwen2.5-7b", "qwen2", {.layers = 28, .width = 3584, .heads = 28, .kv_heads = 4, .ffn = 18944, .vocab = 152064, .context = 32768}},
    SynthPreset{"qwen3-0.6b", "qwen3", {.layers = 28, .width = 1024, .heads = 16, .kv_heads = 8, .head_dim = 128, .ffn = 3072, .vocab = 151936, .context = 40960, .tied = true}},
    SynthPreset{"qwen3-8b", "qwen3", {.layers = 36, .width = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 12288, .vocab = 151936, .context = 40960}},
    SynthPreset{"qwen3-30b-a3b", "qwen3moe", {.layers = 48, .width = 2048, .heads = 32, .kv_heads = 4, .head_dim = 128, .ffn = 6144, .vocab = 151936, .context = 40960, .experts = 128, .experts_used = 8, .expert_ffn = 768}},
    SynthPreset{"gpt-oss-20b", "gpt-oss", {.layers = 24, .width = 2880, .heads = 64, .kv_heads = 8, .head_dim = 64, .vocab = 201088, .context = 131072, .experts = 32, .experts_used = 4, .expert_ffn = 2880, .window = 128}},
    SynthPreset{"gemma2-2b", "gemma2", {.layers = 26, .width = 2304, .heads = 8, .kv_heads = 4, .head_dim = 256, .ffn = 9216, .vocab = 256000, .context = 8192, .window = 4096}},
    SynthPreset{"gemma3-1b", "gemma3", {.layers = 26, .width = 1152, .heads = 4, .kv_heads = 1, .head_dim = 256, .ffn = 6912, .vocab = 262144, .context = 32768, .window = 512}},
    SynthPreset{"phi4-mini", "phi3", {.layers = 32, .width = 3072, .heads = 24, .kv_heads = 8, .ffn = 8192, .vocab = 200064, .context = 131072, .tied = true}},
    SynthPreset{"deepseek-v2-lite", "deepseek2", {.layers = 27, .width = 2048, .heads = 16, .ffn = 10944, .vocab = 102400, .context = 163840, .experts = 64, .experts_used = 6, .expert_ffn = 1408, .shared_experts = 2, .dense_layers = 1, .q_rank = 0, .kv_rank = 512}},
    SynthPreset{"deepseek-v3", "deepseek2", {.layers = 61, .width = 7168, .heads = 128, .ffn = 18432, .vocab = 129280, .context = 163840, .experts = 256, .experts_used = 8, .expert_ffn = 2048, .shared_experts = 1, .dense_layers = 3, .q_rank = 1536, .kv_rank = 512}},
    SynthPreset{"mamba2-2.7b", "mamba2", {.layers = 64, .width = 2560, .vocab = 50288, .state = 128, .mixer_heads = 80, .tied = true}},
    SynthPreset{"lfm2-1.2b", "lfm2", {.layers = 16, .width = 2048, .heads = 32, .kv_heads = 8, .ffn = 8192, .vocab = 65536, .context = 128000, .attention_period = 3, .tied = true}},
    SynthPreset{"granite-4-h-tiny", "granitehybrid", {.layers = 40, .width = 1536, .heads = 12, .kv_heads = 4, .vocab = 100352, .context = 131072, .experts = 64, .experts_used = 6, .expert_ffn = 512, .shared_experts = 2, .state = 128, .mixer_heads = 48, .attention_period = 10, .tied = true}},
};
// clang-format on

template <class T>
void take(std::optional<T>& into, const std::optional<T>& from) {
  if (from) into = from;
}

}  // namespace

std::span<const SynthPreset> synth_presets() { return kPresets; }

const SynthPreset* find_synth_preset(std::string_view name) {
  const auto at = std::ranges::find(kPresets, name, &SynthPreset::name);
  return at == kPresets.end() ? nullptr : &*at;
}

SynthShape merged(const SynthShape& base, const SynthShape& over) {
  SynthShape shape = base;
  for (const auto number :
       {&SynthShape::layers, &SynthShape::width, &SynthShape::heads, &SynthShape::kv_heads, &SynthShape::head_dim,
        &SynthShape::ffn, &SynthShape::vocab, &SynthShape::context, &SynthShape::experts, &SynthShape::experts_used,
        &SynthShape::expert_ffn, &SynthShape::shared_experts, &SynthShape::dense_layers, &SynthShape::window,
        &SynthShape::q_rank, &SynthShape::kv_rank, &SynthShape::state, &SynthShape::mixer_heads,
        &SynthShape::attention_period}) {
    take(shape.*number, over.*number);
  }
  take(shape.tied, over.tied);
  return shape;
}

}  // namespace llorch::engine::models
