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

base::Result<> read_global_heads(const HfKeys& keys, ModelConfig& config) {
  const bool keys_are_values = TRY(keys.text().boolean_or("attention_k_eq_v", false));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  const std::uint32_t window = TRY(read_hf_window(keys, 512));
  const std::uint32_t d_global = TRY(keys.count_or("global_head_dim", 512));
  const std::uint32_t kv_global = TRY(keys.number_or("num_global_key_value_heads", 0));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    const bool windowed =
        n + 1 != config.layers.size() && (types ? (*types)[n] == HfLayerType::kWindow : (n + 1) % 6 != 0);
    layer.window = windowed ? window : 0;
    layer.d_head = windowed ? config.attention.d_qk : d_global;
    if (!windowed && keys_are_values && kv_global != 0) layer.kv_heads = kv_global;
  }
  return read_layer_overrides(keys, config);
}

base::Result<> check_values(const HfKeys& keys, const ModelConfig& config) {
  const bool keys_are_values = TRY(keys.text().boolean_or("attention_k_eq_v", false));
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    const auto projects = [&](std::string_view what) { return !find_layer_tensor(keys.files(), what, n).empty(); };
    const LayerConfig& layer = config.layers[n];
    if (layer.cache_of == kOwnCache && projects("layers.{}.self_attn.k_proj.weight") &&
        projects("layers.{}.self_attn.v_proj.weight") == (layer.window == 0 && keys_are_values))
      return impossible(keys.key("attention_k_eq_v"), keys_are_values ? "true" : "false",
                        "the tensors of layer " + std::to_string(n) + " say otherwise");
  }
  return {};
}

void place_attention(const std::vector<bool>& attends, ModelConfig& config) {
  constexpr std::uint8_t kAttending = 2;
  for (std::size_t n = 0; n < attends.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    if (attends[n]) layer.layer_template += kAttending;
    if (!attends[n]) layer.heads = layer.kv_heads = 0;
  }
}

base::Result<std::optional<std::vector<bool>>> read_hf_attending(const HfKeys& keys, std::size_t layers) {
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", layers));
  if (!types) return std::optional<std::vector<bool>>();
  std::vector<bool> attends;
  for (const HfLayerType type : *types) attends.push_back(type == HfLayerType::kAttention);
  return std::optional(std::move(attends));
}

}  // namespace llorch::engine::models::families
