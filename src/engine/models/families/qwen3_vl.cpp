// Qwen3-VL (engine.md 2.10): Qwen3 with rotations by three positions, and a tower whose rows take the places of image
// tokens. A GGUF model keeps the tower in a file of its own; without that file it is a text model.
#include <fmt/format.h>

#include <algorithm>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace {

using contract::PatchEmbedSlot;
using contract::SpatialMergeSlot;

constexpr std::array<Programme, 1> kProgrammes{kDenseBlock};

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

constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights, kTowerWeights);

constexpr std::array<std::string_view, 1> kGguf{"qwen3vl"};
constexpr std::array<std::string_view, 1> kHf{"qwen3_vl"};
constexpr std::array<std::string_view, 2> kHfPrefixes{"model.language_model.", "model."};

// Of every norm in the tower. Hugging Face has no key for it; converters write the decoder's into GGUF's.
constexpr float kTowerEps = 1e-6F;
constexpr double kTowerTheta = 10000.0;
constexpr std::uint32_t kMergeMax = 64;

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
  config.attention.mrope = contract::MropeKind::kInterleaved;
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
  vision.activation = contract::Activation::kGeluTanh;
  vision.extractions = TRY(read_clip_extractions(file, vision.depth));
  if (vision.width_out != config.width) {
    return impossible(
        "clip.vision.projection_dim", fmt::to_string(vision.width_out),
        fmt::format("must be the decoder's width {}; this projector belongs to another model", config.width));
  }
  TRY(read_image_tokens(*files.gguf(), vision));
  TRY(check_vision(config, "clip.vision.attention.head_count", "clip.vision.is_deepstack_layers"));
  finish_tower(config, kTowerTheta);
  return {};
}

base::Result<ModelConfig> read_gguf(const io::ModelFiles& files) {
  const GgufKeys keys = TRY(GgufKeys::of(files));
  ModelConfig config = TRY(read_gguf_dense(keys, contract::RopeLayout::kHalf));
  const std::string key = keys.key("rope.dimension_sections");
  const std::vector<std::int32_t> sections = TRY(keys.file().i32_array(key));
  TRY(set_sections(config, key, std::vector<std::uint32_t>(sections.begin(), sections.end())));
  if (files.projector() != nullptr) TRY(read_projector(files, config));
  return config;
}

base::Result<contract::Activation> tower_activation(const io::HfConfig& keys) {
  using contract::Activation;
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

base::Result<ModelConfig> read_hf(const io::ModelFiles& files) {
  const HfKeys keys = TRY(HfKeys::of(files));
  const HfDefaults defaults{.head_dim = 128};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", contract::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(read_hf_one_rope(keys, contract::RopeLayout::kHalf, {.theta_absent = 500000.0}, config));
  std::vector<std::uint32_t> sections{24, 20, 20};
  const auto dictionary = TRY(keys.rope_dictionary());
  if (dictionary && dictionary->contains("mrope_section")) sections = TRY(dictionary->u32_list("mrope_section"));
  TRY(set_sections(config, "mrope_section", sections));
  TRY(read_hf_tower(keys, config));
  return config;
}

}  // namespace

const Family kQwen3Vl{
    .name = "qwen3_vl",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .programmes = kProgrammes,
    .after = kAfter,
    .weights = kWeights,
    .tower = &kTower,
    .hf_prefixes = kHfPrefixes,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families
