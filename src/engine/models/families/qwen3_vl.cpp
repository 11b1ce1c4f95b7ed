// Qwen3-VL: Qwen3 with rotations by three positions, and a tower whose rows take the places of image
// tokens. A GGUF model keeps the tower in a file of its own; without that file it is a text model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen3_vl {
namespace {

using plan::PatchEmbedSlot;
using plan::SpatialMergeSlot;

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr std::array kTowerBefore{patch_embed()};
constexpr std::array kTowerBlock{norm(NormVariant::kTowerAttention), tower_attention(), add(),
                                 norm(NormVariant::kTowerFfn),       tower_ffn(),       add()};
constexpr std::array kTowerAfter{spatial_merge()};
constexpr Tower kTower{.before = kTowerBefore, .block = kTowerBlock, .after = kTowerAfter};

constexpr WeightRow in_tower(WeightRow any) {
  any.variant = kTowerVariant;
  return any;
}
constexpr WeightRow bias_of(NormVariant which, Source gguf, Source hf) {
  WeightRow bias = row(which, gguf, hf);
  bias.slot = static_cast<std::uint8_t>(NormSlot::kBias);
  return bias;
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

constexpr std::array kTowerWeights{
    patches(PatchEmbedSlot::kWeight, Source("v.patch_embd.weight", Load::kFrames),
            Source("^model.visual.patch_embed.proj.weight", Load::kReshaped)),
    patches(PatchEmbedSlot::kBias, "v.patch_embd.bias", "^model.visual.patch_embed.proj.bias"),
    patches(PatchEmbedSlot::kPositions, "v.position_embd.weight", "^model.visual.pos_embed.weight"),
    row(NormVariant::kTowerAttention, "v.blk.{}.ln1.weight", "^model.visual.blocks.{}.norm1.weight"),
    bias_of(NormVariant::kTowerAttention, "v.blk.{}.ln1.bias", "^model.visual.blocks.{}.norm1.bias"),
    of_qkv(AttentionSlot::kQ),
    of_qkv(AttentionSlot::kK),
    of_qkv(AttentionSlot::kV),
    of_qkv_bias(AttentionSlot::kQBias),
    of_qkv_bias(AttentionSlot::kKBias),
    of_qkv_bias(AttentionSlot::kVBias),
    in_tower(row(AttentionSlot::kO, "v.blk.{}.attn_out.weight", "^model.visual.blocks.{}.attn.proj.weight")),
    in_tower(row(AttentionSlot::kOBias, "v.blk.{}.attn_out.bias", "^model.visual.blocks.{}.attn.proj.bias")),
    row(NormVariant::kTowerFfn, "v.blk.{}.ln2.weight", "^model.visual.blocks.{}.norm2.weight"),
    bias_of(NormVariant::kTowerFfn, "v.blk.{}.ln2.bias", "^model.visual.blocks.{}.norm2.bias"),
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
                                 kFfnWeights, kExperts, kTowerWeights);

constexpr std::array<std::string_view, 2> kGguf{"qwen3vl", "qwen3vlmoe"};
constexpr std::array<std::string_view, 2> kHf{"qwen3_vl", "qwen3_vl_moe"};
constexpr std::array<std::string_view, 2> kHfPrefixes{"model.language_model.", "model."};

// Of every norm in the tower. Hugging Face has no key for it; converters write the decoder's into GGUF's.
constexpr float kTowerEps = 1e-6F;
constexpr double kTowerTheta = 10000.0;
constexpr std::uint32_t kMergeMax = 64;
// Of pictures, where nothing else is said: those of the processor that ships with the published models.
constexpr std::uint64_t kPixelsMin = 256 * 256;
constexpr std::uint64_t kPixelsMax = 4096 * 4096;
constexpr float kMean = 0.5F;
constexpr float kDeviation = 0.5F;

// Frequencies of the time, the row and the column.
base::Result<> set_sections(ModelConfig& config, std::string_view key, const std::vector<std::uint32_t>& sections) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, sections.size()); ++i)
    sum += config.attention.sections[i] = sections[i];
  if (sections.size() < 3 || sum * 2 != config.ropes[0].dims) {
    return impossible(
        key, fmt::format("[{}]", fmt::join(sections, ", ")),
        fmt::format("must be three numbers that add up to half of the {} rotated dimensions", config.ropes[0].dims));
  }
  config.attention.mrope = plan::MropeKind::kInterleaved;
  return {};
}

// What both formats leave to be derived.
void finish_tower(ModelConfig& config, double theta) {
  VisionConfig& vision = config.vision;
  vision.norm_eps = kTowerEps;
  vision.rope = static_cast<std::uint8_t>(config.ropes.size());
  config.ropes.push_back({.dims = vision.width / vision.heads, .base = theta, .kind = RopeKind::kAxial});
}

base::Result<std::uint32_t> clip_count(const io::GgufFile& file, std::string_view key,
                                       std::uint32_t value_max = kDimensionMax) {
  return check_count(key, TRY(file.u32(key)), value_max);
}

base::Result<std::vector<VisionConfig::Extraction>> read_clip_extractions(const io::GgufFile& file,
                                                                          std::uint32_t depth) {
  constexpr std::string_view kKey = "clip.vision.is_deepstack_layers";
  std::vector<VisionConfig::Extraction> extractions;
  const io::GgufValue* value = file.find(kKey);
  if (value == nullptr) return extractions;
  const auto* flags = std::get_if<io::GgufArray>(value);
  if (flags == nullptr || flags->element_type != io::GgufType::kBool || flags->count != depth) {
    return impossible(kKey, "something else", fmt::format("must be one flag for each of {} blocks", depth));
  }
  for (std::uint32_t layer = 0; layer < depth; ++layer) {
    if (flags->bytes[layer] != std::byte{0}) extractions.push_back({.layer = layer, .number = layer});
  }
  return extractions;
}

// The ids of the tokens that stand for rows of images and videos.
base::Result<> read_image_tokens(const io::GgufFile& file, VisionConfig& vision) {
  const std::vector<std::string_view> tokens = TRY(file.string_array("tokenizer.ggml.tokens"));
  std::size_t found = 0;
  for (std::string_view text : {"<|image_pad|>", "<|video_pad|>"}) {
    const auto at = std::ranges::find(tokens, text);
    if (at != tokens.end()) vision.image_row_ids[found++] = static_cast<std::uint32_t>(at - tokens.begin());
  }
  return {};
}

base::Result<> set_levels(VisionConfig& vision, const std::vector<float>& mean, const std::vector<float>& deviation) {
  const auto usable = [](float value) { return std::isfinite(value) && value > 0; };
  if (mean.size() != 3 || deviation.size() != 3 || !std::ranges::all_of(deviation, usable)) {
    return impossible("image_std", fmt::format("[{}]", fmt::join(deviation, ", ")),
                      "must be three positive numbers, and image_mean three numbers");
  }
  std::ranges::copy(mean, vision.mean.begin());
  std::ranges::copy(deviation, vision.deviation.begin());
  return {};
}

base::Result<> set_pixels(VisionConfig& vision, std::uint64_t pixels_min, std::uint64_t pixels_max) {
  if (pixels_min == 0 || pixels_min > pixels_max || pixels_max > (1ULL << 40))
    return impossible("size", fmt::format("{} to {} pixels", pixels_min, pixels_max), "must be a range");
  vision.pixels_min = pixels_min;
  vision.pixels_max = pixels_max;
  return {};
}

base::Result<> read_clip_images(const io::GgufFile& file, VisionConfig& vision) {
  const auto levels = [&](std::string_view key, float absent) -> base::Result<std::vector<float>> {
    if (file.find(key) == nullptr) return std::vector<float>(3, absent);
    return file.f32_array(key);
  };
  TRY(set_levels(vision, TRY(levels("clip.vision.image_mean", kMean)),
                 TRY(levels("clip.vision.image_std", kDeviation))));
  return set_pixels(vision, TRY(file.u32_or("clip.vision.image_min_pixels", kPixelsMin)),
                    TRY(file.u32_or("clip.vision.image_max_pixels", kPixelsMax)));
}

base::Result<> read_projector(const io::ModelFiles& files, ModelConfig& config) {
  const io::GgufFile& file = *files.projector();
  const std::string_view kind = TRY(file.string("clip.projector_type"));
  if (kind != "qwen3vl_merger") return impossible("clip.projector_type", std::string(kind), "must be qwen3vl_merger");
  VisionConfig& vision = config.vision;
  vision.depth = TRY(clip_count(file, "clip.vision.block_count", kLayersMax));
  vision.width = TRY(clip_count(file, "clip.vision.embedding_length"));
  vision.heads = TRY(clip_count(file, "clip.vision.attention.head_count", vision.width));
  vision.ffn = TRY(clip_count(file, "clip.vision.feed_forward_length"));
  vision.width_out = TRY(clip_count(file, "clip.vision.projection_dim"));
  vision.patch = TRY(clip_count(file, "clip.vision.patch_size", 1U << 10));
  vision.temporal = 2;  // as many tensors as the embedding of patches has
  vision.merge = TRY(clip_count(file, "clip.vision.spatial_merge_size", kMergeMax));
  vision.grid_side = TRY(clip_count(file, "clip.vision.image_size")) / vision.patch;
  vision.activation = plan::Activation::kGeluTanh;
  vision.extractions = TRY(read_clip_extractions(file, vision.depth));
  if (vision.width_out != config.width) {
    return impossible(
        "clip.vision.projection_dim", fmt::to_string(vision.width_out),
        fmt::format("must be the decoder's width {}; this projector belongs to another model", config.width));
  }
  TRY(read_image_tokens(*files.gguf(), vision));
  TRY(read_clip_images(file, vision));
  TRY(check_vision(config, "clip.vision.attention.head_count", "clip.vision.is_deepstack_layers"));
  finish_tower(config, kTowerTheta);
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
  if (keys.files().projector() != nullptr) TRY(read_projector(keys.files(), config));
  return config;
}

base::Result<plan::Activation> tower_activation(const io::HfConfig& keys) {
  using plan::Activation;
  const std::string_view word = TRY(keys.string_or("hidden_act", "gelu_pytorch_tanh"));
  if (word == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (word == "gelu") return Activation::kGeluErf;
  if (word == "silu") return Activation::kSilu;
  return impossible("vision_config.hidden_act", std::string(word), "must be gelu_pytorch_tanh, gelu or silu");
}

base::Result<std::uint32_t> side_of(std::uint32_t entries) {
  std::uint32_t side = 1;
  while (std::uint64_t{side} * side < entries) ++side;
  if (side * side == entries) return side;
  return impossible("vision_config.num_position_embeddings", fmt::to_string(entries), "must be a square");
}

base::Result<std::uint32_t> tower_count(const io::HfConfig& keys, std::string_view name, std::uint32_t absent,
                                        std::uint32_t value_max) {
  return check_count(fmt::format("vision_config.{}", name), TRY(keys.u32_or(name, absent)), value_max);
}

// Keys that are left out have the values of the library's class.
base::Result<> read_hf_tower(const HfKeys& keys, ModelConfig& config) {
  const io::HfConfig tower = TRY(keys.root().object("vision_config"));
  const auto count = [&](std::string_view name, std::uint32_t absent, std::uint32_t value_max = kDimensionMax) {
    return tower_count(tower, name, absent, value_max);
  };
  VisionConfig& vision = config.vision;
  vision.depth = TRY(count("depth", 27, kLayersMax));
  vision.width = TRY(count("hidden_size", 1152));
  vision.heads = TRY(count("num_heads", 16, vision.width));
  vision.ffn = TRY(count("intermediate_size", 4304));
  vision.width_out = TRY(count("out_hidden_size", 3584));
  vision.patch = TRY(count("patch_size", 16, 1U << 10));
  vision.temporal = TRY(count("temporal_patch_size", 2, 64));
  vision.merge = TRY(count("spatial_merge_size", 2, kMergeMax));
  vision.grid_side = TRY(side_of(TRY(count("num_position_embeddings", 2304))));
  vision.activation = TRY(tower_activation(tower));
  const std::uint32_t channels = TRY(count("in_channels", 3));
  if (channels != 3) return impossible("vision_config.in_channels", fmt::to_string(channels), "must be 3");
  if (vision.width_out != config.width) {
    return impossible("vision_config.out_hidden_size", fmt::to_string(vision.width_out),
                      fmt::format("must be the decoder's hidden_size {}", config.width));
  }
  std::vector<std::uint32_t> layers{8, 16, 24};
  if (tower.contains("deepstack_visual_indexes")) layers = TRY(tower.u32_list("deepstack_visual_indexes"));
  for (const std::uint32_t layer : layers)
    vision.extractions.push_back({.layer = layer, .number = static_cast<std::uint32_t>(vision.extractions.size())});
  vision.image_row_ids = {TRY(keys.root().u32_or("image_token_id", 151655)),
                          TRY(keys.root().u32_or("video_token_id", 151656))};
  TRY(check_vision(config, "vision_config.num_heads", "vision_config.deepstack_visual_indexes"));
  double theta = kTowerTheta;
  if (tower.contains("rope_parameters"))
    theta = TRY(TRY(tower.object("rope_parameters")).f32_or("rope_theta", static_cast<float>(theta)));
  finish_tower(config, theta);
  return {};
}

// What the directory says of pictures. `size` counts pixels, whatever its keys are called; older files spell it min_pixels and
// max_pixels.
base::Result<> read_hf_images(const io::HfConfig* processor, VisionConfig& vision) {
  std::vector<float> mean(3, kMean), deviation(3, kDeviation);
  std::uint64_t pixels_min = kPixelsMin, pixels_max = kPixelsMax;
  if (processor != nullptr) {
    if (processor->contains("image_mean")) mean = TRY(processor->f32_list("image_mean"));
    if (processor->contains("image_std")) deviation = TRY(processor->f32_list("image_std"));
    if (processor->contains("size")) {
      const io::HfConfig size = TRY(processor->object("size"));
      pixels_min = TRY(size.u64_or("shortest_edge", pixels_min));
      pixels_max = TRY(size.u64_or("longest_edge", pixels_max));
    }
    pixels_min = TRY(processor->u64_or("min_pixels", pixels_min));
    pixels_max = TRY(processor->u64_or("max_pixels", pixels_max));
    const std::pair<std::string_view, std::uint32_t> cuts[] = {
        {"patch_size", vision.patch}, {"temporal_patch_size", vision.temporal}, {"merge_size", vision.merge}};
    for (const auto& [key, tower] : cuts) {
      const std::uint32_t value = TRY(processor->u32_or(key, tower));
      if (value != tower) return impossible(key, fmt::to_string(value), fmt::format("must be the tower's {}", tower));
    }
  }
  TRY(set_levels(vision, mean, deviation));
  return set_pixels(vision, pixels_min, pixels_max);
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count_of({"num_experts", "num_local_experts"}));
  moe.experts_used = TRY(keys.count("num_experts_per_tok", moe.experts));
  moe.ffn_expert = TRY(keys.count("moe_intermediate_size"));
  moe.norm_topk = true;
  return read_hf_sparse_layers(keys, {.dense = kDense, .sparse = kSparse}, config);
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
  TRY(read_hf_tower(keys, config));
  TRY(read_hf_images(keys.files().hf_images(), config.vision));
  return config;
}

}  // namespace

const Family kQwen3Vl{
    .name = "qwen3_vl",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .tower = &kTower,
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
