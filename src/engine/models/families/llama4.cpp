// Llama 4: chunks of attention that rotate, whole contexts that do not, experts whose inputs are weighed.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::llama4 {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr WeightRow experts(MoeSlot slot, const char* gguf) {
  return row(
      slot, gguf,
      Source("layers.{}.feed_forward.experts.gate_up_proj", Load::kTransposedRows, MoeSlot::kGate, MoeSlot::kUp));
}
constexpr std::array kExperts{
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.feed_forward.router.weight"),
    experts(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight"),
    experts(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight"),
    row(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight",
        Source("layers.{}.feed_forward.experts.down_proj", Load::kTransposedRows, MoeSlot::kDown, MoeSlot::kDown)),
};
constexpr auto kFeedForward =
    concat(ffn_weights({.gate = "layers.{}.feed_forward.gate_proj.weight",
                        .up = "layers.{}.feed_forward.up_proj.weight",
                        .down = "layers.{}.feed_forward.down_proj.weight"}),
           shared_expert_weights({.gate = "layers.{}.feed_forward.shared_expert.gate_proj.weight",
                                  .up = "layers.{}.feed_forward.shared_expert.up_proj.weight",
                                  .down = "layers.{}.feed_forward.shared_expert.down_proj.weight"}));
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kExperts, kFeedForward);
constexpr std::array<std::string_view, 1> kGguf{"llama4"};
constexpr std::array<std::string_view, 2> kHf{"llama4", "llama4_text"};
constexpr std::array<std::string_view, 1> kClaimed{"rope_freqs.weight"};

// GGUF has no keys for these.
constexpr std::uint32_t kChunk = 8192;
constexpr std::uint32_t kFloorScale = 8192;
constexpr float kTemperature = 0.1F;
constexpr std::uint32_t kUnrotatedEvery = 4;
constexpr std::uint32_t kExpertsWithoutNorms = 128;

void choose_experts(ModelConfig& config) {
  config.moe.gate = plan::MoeGate::kSigmoid;
  config.moe.weighs_inputs = true;
  config.moe.ffn_shared = config.moe.ffn_expert;
}

// Layers that rotate see their own chunk and norm their heads; the others see everything.
void choose_layers(std::uint32_t chunk, bool norms, ModelConfig& config) {
  config.attention.chunked = true;
  for (LayerConfig& layer : config.layers) {
    if (layer.rope == kNoRope) continue;
    layer.window = chunk;
    if (norms) layer.qk_norm = plan::QkNorm::kUnitRotated;
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  TRY(read_gguf_moe(keys, config));
  choose_experts(config);
  const std::uint32_t step = TRY(keys.count("interleave_moe_layer_step"));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    config.layers[n].layer_template = (n + 1) % step == 0 ? kSparse : kDense;
    if ((n + 1) % kUnrotatedEvery == 0) config.layers[n].rope = kNoRope;
  }
  choose_layers(kChunk, config.moe.experts != kExpertsWithoutNorms, config);
  config.attention.temperature = {.factor = kTemperature, .length = kFloorScale, .offset = 1, .of_rotated = false};
  return config;
}

// Which layers are mixtures, and which rotate: 1 in no_rope_layers.
base::Result<> read_hf_layers(const HfKeys& keys, ModelConfig& config) {
  const std::size_t layers = config.layers.size();
  const std::uint32_t step = TRY(keys.count_or("interleave_moe_layer_step", 1));
  const std::uint32_t ffn = TRY(keys.count_or("intermediate_size_mlp", 16384));
  for (std::size_t n = 0; n < layers; ++n) {
    config.layers[n].layer_template = (n + 1) % step == 0 ? kSparse : kDense;
    config.layers[n].ffn = ffn;
  }
  if (keys.has("moe_layers")) {
    for (LayerConfig& layer : config.layers) layer.layer_template = kDense;
    for (const std::uint32_t n : TRY(keys.text().u32_list("moe_layers"))) {
      if (n >= layers) return impossible(keys.key("moe_layers"), std::to_string(n), "is no layer");
      config.layers[n].layer_template = kSparse;
    }
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kInterleaved, {.theta_absent = 5e5}, config));
  std::vector<std::uint32_t> rotates;
  if (keys.has("no_rope_layers")) rotates = TRY(keys.text().u32_list("no_rope_layers"));
  if (!rotates.empty()) rotates = TRY(keys.per_layer("no_rope_layers", layers));
  const std::uint32_t every = TRY(keys.count_or("no_rope_layer_interval", kUnrotatedEvery));
  for (std::size_t n = 0; n < layers; ++n) {
    if (rotates.empty() ? (n + 1) % every == 0 : rotates[n] == 0) config.layers[n].rope = kNoRope;
  }
  return {};
}

// layer_types says again which layers rotate.
base::Result<> check_layer_types(const HfKeys& keys, const ModelConfig& config) {
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; types && n < config.layers.size(); ++n) {
    if (((*types)[n] == HfLayerType::kChunked) != (config.layers[n].rope != kNoRope))
      return impossible(keys.key("layer_types"), "another word", "must be chunked_attention for layers that rotate");
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.eps = 1e-5F};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("num_local_experts"));
  moe.experts_used = TRY(keys.count_or("num_experts_per_tok", 1));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  choose_experts(config);
  TRY(read_hf_layers(keys, config));
  choose_layers(TRY(keys.count_or("attention_chunk_size", kChunk)), TRY(keys.text().boolean_or("use_qk_norm", true)),
                config);
  TRY(check_layer_types(keys, config));
  if (TRY(keys.text().boolean_or("attn_temperature_tuning", true))) {
    config.attention.temperature = {.factor = TRY(keys.text().f32_or("attn_scale", kTemperature)),
                                    .length = TRY(keys.count_or("floor_scale", kFloorScale)),
                                    .offset = 1,
                                    .of_rotated = false};
  }
  return config;
}

}  // namespace

const Family kLlama4{
    .name = "llama4",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::llama4
