#include "engine/models/families/compressed.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace llorch::engine::models::families {
namespace {

constexpr std::string_view kSparse = "compressed_sparse_attention", kHeavy = "heavily_compressed_attention";

// The word of every layer: layer_types, or numbers that stand for them, or the class's own order.
base::Result<std::vector<std::string_view>> read_types(const HfKeys& keys, std::size_t layers) {
  if (keys.has("layer_types")) return keys.text().string_list("layer_types");
  std::vector<std::string_view> words;
  if (!keys.has("compress_ratios")) {
    for (std::size_t n = 0; n < layers; ++n) words.push_back(n < 2 || n % 2 == 0 ? kHeavy : kSparse);
    return words;
  }
  for (const std::uint32_t ratio : TRY(keys.text().u32_list("compress_ratios"))) {
    if (ratio != 0 && ratio != 4 && ratio != 128)
      return impossible(keys.key("compress_ratios"), std::to_string(ratio), "must be 0, 4 or 128");
    words.push_back(ratio == 0 ? "sliding_attention" : ratio == 4 ? kSparse : kHeavy);
  }
  words.resize(std::min(words.size(), layers));
  return words;
}

}  // namespace

base::Result<> read_hf_compressed_layers(const HfKeys& keys, ModelConfig& config) {
  std::optional<io::HfConfig> rates;
  if (keys.has("compress_rates")) rates = TRY(keys.text().object("compress_rates"));
  const auto rate_of = [&](std::string_view word, std::string_view flat, std::uint32_t absent) {
    return keys.has(flat) || !rates ? keys.count_or(flat, absent) : rates->u32(word);
  };
  const std::uint32_t sparse = TRY(rate_of(kSparse, "compress_rate_csa", 4)),
                      heavy = TRY(rate_of(kHeavy, "compress_rate_hca", 128));
  TRY(check_count(keys.key("compress_rates"), sparse));
  TRY(check_count(keys.key("compress_rates"), heavy));
  const auto types = TRY(read_types(keys, config.layers.size()));
  const std::uint32_t heads = TRY(keys.count_or("num_attention_heads", 64)),
                      window = TRY(keys.count_or("sliding_window", 128));
  if (types.size() != config.layers.size())
    return impossible(keys.key("layer_types"), std::to_string(types.size()), "must be one for each layer");
  for (std::size_t n = 0; n < types.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    layer.indexed = types[n] == kSparse;
    layer.rate = layer.indexed ? sparse : types[n] == kHeavy ? heavy : 0;
    if (layer.rate == 0 && types[n] != "sliding_attention")
      return impossible(keys.key("layer_types"), std::string(types[n]), "is no attention of this family");
    layer.rope = layer.rate != 0 ? 1 : 0;
    layer.layer_template = layer.rate != 0 ? 1 : 0;
    layer.heads = heads;
    layer.kv_heads = 1;
    layer.window = window;
  }
  return {};
}

base::Result<> read_hf_hashed_layers(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t hashed = TRY(keys.number_or("num_hash_layers", 3));
  for (std::size_t n = 0; n < config.layers.size(); ++n) config.layers[n].routed_by_table = n < hashed;
  if (!keys.has("mlp_layer_types")) return {};
  const std::vector<std::string_view> types = TRY(keys.text().string_list("mlp_layer_types"));
  if (types.size() != config.layers.size())
    return impossible(keys.key("mlp_layer_types"), std::to_string(types.size()), "must be one for each layer");
  for (std::size_t n = 0; n < types.size(); ++n) {
    config.layers[n].routed_by_table = types[n] == "hash_moe";
    if (types[n] != "hash_moe" && types[n] != "moe")
      return impossible(keys.key("mlp_layer_types"), std::string(types[n]), "must be hash_moe or moe");
  }
  return {};
}

base::Result<> read_hf_compressed_ropes(const HfKeys& keys, std::uint32_t d_head, ModelConfig& config) {
  const float rotated =
      TRY(keys.text().f32_or("qk_rope_head_dim", static_cast<float>(d_head) / 8)) / static_cast<float>(d_head);
  const HfRopeRules rules{.partial = true, .partial_absent = rotated};
  const auto dictionary = TRY(keys.rope_dictionary());
  if (dictionary && dictionary->kind("main") == io::HfKind::kObject) {
    constexpr HfRopeRules kOwn{.partial = true};
    for (const std::string_view name : {"main", "compress"})
      config.ropes.push_back(TRY(read_hf_rope(keys, TRY(dictionary->object(name)), d_head, kOwn)));
  } else {
    config.ropes = {TRY(read_hf_rope(keys, std::nullopt, d_head, rules)),
                    TRY(read_hf_rope(keys, dictionary, d_head, rules))};
    config.ropes[1].base = TRY(keys.text().f32_or("compress_rope_theta", 160000));
    if (config.ropes[1].kind == RopeKind::kYarn && !dictionary->contains("attention_factor"))
      config.ropes[1].attn_factor = 1;
  }
  for (const RopeConfig& rope : config.ropes) TRY(check_rope(rope, d_head, keys.names()));
  config.attention.rope_layout = plan::RopeLayout::kInterleaved;
  return {};
}

base::Result<> check_compressed(const KeyNames& names, const ModelConfig& config) {
  const std::uint64_t heads = config.layers[0].heads, widest = heads * config.compressed.d_head;
  if (heads % config.compressed.groups != 0)
    return impossible("o_groups", std::to_string(config.compressed.groups), "must divide the heads");
  const std::uint64_t streams = std::uint64_t{config.hyper.streams} * config.width,
                      index = std::uint64_t{config.index.heads} * config.index.d_index,
                      ranks = std::uint64_t{config.compressed.groups} * config.compressed.o_rank;
  if (std::max({widest, streams, index, ranks}) > kDimensionMax) {
    return impossible(names.heads, std::to_string(heads),
                      "heads, streams, an index or the groups of the output are too wide together");
  }
  return {};
}

}  // namespace llorch::engine::models::families
