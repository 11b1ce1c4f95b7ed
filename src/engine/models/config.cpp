#include "engine/models/config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using base::Result;

// Bounds on single dimensions: far above any model, low enough that products of two fit 64 bits with room.
constexpr std::uint32_t kDimensionMax = 1U << 24;
constexpr std::uint32_t kLayersMax = 4096;

struct Keys {
  const io::GgufFile& file;
  std::string prefix;
  std::string operator()(std::string_view key) const { return prefix + "." + std::string(key); }
};

tl::unexpected<base::Error> impossible(const std::string& key, const std::string& value, std::string_view rule) {
  return base::fail(ErrorCode::kConfigKeyInvalid, fmt::format("{} = {}: {}", key, value, rule));
}

Result<std::uint32_t> count(const std::string& key, std::uint32_t value, std::uint32_t value_max = kDimensionMax) {
  if (value == 0 || value > value_max)
    return impossible(key, fmt::to_string(value), fmt::format("must be 1..{}", value_max));
  return value;
}

Result<std::uint32_t> read_count(const Keys& keys, std::string_view name, std::uint32_t value_max = kDimensionMax) {
  const std::string key = keys(name);
  return count(key, TRY(keys.file.u32(key)), value_max);
}

Result<std::uint32_t> read_count_or(const Keys& keys, std::string_view name, std::uint32_t absent) {
  const std::string key = keys(name);
  return count(key, TRY(keys.file.u32_or(key, absent)));
}

Result<RopeConfig> read_rope(const Keys& keys, contract::RopeLayout layout, std::uint32_t d_qk) {
  RopeConfig rope{.layout = layout};
  rope.dims = TRY(keys.file.u32_or(keys("rope.dimension_count"), d_qk));
  if (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > d_qk) {
    return impossible(keys("rope.dimension_count"), fmt::to_string(rope.dims),
                      fmt::format("must be even and 2..{}", d_qk));
  }
  rope.base = TRY(keys.file.f32_or(keys("rope.freq_base"), 10000.0F));
  if (!(rope.base >= 1.0)) return impossible(keys("rope.freq_base"), fmt::to_string(rope.base), "must be at least 1");
  // Files without the type but with a factor mean linear; the oldest spell the factor rope.scale_linear.
  const std::string type_key = keys("rope.scaling.type");
  const std::string_view type = TRY(keys.file.string_or(type_key, "linear"));
  if (type != "none" && type != "linear") {
    return impossible(type_key, std::string(type), "this family supports none, linear and rope_freqs.weight");
  }
  const float old_factor = TRY(keys.file.f32_or(keys("rope.scale_linear"), 1.0F));
  const float factor = TRY(keys.file.f32_or(keys("rope.scaling.factor"), old_factor));
  if (type == "linear" && factor != 0.0F) rope.factor = factor;  // 0 is how some writers spell "none"
  if (!(rope.factor > 0.0))
    return impossible(keys("rope.scaling.factor"), fmt::to_string(rope.factor), "must be positive");
  return rope;
}

Result<> read_attention(const Keys& keys, ModelConfig& config) {
  config.heads = TRY(read_count(keys, "attention.head_count"));
  config.kv_heads = TRY(read_count_or(keys, "attention.head_count_kv", config.heads));
  if (config.heads % config.kv_heads != 0) {
    return impossible(keys("attention.head_count_kv"), fmt::to_string(config.kv_heads),
                      fmt::format("must divide attention.head_count = {}", config.heads));
  }
  const std::string length_key = keys("attention.key_length");
  if (!keys.file.contains(length_key) && config.width % config.heads != 0) {
    return impossible(keys("attention.head_count"), fmt::to_string(config.heads),
                      fmt::format("must divide embedding_length = {} when key_length is absent", config.width));
  }
  const std::uint32_t d = config.width / config.heads;
  config.d_qk = TRY(read_count_or(keys, "attention.key_length", d));
  config.d_v = TRY(read_count_or(keys, "attention.value_length", d));
  for (const std::uint64_t product :
       {std::uint64_t{config.heads} * config.d_qk, std::uint64_t{config.heads} * config.d_v}) {
    if (product > kDimensionMax) {
      return impossible(keys("attention.head_count"), fmt::to_string(config.heads),
                        fmt::format("heads times head size must be at most {}", kDimensionMax));
    }
  }
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.d_qk)));
  return {};
}

}  // namespace

Result<ModelConfig> read_attention_config(const io::GgufFile& file, contract::RopeLayout rope_layout) {
  ModelConfig config;
  config.architecture = TRY(file.string("general.architecture"));
  config.name = TRY(file.string_or("general.name", ""));
  const Keys keys{file, config.architecture};
  config.context_tokens = TRY(read_count(keys, "context_length", 1U << 30));
  config.width = TRY(read_count(keys, "embedding_length"));
  config.layers = TRY(read_count(keys, "block_count", kLayersMax));
  config.ffn = TRY(read_count(keys, "feed_forward_length"));
  TRY(read_attention(keys, config));
  config.rope = TRY(read_rope(keys, rope_layout, config.d_qk));
  config.norm_eps = TRY(file.f32(keys("attention.layer_norm_rms_epsilon")));
  if (!(config.norm_eps >= 0.0F && config.norm_eps < 1.0F)) {
    return impossible(keys("attention.layer_norm_rms_epsilon"), fmt::to_string(config.norm_eps), "must be 0..1");
  }
  if (const std::uint32_t experts = TRY(file.u32_or(keys("expert_count"), 0)); experts != 0) {
    return impossible(keys("expert_count"), fmt::to_string(experts),
                      "this family is dense; mixtures of experts are not supported");
  }
  const io::GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return base::fail(ErrorCode::kMissingWeight,
                      file.source() + ": no tensor token_embd.weight; the file is not a complete model");
  }
  if (embedding->dims[1] > kDimensionMax) {
    return base::fail(
        ErrorCode::kWeightShapeMismatch,
        fmt::format("token_embd.weight has {} rows; at most {} are supported", embedding->dims[1], kDimensionMax));
  }
  config.vocab = static_cast<std::uint32_t>(embedding->dims[1]);
  return config;
}

}  // namespace llorch::engine::models
