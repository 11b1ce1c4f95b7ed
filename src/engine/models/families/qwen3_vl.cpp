// Qwen3-VL: Qwen3 with rotations by three positions, and a tower whose rows take the places of image
// tokens. A GGUF model keeps the tower in a file of its own; without that file it is a text model.
#include <fmt/format.h>

#include <algorithm>

#include "base/join.h"
#include "engine/models/families/families.h"
#include "engine/models/families/qwen3_vl_tower.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen3_vl {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

// transformers 5 stores the experts of a layer as they are used, 4 with the last two dimensions exchanged.
constexpr WeightRow experts(MoeSlot slot, const char* gguf, const char* hf, MoeSlot first, MoeSlot last) {
  return row(slot, gguf, Source(hf, Load::kRowsEitherWay, first, last));
}
constexpr const char* kGateUp = "layers.{}.mlp.experts.gate_up_proj";
constexpr std::array kExperts{
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.mlp.gate.weight"),
    experts(MoeSlot::kGate, "blk.{}.ffn_gate_exps.weight", kGateUp, MoeSlot::kGate, MoeSlot::kUp),
    experts(MoeSlot::kUp, "blk.{}.ffn_up_exps.weight", kGateUp, MoeSlot::kGate, MoeSlot::kUp),
    experts(MoeSlot::kDown, "blk.{}.ffn_down_exps.weight", "layers.{}.mlp.experts.down_proj", MoeSlot::kDown,
            MoeSlot::kDown),
};

constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms,
                                 kFfnWeights, kExperts, kQwen3VlTowerWeights);

constexpr std::array<std::string_view, 2> kGguf{"qwen3vl", "qwen3vlmoe"};
constexpr std::array<std::string_view, 2> kHf{"qwen3_vl", "qwen3_vl_moe"};
constexpr std::array<std::string_view, 2> kHfPrefixes{"model.language_model.", "model."};

// Frequencies of the time, the row and the column.
base::Result<> set_sections(ModelConfig& config, std::string_view key, const std::vector<std::uint32_t>& sections) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, sections.size()); ++i)
    sum += config.attention.sections[i] = sections[i];
  if (sections.size() < 3 || sum * 2 != config.ropes[0].dims) {
    return impossible(
        key, fmt::format("[{}]", base::join(sections, ", ")),
        fmt::format("must be three numbers that add up to half of the {} rotated dimensions", config.ropes[0].dims));
  }
  config.attention.mrope = plan::MropeKind::kInterleaved;
  return {};
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  if (config.architecture == kGguf[1]) {
    TRY(read_gguf_moe(keys, config));
    config.moe.norm_topk = true;
    for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  } else {
    TRY(read_gguf_ffn(keys, config));
  }
  const std::string key = keys.key("rope.dimension_sections");
  const std::vector<std::int32_t> sections = TRY(keys.file().i32_array(key));
  TRY(set_sections(config, key, std::vector<std::uint32_t>(sections.begin(), sections.end())));
  if (keys.files().projector() != nullptr) TRY(read_qwen3_vl_projector(keys.files(), config));
  return config;
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  TRY(read_hf_experts_chosen(keys, config.moe));
  config.moe.norm_topk = true;
  return read_hf_sparse_layers(keys, {}, config);
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const bool mixture = TRY(keys.root().string("model_type")) == kHf[1];
  const HfDefaults defaults{.head_dim = mixture ? 0U : 128U};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(mixture ? read_hf_experts(keys, config) : read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 500000.0}, config));
  std::vector<std::uint32_t> sections{24, 20, 20};
  const auto dictionary = TRY(keys.rope_dictionary());
  if (dictionary && dictionary->contains("mrope_section")) sections = TRY(dictionary->u32_list("mrope_section"));
  TRY(set_sections(config, "mrope_section", sections));
  TRY(read_qwen3_vl_tower(keys, config));
  return config;
}

}  // namespace

const Family kQwen3Vl{
    .name = "qwen3_vl",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .tower = &kQwen3VlTower,
    .hf_prefixes = kHfPrefixes,
    .gguf_others = "feed_forward_length n_deepstack_layers",
    .hf_others =
        "intermediate_size vision_config.initializer_range vision_config.model_type "
        "vision_config.rope_parameters.rope_type=\"axial\" rope_parameters.mrope_interleaved=true "
        "rope_scaling.mrope_interleaved=true",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::qwen3_vl
