#include "engine/models/config/gguf_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

namespace llorch::engine::models {

using base::ErrorCode;
using base::Result;

Result<GgufKeys> GgufKeys::of(const io::ModelFiles& files) {
  const std::string_view architecture = TRY(files.gguf()->string("general.architecture"));
  return GgufKeys(files, std::string(architecture) + ".");
}

std::string GgufKeys::key(std::string_view name) const { return *asked_.insert(prefix_ + std::string(name)).first; }

std::vector<const io::GgufEntry*> GgufKeys::unread() const {
  std::vector<const io::GgufEntry*> out;
  for (const io::GgufEntry& entry : file().metadata()) {
    if (entry.key.starts_with(prefix_) && !asked_.contains(entry.key)) out.push_back(&entry);
  }
  return out;
}

Result<std::uint32_t> GgufKeys::count(std::string_view name, std::uint32_t value_max) const {
  return check_count(key(name), TRY(file().u32(key(name))), value_max);
}
Result<std::uint32_t> GgufKeys::count_or(std::string_view name, std::uint32_t absent) const {
  return check_count(key(name), TRY(file().u32_or(key(name), absent)));
}
Result<std::uint32_t> GgufKeys::number_or(std::string_view name, std::uint32_t absent) const {
  const std::uint32_t value = TRY(file().u32_or(key(name), absent));
  if (value > kDimensionMax)
    return impossible(key(name), fmt::to_string(value), fmt::format("must be 0..{}", kDimensionMax));
  return value;
}
Result<float> GgufKeys::real_or(std::string_view name, float absent) const { return file().f32_or(key(name), absent); }
Result<bool> GgufKeys::flag_or(std::string_view name, bool absent) const {
  return file().boolean_or(key(name), absent);
}
Result<std::string_view> GgufKeys::text_or(std::string_view name, std::string_view absent) const {
  return file().string_or(key(name), absent);
}

Result<std::vector<std::uint32_t>> GgufKeys::per_layer(std::string_view name, std::size_t layers,
                                                       std::uint32_t absent) const {
  const io::GgufValue* value = file().find(key(name));
  if (value == nullptr || io::type_of(*value) != io::GgufType::kArray)
    return std::vector<std::uint32_t>(layers, TRY(number_or(name, absent)));
  const auto& array = std::get<io::GgufArray>(*value);
  std::vector<std::int32_t> numbers;
  if (array.element_type == io::GgufType::kBool) {
    for (const std::byte flag : array.bytes) numbers.push_back(std::to_integer<std::int32_t>(flag));
  } else {
    numbers = TRY(file().i32_array(key(name)));
  }
  if (numbers.size() != layers) {
    return impossible(key(name), fmt::format("{} numbers", numbers.size()),
                      fmt::format("must have one for each of {} layers", layers));
  }
  for (const std::int32_t number : numbers) {
    if (number < 0 || static_cast<std::uint32_t>(number) > kDimensionMax)
      return impossible(key(name), fmt::to_string(number), fmt::format("must be 0..{}", kDimensionMax));
  }
  return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
}

KeyNames GgufKeys::names() const {
  return {.heads = prefix_ + "attention.head_count",
          .kv_heads = prefix_ + "attention.head_count_kv",
          .rope_dims = prefix_ + "rope.dimension_count",
          .rope_base = prefix_ + "rope.freq_base",
          .rope_factor = prefix_ + "rope.scaling.factor",
          .rope_original = prefix_ + "rope.scaling.original_context_length"};
}

Result<ModelConfig> read_gguf_basics(const GgufKeys& keys) {
  ModelConfig config;
  config.architecture = TRY(keys.file().string("general.architecture"));
  config.name = TRY(keys.file().string_or("general.name", ""));
  config.context_tokens = TRY(keys.count("context_length", kContextMax));
  config.width = TRY(keys.count("embedding_length"));
  config.layers.resize(TRY(keys.count("block_count", kLayersMax)));
  const bool is_plain = !keys.has("attention.layer_norm_rms_epsilon") && keys.has("attention.layer_norm_epsilon");
  const std::string eps = keys.key(is_plain ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
  config.norm_eps = TRY(check_eps(eps, TRY(keys.file().f32(eps))));
  config.logit_softcap = TRY(keys.real_or("final_logit_softcapping", 0));
  return config;
}

Result<> drop_gguf_prediction_layers(const GgufKeys& keys, ModelConfig& config) {
  const std::uint32_t further = TRY(keys.number_or("nextn_predict_layers", 0));
  if (further >= config.layers.size()) {
    return impossible(keys.key("nextn_predict_layers"), fmt::to_string(further),
                      fmt::format("must be less than block_count = {}", config.layers.size()));
  }
  config.layers.resize(config.layers.size() - further);
  return {};
}

namespace {

// One for every two elements of a head, of which the widest in use have 512: what a file can make the reader allocate.
constexpr std::uint64_t kDivisorsMax = 65'536;

// A tensor of R/2 divisors; empty when the file has none.
Result<std::vector<float>> read_divisors(const io::ModelFiles& files, std::string_view name) {
  const io::FileTensor* tensor = files.find_tensor(name);
  if (tensor == nullptr) return std::vector<float>{};
  if (tensor->type != io::StoredType::kF32) {
    return base::fail(ErrorCode::kWeightDTypeUnsupported,
                      fmt::format("{} is {}; it must be F32", name, io::describe(*tensor)));
  }
  if (tensor->elements_count() > kDivisorsMax) {
    return base::fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} is {}; a rotation has at most {} divisors", name,
                                                                   io::describe(*tensor), kDivisorsMax));
  }
  std::vector<float> divisors(tensor->elements_count());
  TRY(tensor->data.read(0, std::as_writable_bytes(std::span(divisors))));
  return divisors;
}

Result<> read_yarn(const GgufKeys& keys, RopeConfig& rope) {
  rope.kind = RopeKind::kYarn;
  rope.original_context = TRY(keys.count("rope.scaling.original_context_length", kContextMax));
  rope.beta_fast = TRY(keys.real_or("rope.scaling.yarn_beta_fast", 32));
  rope.beta_slow = TRY(keys.real_or("rope.scaling.yarn_beta_slow", 1));
  const float given =
      TRY(keys.real_or("rope.scaling.yarn_attn_factor", TRY(keys.real_or("rope.scaling.attn_factor", 1))));
  rope.attn_factor = static_cast<float>(given * yarn_magnitude(1, rope.factor));
  return {};
}

}  // namespace

Result<RopeConfig> read_gguf_rope(const GgufKeys& keys, std::uint32_t dims, std::uint32_t original_absent) {
  RopeConfig rope{.dims = dims};
  rope.base = TRY(keys.real_or("rope.freq_base", 10000.0F));
  // Files without the type but with a factor mean linear; the oldest spell the factor rope.scale_linear.
  const std::string_view type = TRY(keys.text_or("rope.scaling.type", "linear"));
  const float old_factor = TRY(keys.real_or("rope.scale_linear", 1.0F));
  const float factor = TRY(keys.real_or("rope.scaling.factor", old_factor));
  if (factor != 0.0F) rope.factor = factor;  // 0 is how some writers spell "none"
  if (type == "yarn") {
    TRY(read_yarn(keys, rope));
  } else if (type == "linear") {
    rope.kind = rope.factor == 1.0 ? RopeKind::kPlain : RopeKind::kLinear;
  } else if (type != "none" && type != "longrope") {
    return impossible(keys.key("rope.scaling.type"), std::string(type), "must be none, linear, yarn or longrope");
  }
  rope.divisors = TRY(read_divisors(keys.files(), "rope_freqs.weight"));
  const std::vector<float> divisors_short = TRY(read_divisors(keys.files(), "rope_factors_short.weight"));
  rope.divisors_long = TRY(read_divisors(keys.files(), "rope_factors_long.weight"));
  if (divisors_short.empty() != rope.divisors_long.empty()) {
    return base::fail(ErrorCode::kMissingWeight,
                      "of rope_factors_short.weight and rope_factors_long.weight only one is there");
  }
  if (!divisors_short.empty()) {
    rope.kind = RopeKind::kPlain;
    rope.divisors = divisors_short;
    const bool named = original_absent == 0 || keys.has("rope.scaling.original_context_length");
    rope.original_context =
        named ? TRY(keys.count("rope.scaling.original_context_length", kContextMax)) : original_absent;
    rope.attn_factor = TRY(keys.real_or("rope.scaling.attn_factor", 1.0F));
  }
  return rope;
}

Result<> read_gguf_attention(const GgufKeys& keys, plan::RopeLayout layout, ModelConfig& config) {
  const std::size_t layers = config.layers.size();
  const std::vector<std::uint32_t> heads = TRY(keys.per_layer("attention.head_count", layers, 0));
  if (heads.front() == 0) TRY(keys.count("attention.head_count"));  // absent or 0
  const std::vector<std::uint32_t> kv_heads = TRY(keys.per_layer("attention.head_count_kv", layers, heads.front()));
  if (!keys.has("attention.key_length") && config.width % heads.front() != 0) {
    return impossible(keys.key("attention.head_count"), fmt::to_string(heads.front()),
                      fmt::format("must divide embedding_length = {} when key_length is absent", config.width));
  }
  const std::uint32_t d = config.width / heads.front();
  AttentionConfig& a = config.attention;
  a.d_qk = TRY(keys.count_or("attention.key_length", d));
  a.d_v = TRY(keys.count_or("attention.value_length", d));
  a.rope_layout = layout;
  a.scale = TRY(keys.real_or("attention.scale", 0));
  a.logit_softcap = TRY(keys.real_or("attn_logit_softcapping", 0));
  const bool kv_is_list = keys.has("attention.head_count_kv") &&
                          io::type_of(*keys.file().find(keys.key("attention.head_count_kv"))) == io::GgufType::kArray;
  for (std::size_t n = 0; n < layers; ++n) {
    if (kv_heads[n] == 0 && kv_is_list) continue;
    config.layers[n].heads = heads[n];
    config.layers[n].kv_heads = kv_heads[n];
    config.layers[n].rope = 0;
  }
  config.ropes = {TRY(read_gguf_rope(keys, TRY(keys.number_or("rope.dimension_count", a.d_qk))))};
  TRY(finish_attention(config, keys.names()));
  if (layout != plan::RopeLayout::kNone) return {};
  config.ropes.clear();
  for (LayerConfig& layer : config.layers) layer.rope = kNoRope;
  return {};
}

Result<> read_gguf_ffn(const GgufKeys& keys, ModelConfig& config) {
  if (!keys.has("feed_forward_length")) TRY(keys.count("feed_forward_length"));
  const std::vector<std::uint32_t> sizes = TRY(keys.per_layer("feed_forward_length", config.layers.size(), 0));
  for (std::size_t n = 0; n < sizes.size(); ++n)
    config.layers[n].ffn = TRY(check_count(keys.key("feed_forward_length"), sizes[n]));
  return {};
}

Result<ModelConfig> read_gguf_dense(const GgufKeys& keys, plan::RopeLayout layout) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, layout, config));
  TRY(read_gguf_ffn(keys, config));
  return config;
}

Result<> read_gguf_moe(const GgufKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("expert_count"));
  moe.experts_used = TRY(keys.count("expert_used_count", moe.experts));
  moe.ffn_expert = TRY(keys.has("expert_feed_forward_length") ? keys.count("expert_feed_forward_length")
                                                              : keys.count("feed_forward_length"));
  const std::uint32_t gate = TRY(keys.number_or("expert_gating_func", 1));
  if (gate < 1 || gate > 3)
    return impossible(keys.key("expert_gating_func"), fmt::to_string(gate), "must be 1, 2 or 3");
  moe.gate = static_cast<plan::MoeGate>(gate);
  moe.norm_topk = TRY(keys.flag_or("expert_weights_norm", false));
  moe.weights_scale = TRY(keys.real_or("expert_weights_scale", 1));
  if (moe.weights_scale == 0) moe.weights_scale = 1;  // 0 is how some writers spell "none"
  return {};
}

Result<> read_gguf_dense_first(const GgufKeys& keys, const SparseLayerTemplates& layer_templates, ModelConfig& config) {
  const std::uint32_t dense = TRY(keys.number_or("leading_dense_block_count", 0));
  for (std::size_t n = 0; n < config.layers.size(); ++n)
    config.layers[n].layer_template = n < dense ? layer_templates.dense : layer_templates.sparse;
  return {};
}

Result<> read_gguf_routed_experts(const GgufKeys& keys, ModelConfig& config, plan::MoeGate gate_absent) {
  TRY(read_gguf_moe(keys, config));
  MoeConfig& moe = config.moe;
  if (!keys.has("expert_gating_func")) moe.gate = gate_absent;
  const std::uint64_t shared = std::uint64_t{TRY(keys.number_or("expert_shared_count", 0))} * moe.ffn_expert;
  if (shared > kDimensionMax) return impossible(keys.key("expert_shared_count"), fmt::to_string(shared), "is too wide");
  moe.ffn_shared = TRY(keys.number_or("expert_shared_feed_forward_length", static_cast<std::uint32_t>(shared)));
  const std::uint32_t groups = TRY(keys.number_or("expert_group_count", 0));
  const std::uint32_t groups_used = TRY(keys.number_or("expert_group_used_count", 0));
  if (groups > 1) {
    moe.groups = groups;
    moe.groups_used = TRY(check_count(keys.key("expert_group_used_count"), groups_used));
    // DeepSeek V2 ranks groups by their best expert, those with a sigmoid by their best two.
    moe.group_score = moe.gate == plan::MoeGate::kSigmoid ? plan::GroupScore::kTop2Sum : plan::GroupScore::kMax;
  }
  return check_moe(moe, keys.key("expert_group_count"));
}

Result<> read_gguf_windows(const GgufKeys& keys, const GgufWindowRules& rules, ModelConfig& config) {
  const std::uint32_t window = TRY(keys.number_or("attention.sliding_window", rules.window_absent));
  const std::string_view name = "attention.sliding_window_pattern";
  std::vector<std::uint32_t> windowed(config.layers.size());
  const io::GgufValue* pattern = keys.file().find(keys.key(name));
  if (pattern != nullptr && io::type_of(*pattern) == io::GgufType::kArray) {
    windowed = TRY(keys.per_layer(name, config.layers.size(), 0));
  } else {
    const std::uint32_t period = TRY(keys.count_or(name, rules.period_absent));
    for (std::size_t n = 0; n < windowed.size(); ++n) windowed[n] = n % period != period - 1;
  }
  for (std::size_t n = 0; n < windowed.size(); ++n) config.layers[n].window = windowed[n] != 0 ? window : 0;
  return {};
}

Result<> read_gguf_mamba(const GgufKeys& keys, ModelConfig& config) {
  MambaConfig& m = config.mamba;
  m.d_inner = TRY(keys.count("ssm.inner_size"));
  m.heads = TRY(keys.count("ssm.time_step_rank"));
  m.d_state = TRY(keys.count("ssm.state_size"));
  m.groups = TRY(keys.count_or("ssm.group_count", 1));
  m.d_conv = TRY(keys.count("ssm.conv_kernel"));
  if (m.d_inner % m.heads != 0) {
    return impossible(keys.key("ssm.time_step_rank"), fmt::to_string(m.heads),
                      fmt::format("must divide ssm.inner_size = {}", m.d_inner));
  }
  m.d_head = m.d_inner / m.heads;
  return check_mamba(m, {.heads = keys.key("ssm.time_step_rank"), .groups = keys.key("ssm.group_count")});
}

}  // namespace llorch::engine::models
