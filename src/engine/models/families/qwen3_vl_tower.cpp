#include "engine/models/families/qwen3_vl_tower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include "base/join.h"

namespace llorch::engine::models::families {
namespace {

// Of every norm in the tower. Hugging Face has no key for it; converters write the decoder's into GGUF's.
constexpr float kTowerEps = 1e-6F;
constexpr double kTowerTheta = 10000.0;
constexpr std::uint32_t kMergeMax = 64;
// Of pictures, where nothing else is said: those of the processor that ships with the published models.
constexpr std::uint64_t kPixelsMin = 256 * 256;
constexpr std::uint64_t kPixelsMax = 4096 * 4096;
constexpr float kMean = 0.5F;
constexpr float kDeviation = 0.5F;

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
    return impossible("image_std", fmt::format("[{}]", base::join(deviation, ", ")),
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

}  // namespace

base::Result<> read_qwen3_vl_projector(const io::ModelFiles& files, ModelConfig& config) {
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

base::Result<> read_qwen3_vl_tower(const HfKeys& keys, ModelConfig& config) {
  TRY(read_hf_tower(keys, config));
  return read_hf_images(keys.files().hf_images(), config.vision);
}

}  // namespace llorch::engine::models::families
