#include "engine/models/families/layers.h"

#include <charconv>

#include "engine/models/families/standard.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families {

std::string find_layer_tensor(const io::ModelFiles& files, std::string_view pattern, std::uint32_t layer) {
  for (const std::string_view prefix : kPrefixes) {
    std::string name = std::string(prefix) + tensor_name(pattern, layer);
    if (files.find_tensor(name) != nullptr) return name;
  }
  return {};
}

base::Result<> read_output_scales(const io::ModelFiles& files, std::string_view pattern, ModelConfig& config) {
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    const std::string name = find_layer_tensor(files, pattern, n);
    if (!name.empty()) config.layers[n].output_scale = TRY(read_number(files, name));
  }
  return {};
}

base::Result<> read_layer_overrides(const HfKeys& keys, ModelConfig& config) {
  if (!keys.has("per_layer_config")) return {};
  const io::HfConfig all = TRY(keys.text().object("per_layer_config"));
  const std::uint32_t kv_heads = TRY(keys.count_or("num_key_value_heads", config.layers[0].kv_heads));
  for (LayerConfig& layer : config.layers) {
    layer.d_head = config.attention.d_qk;
    layer.kv_heads = kv_heads;
  }
  for (const std::string_view number : all.keys()) {  // with zeros in front or without
    std::uint32_t n = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
    if (error != std::errc() || end != number.data() + number.size() || n >= config.layers.size())
      return impossible(keys.key("per_layer_config"), std::string(number), "must be the number of a layer");
    const io::HfConfig one = TRY(all.object(number));
    LayerConfig& layer = config.layers[n];
    layer.d_head = TRY(check_count("per_layer_config.head_dim", TRY(one.u32_or("head_dim", layer.d_head))));
    layer.kv_heads =
        TRY(check_count("per_layer_config.num_key_value_heads", TRY(one.u32_or("num_key_value_heads", kv_heads))));
  }
  return {};
}

base::Result<> share_caches(std::uint32_t shared, const std::string& key, ModelConfig& config) {
  std::vector<LayerConfig>& layers = config.layers;
  if (shared >= layers.size()) return impossible(key, std::to_string(shared), "leaves no layer with a cache");
  const std::size_t own = layers.size() - shared;
  for (std::size_t n = own; n < layers.size(); ++n) {
    std::size_t of = own;
    while (of != 0 && layers[of - 1].window != layers[n].window) --of;
    if (of == 0 || layers[of - 1].kv_heads != layers[n].kv_heads || layers[of - 1].d_head != layers[n].d_head)
      return impossible(key, std::to_string(shared), "leaves a layer without a cache of its kind to read");
    layers[n].cache_of = static_cast<std::uint32_t>(of - 1);
  }
  return {};
}

}  // namespace llorch::engine::models::families
