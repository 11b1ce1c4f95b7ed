#pragma once
// What layers of several families have beside their templates.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/models/config/hf_keys.h"
#include "engine/models/family.h"

namespace llorch::engine::models::families {

// The name of a layer's tensor under the first of the usual prefixes that has it; empty when none does.
std::string find_layer_tensor(const io::ModelFiles& files, std::string_view pattern, std::uint32_t layer);

// LayerConfig::output_scale of the layers that have such a tensor.
base::Result<> read_output_scales(const io::ModelFiles& files, std::string_view pattern, ModelConfig& config);

// per_layer_config of config.json: by the layer's number, head_dim and num_key_value_heads in place of the model's. Where it stands
// it counts alone.
base::Result<> read_layer_overrides(const HfKeys& keys, ModelConfig& config);

// The last `shared` layers read the cache of the last one before them with the same window. Errors: CONFIG_KEY_INVALID, naming `key`.
base::Result<> share_caches(std::uint32_t shared, const std::string& key, ModelConfig& config);

// Windows of every layer by layer_types, else all but each sixth; the last has none. Layers without one have heads of their own size
// and number, global_head_dim and num_global_key_value_heads, the number only where their keys are their values (attention_k_eq_v);
// then per_layer_config. REQUIRES: read_hf_heads was.
base::Result<> read_global_heads(const HfKeys& keys, ModelConfig& config);
// Of layers that project keys, those without a window project no values where keys are values. REQUIRES: caches are shared.
base::Result<> check_values(const HfKeys& keys, const ModelConfig& config);

// Of families with two mixers: the templates of dense layers and mixtures with the other one come first, then the same with attention.
// What `attends` is not set for has no heads. REQUIRES: a template is that of a dense layer or a mixture already, 0 or 1.
void place_attention(const std::vector<bool>& attends, ModelConfig& config);
// layer_types as such a list, where it is there.
base::Result<std::optional<std::vector<bool>>> read_hf_attending(const HfKeys& keys, std::size_t layers);

}  // namespace llorch::engine::models::families
