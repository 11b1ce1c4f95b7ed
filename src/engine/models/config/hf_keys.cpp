#include "engine/models/config/hf_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/plan/slots.h"

namespace llorch::engine::models {

using base::ErrorCode;
using base::Result;
using io::HfConfig;

Result<HfKeys> HfKeys::of(const io::ModelFiles& files) {
  const HfConfig root = files.hf()->watched();
  if (!root.contains("text_config")) return HfKeys(files, root, root, "");
  return HfKeys(files, root, TRY(root.object("text_config")), "text_config.");
}

Result<std::string_view> text_model_type(const HfConfig& root) {
  // Mistral's and Llava's wrapper is one class around text models of several families.
  constexpr std::string_view kWrapper = "mistral3";
  const std::string_view type = TRY(root.string("model_type"));
  if (type != kWrapper || !root.contains("text_config")) return type;
  static constexpr std::string_view kTexts[] = {"mistral", "ministral3"};
  const HfConfig text = TRY(root.object("text_config"));
  const std::string_view of_text = TRY(text.string_or("model_type", kTexts[0]));
  const auto* known = std::ranges::find(kTexts, of_text);
  if (known == std::end(kTexts))
    return impossible("text_config.model_type", std::string(of_text), "must be mistral or ministral3 in mistral3");
  return *known;
}

Result<std::uint32_t> HfKeys::count(std::string_view name, std::uint32_t value_max) const {
  return check_count(key(name), TRY(text_.u32(name)), value_max);
}
Result<std::uint32_t> HfKeys::count_or(std::string_view name, std::uint32_t absent) const {
  if (absent == 0) return count(name);
  return check_count(key(name), TRY(text_.u32_or(name, absent)));
}
Result<std::uint32_t> HfKeys::number_or(std::string_view name, std::uint32_t absent) const {
  const std::uint32_t value = TRY(text_.u32_or(name, absent));
  if (value > kDimensionMax)
    return impossible(key(name), fmt::to_string(value), fmt::format("must be 0..{}", kDimensionMax));
  return value;
}
Result<std::vector<std::uint32_t>> HfKeys::per_layer(std::string_view name, std::size_t layers) const {
  std::vector<std::uint32_t> numbers = TRY(text_.u32_list(name));
  if (numbers.size() != layers) {
    return impossible(key(name), fmt::format("{} numbers", numbers.size()),
                      fmt::format("must have one for each of {} layers", layers));
  }
  return numbers;
}
Result<std::uint32_t> HfKeys::count_of(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    if (has(name)) return count(name);
  }
  return count(*names.begin());
}

Result<std::optional<HfConfig>> HfKeys::rope_dictionary() const {
  for (std::string_view name : {"rope_scaling", "rope_parameters"}) {
    if (has(name)) return std::optional<HfConfig>(TRY(text_.object(name)));
  }
  return std::optional<HfConfig>();
}

KeyNames HfKeys::names() const {
  return {.heads = key("num_attention_heads"),
          .kv_heads = key("num_key_value_heads"),
          .rope_dims = "the rotated part of a head (head_dim, partial_rotary_factor)",
          .rope_base = "rope_theta",
          .rope_factor = "factor of the rotation scaling",
          .rope_original = "original_max_position_embeddings"};
}

namespace {

// A model that says it is not tied has a head of its own.
Result<> read_hf_tie(const HfKeys& keys, bool absent, ModelConfig& config) {
  constexpr std::string_view kName = "tie_word_embeddings";
  // What stands at the top counts: a nested one may be its class's default.
  config.head_tied = TRY(keys.root().boolean_or(kName, TRY(keys.text().boolean_or(kName, absent))));
  if (!config.head_tied && (keys.has(kName) || keys.root().contains(kName)))
    config.demanded.push_back({plan::Opcode::kLmHead, slot_number(plan::LmHeadSlot::kWeight)});
  return {};
}

}  // namespace

Result<ModelConfig> read_hf_basics(const HfKeys& keys, const HfDefaults& defaults) {
  ModelConfig config;
  config.architecture = TRY(text_model_type(keys.root()));
  config.context_tokens = defaults.context != 0 ? TRY(keys.count_or(defaults.context_key, defaults.context))
                                                : TRY(keys.count(defaults.context_key, kContextMax));
  config.vocab = TRY(keys.number_or("vocab_size", 0));
  config.width = TRY(keys.count(defaults.width_key));
  config.layers.resize(defaults.layers != 0 ? defaults.layers : TRY(keys.count(defaults.layers_key, kLayersMax)));
  config.norm_eps = TRY(check_eps(keys.key(defaults.eps_key), TRY(keys.text().f32_or(defaults.eps_key, defaults.eps))));
  TRY(read_hf_tie(keys, defaults.tied, config));
  return config;
}

Result<> demand_if(const HfKeys& keys, std::string_view flag, bool absent, plan::Opcode opcode,
                   std::initializer_list<std::uint8_t> slots, ModelConfig& config) {
  const bool set = TRY(keys.text().boolean_or(flag, absent));
  if (!set && !keys.has(flag)) return {};
  for (const std::uint8_t slot : slots) (set ? config.demanded : config.forbidden).push_back({opcode, slot});
  return {};
}

Result<> refuse_if(const HfKeys& keys, std::string_view flag) {
  if (!TRY(keys.text().boolean_or(flag, false))) return {};
  return impossible(keys.key(flag), "true", "this build cannot run the family so");
}

Result<> demand_word(const HfKeys& keys, std::string_view name, std::string_view only) {
  const std::string_view word = TRY(keys.text().string_or(name, only));
  if (word == only) return {};
  return impossible(keys.key(name), std::string(word), fmt::format("must be {}", only));
}

Result<> demand_number(const HfKeys& keys, std::string_view name, std::uint32_t only) {
  const std::uint32_t number = TRY(keys.number_or(name, only));
  if (number == only) return {};
  return impossible(keys.key(name), fmt::to_string(number), fmt::format("must be {}", only));
}

Result<> demand_full_attention(const HfKeys& keys, const ModelConfig& config) {
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  if (!types || std::ranges::all_of(*types, [](HfLayerType type) { return type == HfLayerType::kAttention; }))
    return {};
  return impossible(keys.key("layer_types"), "other layers", "must be full_attention for each layer here");
}

Result<> demand_qkv_biases(const HfKeys& keys, ModelConfig& config, std::string_view flag, bool absent) {
  using plan::AttentionSlot;
  return demand_if(
      keys, flag, absent, plan::Opcode::kMultiheadAttention,
      {slot_number(AttentionSlot::kQBias), slot_number(AttentionSlot::kKBias), slot_number(AttentionSlot::kVBias)},
      config);
}

Result<> demand_attention_biases(const HfKeys& keys, ModelConfig& config, std::string_view flag, bool absent) {
  TRY(demand_qkv_biases(keys, config, flag, absent));
  return demand_if(keys, flag, absent, plan::Opcode::kMultiheadAttention, {slot_number(plan::AttentionSlot::kOBias)},
                   config);
}

Result<> read_hf_heads(const HfKeys& keys, const HfDefaults& defaults, ModelConfig& config) {
  const std::uint32_t heads = TRY(keys.count_or(defaults.heads_key, defaults.heads));
  const std::uint32_t kv_heads =
      TRY(keys.count_or("num_key_value_heads", defaults.kv_heads == 0 ? heads : defaults.kv_heads));
  std::uint32_t head_dim = defaults.head_dim;
  if (!keys.has("head_dim") && head_dim == 0) {
    if (config.width % heads != 0) {
      return impossible(keys.key(defaults.heads_key), fmt::to_string(heads),
                        fmt::format("must divide {} = {} when head_dim is absent", defaults.width_key, config.width));
    }
    head_dim = config.width / heads;
  }
  config.attention.d_qk = config.attention.d_v = TRY(keys.count_or("head_dim", head_dim));
  for (LayerConfig& layer : config.layers) {
    layer.heads = heads;
    layer.kv_heads = kv_heads;
  }
  return {};
}

Result<> read_hf_ffn(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t ffn = TRY(keys.count("intermediate_size"));
  for (LayerConfig& layer : config.layers) layer.ffn = ffn;
  return {};
}

Result<ModelConfig> read_hf_dense(const HfKeys& keys, const HfDefaults& defaults) {
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, defaults.activation_key, defaults.activation));
  return config;
}

Result<plan::Activation> read_hf_activation(const HfKeys& keys, std::string_view name, plan::Activation absent) {
  using plan::Activation;
  const std::string_view word = TRY(keys.text().string_or(name, ""));
  if (word.empty()) return absent;
  if (word == "silu" || word == "swish") return Activation::kSilu;
  if (word == "gelu_pytorch_tanh" || word == "gelu_new") return Activation::kGeluTanh;
  if (word == "gelu") return Activation::kGeluErf;
  if (word == "relu2") return Activation::kRelu2;
  return impossible(keys.key(name), std::string(word), "must be silu, gelu, gelu_new, gelu_pytorch_tanh or relu2");
}

Result<std::optional<std::vector<HfLayerType>>> read_hf_layer_types(const HfKeys& keys, std::string_view name,
                                                                    std::size_t layers) {
  if (!keys.has(name)) return std::optional<std::vector<HfLayerType>>();
  const std::vector<std::string_view> words = TRY(keys.text().string_list(name));
  if (words.size() != layers) {
    return impossible(keys.key(name), fmt::format("{} entries", words.size()),
                      fmt::format("must have one for each of {} layers", layers));
  }
  std::vector<HfLayerType> types;
  for (std::string_view word : words) {
    if (word == "attention" || word == "full_attention") {
      types.push_back(HfLayerType::kAttention);
    } else if (word == "sliding_attention") {
      types.push_back(HfLayerType::kWindow);
    } else if (word == "mamba" || word == "linear_attention") {
      types.push_back(HfLayerType::kMamba);
    } else if (word == "conv") {
      types.push_back(HfLayerType::kConv);
    } else if (word == "chunked_attention") {
      types.push_back(HfLayerType::kChunked);
    } else if (word == "mlp") {
      types.push_back(HfLayerType::kFfn);
    } else if (word == "moe") {
      types.push_back(HfLayerType::kMoe);
    } else {
      return impossible(keys.key(name), std::string(word), "is no type of layer this build knows");
    }
  }
  return std::optional(std::move(types));
}

Result<std::vector<HfLayerType>> read_hf_hybrid_layers(const HfKeys& keys) {
  for (const std::string_view name : {"layers_block_type", "layer_types"}) {
    if (!keys.has(name)) continue;
    const std::size_t layers = TRY(keys.text().string_list(name)).size();
    if (layers == 0 || layers > kLayersMax) return impossible(keys.key(name), fmt::to_string(layers), "is no depth");
    return *TRY(read_hf_layer_types(keys, name, layers));
  }
  constexpr std::string_view kLetters = "M*-E";
  constexpr HfLayerType kTypes[] = {HfLayerType::kMamba, HfLayerType::kAttention, HfLayerType::kFfn, HfLayerType::kMoe};
  std::vector<HfLayerType> types;
  for (const char letter : TRY(keys.text().string("hybrid_override_pattern"))) {
    const std::size_t known = kLetters.find(letter);
    if (known == kLetters.npos || types.size() == kLayersMax)
      return impossible(keys.key("hybrid_override_pattern"), std::string(1, letter), "is no type of layer");
    types.push_back(kTypes[known]);
  }
  if (types.empty()) return impossible(keys.key("hybrid_override_pattern"), "empty", "is no depth");
  return types;
}

Result<std::uint32_t> read_hf_window(const HfKeys& keys, std::uint32_t absent) {
  return keys.text().is_null("sliding_window") ? 0 : TRY(keys.number_or("sliding_window", absent));
}

Result<> read_hf_layer_windows(const HfKeys& keys, std::uint32_t window_absent, ModelConfig& config) {
  const std::uint32_t window = TRY(read_hf_window(keys, window_absent));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  for (std::size_t n = 0; types && n < config.layers.size(); ++n) {
    if ((*types)[n] == HfLayerType::kWindow) config.layers[n].window = window;
  }
  return {};
}

Result<> read_hf_rope_by_window(const HfKeys& keys, plan::RopeLayout layout, const HfRopeRules& rules,
                                ModelConfig& config) {
  HfRopeRules sliding = rules;
  sliding.layer_type = "sliding_attention";
  config.attention.rope_layout = layout;
  config.ropes = {TRY(read_hf_rope(keys, config.attention.d_qk, rules)),
                  TRY(read_hf_rope(keys, config.attention.d_qk, sliding))};
  for (LayerConfig& layer : config.layers) {
    if (layer.heads != 0) layer.rope = layer.window != 0 ? 1 : 0;
  }
  return finish_attention(config, keys.names());
}

Result<> read_hf_one_rope(const HfKeys& keys, plan::RopeLayout layout, const HfRopeRules& rules, ModelConfig& config) {
  config.attention.rope_layout = layout;
  config.ropes = {TRY(read_hf_rope(keys, config.attention.d_qk, rules))};
  for (LayerConfig& layer : config.layers) layer.rope = layer.heads == 0 ? kNoRope : 0;
  return finish_attention(config, keys.names());
}

Result<std::vector<bool>> read_hf_mlp_layer_types(const HfKeys& keys, std::size_t layers) {
  std::vector<bool> sparse;
  for (std::string_view word : TRY(keys.text().string_list("mlp_layer_types"))) {
    if (word != "dense" && word != "sparse")
      return impossible(keys.key("mlp_layer_types"), std::string(word), "must be dense or sparse");
    sparse.push_back(word == "sparse");
  }
  if (sparse.size() != layers) {
    return impossible(keys.key("mlp_layer_types"), fmt::format("{} entries", sparse.size()),
                      fmt::format("must have one for each of {} layers", layers));
  }
  return sparse;
}

Result<> read_hf_sparse_layers(const HfKeys& keys, const SparseLayerTemplates& layer_templates, ModelConfig& config) {
  const std::size_t layers = config.layers.size();
  std::vector<bool> sparse;
  if (keys.has("mlp_layer_types")) {
    sparse = TRY(read_hf_mlp_layer_types(keys, layers));
  } else {
    const std::uint32_t step = TRY(keys.count_or("decoder_sparse_step", 1));
    std::vector<std::uint32_t> dense;
    if (keys.has("mlp_only_layers")) dense = TRY(keys.text().u32_list("mlp_only_layers"));
    for (std::uint32_t n = 0; n < layers; ++n)
      sparse.push_back((n + 1) % step == 0 && std::ranges::find(dense, n) == dense.end());
  }
  for (std::size_t n = 0; n < layers; ++n) {
    LayerConfig& layer = config.layers[n];
    layer.layer_template = sparse[n] ? layer_templates.sparse : layer_templates.dense;
    if (!sparse[n]) layer.ffn = TRY(keys.count("intermediate_size"));
  }
  return {};
}

Result<> read_hf_experts_chosen(const HfKeys& keys, MoeConfig& moe, std::string_view width_key) {
  moe.experts = TRY(keys.count_of({"num_experts", "num_local_experts"}));
  moe.experts_used = TRY(keys.count("num_experts_per_tok", moe.experts));
  moe.ffn_expert = TRY(keys.count(width_key));
  return {};
}

Result<> read_hf_routed_experts(const HfKeys& keys, ModelConfig& config, const HfExpertKeys& names, bool grouped) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count_of({names.experts, "num_local_experts", "num_experts"}));
  const std::uint32_t chosen = TRY(keys.count_of({names.chosen, "num_experts_per_tok"}));
  moe.experts_used = TRY(check_count(keys.key(names.chosen), chosen, moe.experts));
  moe.ffn_expert = TRY(keys.count("moe_intermediate_size"));
  const std::uint64_t shared = std::uint64_t{TRY(keys.number_or(names.shared, names.shared_absent))} * moe.ffn_expert;
  if (shared > kDimensionMax) return impossible(keys.key(names.shared), fmt::to_string(shared), "is too wide");
  moe.ffn_shared = static_cast<std::uint32_t>(shared);
  if (!keys.text().is_null("routed_scaling_factor"))
    moe.weights_scale = TRY(keys.text().f32_or("routed_scaling_factor", names.scale_absent));
  moe.gate = plan::MoeGate::kSigmoid;
  moe.norm_topk = TRY(keys.text().boolean_or(names.normed, true));
  moe.group_score = plan::GroupScore::kTop2Sum;
  const std::uint32_t groups_used = TRY(keys.number_or("topk_group", names.groups_used_absent));
  if (const std::uint32_t groups = TRY(keys.number_or(names.groups, names.groups_absent)); grouped && groups > 1) {
    moe.groups = groups;
    moe.groups_used = TRY(check_count(keys.key("topk_group"), groups_used));
  }
  return check_moe(moe, keys.key(names.groups));
}

Result<> read_hf_dense_first(const HfKeys& keys, const SparseLayerTemplates& layer_templates, ModelConfig& config) {
  const std::size_t layers = config.layers.size();
  const std::uint32_t dense = TRY(keys.number_or("first_k_dense_replace", 0));
  std::vector<bool> sparse(layers);
  for (std::size_t n = 0; n < layers; ++n) sparse[n] = n >= dense;
  if (keys.has("mlp_layer_types")) sparse = TRY(read_hf_mlp_layer_types(keys, layers));
  for (std::size_t n = 0; n < layers; ++n) {
    config.layers[n].layer_template = sparse[n] ? layer_templates.sparse : layer_templates.dense;
    if (!sparse[n]) config.layers[n].ffn = TRY(keys.count("intermediate_size"));
  }
  return {};
}

Result<> read_hf_mamba(const HfKeys& keys, const HfMambaKeys& names, ModelConfig& config) {
  MambaConfig& m = config.mamba;
  const float expand = TRY(keys.text().f32_or(names.expand, 2));
  const double inner = names.width != 0 ? names.width : static_cast<double>(expand) * config.width;
  if (!(inner >= 1 && inner <= kDimensionMax)) {
    return impossible(keys.key(names.expand), fmt::format("{}", expand),
                      fmt::format("times hidden_size must be 1..{}", kDimensionMax));
  }
  m.d_inner = static_cast<std::uint32_t>(inner);
  m.heads = TRY(keys.count(names.heads));
  m.d_head =
      keys.text().kind(names.head_dim) == io::HfKind::kString ? m.d_inner / m.heads : TRY(keys.count(names.head_dim));
  m.d_state = TRY(keys.count(names.state));
  m.groups = TRY(keys.count_or(names.groups, names.groups_absent));
  m.d_conv = TRY(keys.count(names.taps));
  if (keys.has("time_step_limit")) {
    const auto limit = TRY(keys.text().f32_list("time_step_limit", HfConfig::Infinities::kAccept));
    if (limit.size() != 2)
      return impossible(keys.key("time_step_limit"), fmt::format("{} numbers", limit.size()), "must be two numbers");
    m.dt_min = limit[0];
    m.dt_max = limit[1];
  }
  return check_mamba(m, {.heads = keys.key(names.heads), .groups = keys.key(names.groups)});
}

}  // namespace llorch::engine::models
