// DeepSeek V2 and V3: latent attention, routed and shared experts.
#include <algorithm>
#include <cmath>

#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families {
namespace {

constexpr std::array kDense{norm(NormVariant::kAttention), mla_attention(), add(),
                            norm(NormVariant::kFfn),       ffn(),           add()};
constexpr std::array kSparse{norm(NormVariant::kAttention), mla_attention(), add(),
                             norm(NormVariant::kFfn),       moe(),           add()};
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDense, kSparse};

// The keys' and values' half of kv_b: GGUF holds them apart, in old files together as Hugging Face does.
constexpr std::array kLatentAttention{
    optional_row(MlaSlot::kQ, "blk.{}.attn_q.weight", "layers.{}.self_attn.q_proj.weight"),
    optional_row(MlaSlot::kQA, "blk.{}.attn_q_a.weight", "layers.{}.self_attn.q_a_proj.weight"),
    optional_row(MlaSlot::kQANorm, "blk.{}.attn_q_a_norm.weight", "layers.{}.self_attn.q_a_layernorm.weight"),
    optional_row(MlaSlot::kQB, "blk.{}.attn_q_b.weight", "layers.{}.self_attn.q_b_proj.weight"),
    row(MlaSlot::kKvA, "blk.{}.attn_kv_a_mqa.weight", "layers.{}.self_attn.kv_a_proj_with_mqa.weight"),
    row(MlaSlot::kKvANorm, "blk.{}.attn_kv_a_norm.weight", "layers.{}.self_attn.kv_a_layernorm.weight"),
    row(MlaSlot::kKB, "blk.{}.attn_k_b.weight", Source("layers.{}.self_attn.kv_b_proj.weight", Load::kHeadKeys)),
    row(MlaSlot::kKB, Source("blk.{}.attn_kv_b.weight", Load::kHeadKeys), ""),
    row(MlaSlot::kVB, "blk.{}.attn_v_b.weight", Source("layers.{}.self_attn.kv_b_proj.weight", Load::kHeadValues)),
    row(MlaSlot::kVB, Source("blk.{}.attn_kv_b.weight", Load::kHeadValues), ""),
    row(MlaSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.o_proj.weight"),
    optional_row(MlaSlot::kQABias, "blk.{}.attn_q_a.bias", "layers.{}.self_attn.q_a_proj.bias"),
    optional_row(MlaSlot::kKvABias, "blk.{}.attn_kv_a_mqa.bias", "layers.{}.self_attn.kv_a_proj_with_mqa.bias"),
    optional_row(MlaSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.self_attn.o_proj.bias"),
};

constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kLatentAttention, kFfnWeights, kRoutedExperts);

constexpr std::array<std::string_view, 1> kGguf{"deepseek2"};
constexpr std::array<std::string_view, 2> kHf{"deepseek_v2", "deepseek_v3"};

// The norms inside attention have an epsilon of their own in the library, whatever the configuration says of the others.
constexpr float kHfInnerEps = 1e-6F;

float latent_scale(const MlaConfig& mla, double magnitude) {
  return static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(mla.d_nope + mla.d_rope)));
}

// The rotation and head counts of every layer, which of them are mixtures, and what must hold.
base::Result<> finish(const KeyNames& names, std::uint32_t heads, std::uint32_t dense_layers, ModelConfig& config) {
  const MlaConfig& mla = config.mla;
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    LayerConfig& layer = config.layers[n];
    layer.heads = layer.kv_heads = heads;
    layer.rope = 0;
    layer.layer_template = n >= dense_layers && config.moe.experts != 0 ? 1 : 0;
  }
  const std::uint64_t widest = std::max(std::uint64_t{mla.d_nope} + mla.d_rope, std::uint64_t{mla.d_v});
  if (heads * std::max<std::uint64_t>(widest, mla.kv_lora) > kDimensionMax) {
    return impossible(names.heads, std::to_string(heads),
                      "heads times head size must be at most " + std::to_string(kDimensionMax));
  }
  return check_rope(config.ropes[0], mla.d_rope, names);
}

base::Result<> read_gguf_latent(const GgufKeys& keys, ModelConfig& config) {
  MlaConfig& mla = config.mla;
  mla.q_lora = TRY(keys.number_or("attention.q_lora_rank", 0));
  mla.kv_lora = TRY(keys.count("attention.kv_lora_rank"));
  mla.d_rope = TRY(keys.count("rope.dimension_count"));
  // Old files have the head's size where new ones have the latent one's.
  const std::uint32_t d_qk = TRY(keys.has("attention.key_length_mla") ? keys.count("attention.key_length_mla")
                                                                      : keys.count("attention.key_length"));
  mla.d_v = TRY(keys.has("attention.value_length_mla") ? keys.count("attention.value_length_mla")
                                                       : keys.count("attention.value_length"));
  if (d_qk <= mla.d_rope) {
    return impossible(keys.key("attention.key_length_mla"), std::to_string(d_qk),
                      "must be above rope.dimension_count = " + std::to_string(mla.d_rope));
  }
  mla.d_nope = d_qk - mla.d_rope;
  mla.norm_eps = config.norm_eps;
  RopeConfig rope = TRY(read_gguf_rope(keys, mla.d_rope));
  double magnitude = 1;
  const float per_log = TRY(keys.real_or("rope.scaling.yarn_log_multiplier", 0));  // 0.1 * mscale_all_dim
  if (rope.kind == RopeKind::kYarn && per_log != 0) {
    magnitude = yarn_magnitude(10.0 * per_log, rope.factor);
    rope.attn_factor = 1.0F;  // mscale / mscale_all_dim, which the converter takes to be equal
  }
  mla.scale = latent_scale(mla, magnitude);
  config.ropes = {std::move(rope)};
  config.attention.rope_layout = plan::RopeLayout::kInterleaved;
  return {};
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_latent(keys, config));
  const std::uint32_t dense_layers = TRY(keys.number_or("leading_dense_block_count", 0));
  if (dense_layers != 0) TRY(read_gguf_ffn(keys, config));
  if (dense_layers < config.layers.size()) TRY(read_gguf_routed_experts(keys, config));
  TRY(finish(keys.names(), TRY(keys.count("attention.head_count")), dense_layers, config));
  return config;
}

base::Result<> read_hf_latent(const HfKeys& keys, ModelConfig& config) {
  MlaConfig& mla = config.mla;
  mla.q_lora = TRY(keys.number_or("q_lora_rank", 0));
  mla.kv_lora = TRY(keys.count("kv_lora_rank"));
  mla.d_nope = TRY(keys.count("qk_nope_head_dim"));
  mla.d_rope = TRY(keys.count("qk_rope_head_dim"));
  mla.d_v = TRY(keys.count("v_head_dim"));
  mla.norm_eps = kHfInnerEps;
  // What the class works out for itself.
  TRY(demand_number(keys, "head_dim", mla.d_rope));
  TRY(demand_number(keys, "qk_head_dim", mla.d_nope + mla.d_rope));
  TRY(demand_number(keys, "num_key_value_heads", TRY(keys.count("num_attention_heads"))));
  config.ropes = {TRY(read_hf_rope(keys, mla.d_rope, {}))};
  const bool interleaved = TRY(keys.text().boolean_or("rope_interleave", true));
  config.attention.rope_layout = interleaved ? plan::RopeLayout::kInterleaved : plan::RopeLayout::kHalf;
  double magnitude = 1;
  if (const auto rope = TRY(keys.rope_dictionary())) {
    const std::string_view kind = TRY(rope->string_or("rope_type", TRY(rope->string_or("type", "default"))));
    if (kind != "default") {
      const float mscale_all = TRY(rope->f32_or("mscale_all_dim", 0));
      // Of every kind, also where the rotation itself has no use for the factor.
      const double factor = TRY(rope->f32_or("factor", static_cast<float>(config.ropes[0].factor)));
      if (mscale_all != 0) magnitude = yarn_magnitude(mscale_all, factor);
    }
  }
  mla.scale = latent_scale(mla, magnitude);
  return {};
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  const bool is_v3 = config.architecture == "deepseek_v3";
  const std::string_view method = TRY(keys.text().string_or("topk_method", is_v3 ? "noaux_tc" : "greedy"));
  TRY(demand_word(keys, "scoring_func", is_v3 ? "sigmoid" : "softmax"));
  const bool grouped = method == (is_v3 ? "noaux_tc" : "group_limited_greedy");
  if (!grouped && (is_v3 || method != "greedy")) {
    return impossible(keys.key("topk_method"), std::string(method),
                      is_v3 ? "must be noaux_tc" : "must be greedy or group_limited_greedy");
  }
  TRY(read_hf_routed_experts(keys, config, grouped));
  if (is_v3) return {};
  config.moe.gate = plan::MoeGate::kSoftmax;
  config.moe.norm_topk = false;
  config.moe.group_score = plan::GroupScore::kMax;
  return {};
}

// By mlp_layer_types (5), which has the dense layers first here, else by their number.
base::Result<std::uint32_t> read_hf_dense_layers(const HfKeys& keys, std::size_t layers) {
  if (!keys.has("mlp_layer_types")) return keys.number_or("first_k_dense_replace", 0);
  const std::vector<bool> sparse = TRY(read_hf_mlp_layer_types(keys, layers));
  const auto first = std::ranges::find(sparse, true);
  if (std::find(first, sparse.end(), false) != sparse.end())
    return impossible(keys.key("mlp_layer_types"), "dense", "dense layers must come before all others here");
  return static_cast<std::uint32_t>(first - sparse.begin());
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_latent(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(demand_if(keys, "attention_bias", false, Opcode::kMlaAttention,
                {slot_number(MlaSlot::kKvABias), slot_number(MlaSlot::kOBias)}, config));
  if (config.mla.q_lora != 0) {
    TRY(demand_if(keys, "attention_bias", false, Opcode::kMlaAttention, {slot_number(MlaSlot::kQABias)}, config));
    for (const MlaSlot slot : {MlaSlot::kQA, MlaSlot::kQANorm, MlaSlot::kQB})
      config.demanded.push_back({Opcode::kMlaAttention, slot_number(slot)});
  } else {
    config.demanded.push_back({Opcode::kMlaAttention, slot_number(MlaSlot::kQ)});
  }
  const std::uint32_t dense_layers = TRY(read_hf_dense_layers(keys, config.layers.size()));
  if (dense_layers != 0) TRY(read_hf_ffn(keys, config));
  if (dense_layers < config.layers.size()) TRY(read_hf_experts(keys, config));
  TRY(finish(keys.names(), TRY(keys.count("num_attention_heads")), dense_layers, config));
  return config;
}

}  // namespace

const Family kDeepseek{
    .name = "deepseek",
    .gguf = kGguf,
    .hf = kHf,
    .before = kBefore,
    .layer_templates = kLayerTemplates,
    .after = kAfter,
    .weights = kWeights,
    .hf_prefixes = kPrefixes,
    .ignores_layers_past_end = true,
    .gguf_others = "attention.head_count_kv attention.key_length attention.value_length",
    .hf_others = "num_nextn_predict_layers ep_size moe_layer_freq=1 intermediate_size",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families
