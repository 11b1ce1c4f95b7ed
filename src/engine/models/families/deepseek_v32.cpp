// DeepSeek V3.2 and GLM-5: latent attention to the positions that a lightning index chooses, dense then experts.
#include "engine/models/families/families.h"
#include "engine/models/families/latent.h"
#include "engine/models/families/standard.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families::deepseek_v32 {
namespace {

// A layer without an index takes the choice of the last one that has.
enum : std::uint8_t { kIndexDense, kIndexSparse, kSharedDense, kSharedSparse };
constexpr std::array kIndexFfn{
    norm(NormVariant::kAttention), lightning_index(), mla_attention(), add(), norm(NormVariant::kFfn), ffn(), add()};
constexpr std::array kIndexMoe{
    norm(NormVariant::kAttention), lightning_index(), mla_attention(), add(), norm(NormVariant::kFfn), moe(), add()};
constexpr std::array kSharedFfn = block(mla_attention(), ffn());
constexpr std::array kSharedMoe = block(mla_attention(), moe());
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kIndexFfn, kIndexMoe, kSharedFfn, kSharedMoe};

constexpr std::array kIndex{
    row(IndexSlot::kQA, "blk.{}.attn_q_a.weight", "layers.{}.self_attn.q_a_proj.weight"),
    optional_row(IndexSlot::kQABias, "blk.{}.attn_q_a.bias", "layers.{}.self_attn.q_a_proj.bias"),
    row(IndexSlot::kQANorm, "blk.{}.attn_q_a_norm.weight", "layers.{}.self_attn.q_a_layernorm.weight"),
    row(IndexSlot::kQB, "blk.{}.indexer.attn_q_b.weight", "layers.{}.self_attn.indexer.wq_b.weight"),
    row(IndexSlot::kK, "blk.{}.indexer.attn_k.weight", "layers.{}.self_attn.indexer.wk.weight"),
    row(IndexSlot::kKNorm, "blk.{}.indexer.k_norm.weight", "layers.{}.self_attn.indexer.k_norm.weight"),
    row(IndexSlot::kKNormBias, "blk.{}.indexer.k_norm.bias", "layers.{}.self_attn.indexer.k_norm.bias"),
    row(IndexSlot::kWeights, "blk.{}.indexer.proj.weight", "layers.{}.self_attn.indexer.weights_proj.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kLatentAttention, kIndex, kFfnWeights, kRoutedExperts, kPredictorPastLast);
constexpr Predictor kPredictor{.hf_prefix = "", .hands_on_unnormed = true};
constexpr std::array<std::string_view, 2> kGguf{"deepseek32", "glm-dsa"};
constexpr std::array<std::string_view, 2> kHf{"deepseek_v32", "glm_moe_dsa"};

// The templates, by which layers are mixtures and which have an index.
base::Result<> finish(const KeyNames& names, std::uint32_t heads, const std::vector<bool>& indexed,
                      const std::string& indexed_key, ModelConfig& config) {
  if (!indexed[0]) return impossible(indexed_key, "shared", "there is no layer before the first");
  for (std::size_t n = 0; n < config.layers.size(); ++n)
    config.layers[n].layer_template += indexed[n] ? kIndexDense : kSharedDense;
  const bool is_glm = config.architecture.starts_with("glm");
  config.index.rope_layout = is_glm ? plan::RopeLayout::kInterleaved : plan::RopeLayout::kHalf;
  if (config.mla.q_lora == 0 || config.mla.d_rope > config.index.d_index)
    return impossible("the rank of queries, the size of an index head",
                      std::to_string(config.mla.q_lora) + ", " + std::to_string(config.index.d_index),
                      "must be above 0, and at least the rotated part");
  if (std::uint64_t{config.index.heads} * config.index.d_index > kDimensionMax)
    return impossible("the heads of the index", std::to_string(config.index.heads), "are too wide together");
  TRY(finish_latent(names, heads, config));
  config.predictor_layer = config.layers.back();  // which has an index whatever the last layer has
  config.predictor_layer->layer_template = kIndexSparse;
  return {};
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_latent(keys, config));
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_routed_experts(keys, config));
  TRY(read_gguf_dense_first(keys, {}, config));
  config.index.heads = TRY(keys.count("attention.indexer.head_count"));
  config.index.d_index = TRY(keys.count("attention.indexer.key_length"));
  config.index.top_k = TRY(keys.count("attention.indexer.top_k"));
  std::vector<bool> indexed;
  for (const std::uint32_t flag : TRY(keys.per_layer("attention.indexer.types", config.layers.size(), 1)))
    indexed.push_back(flag != 0);
  // Files of GLM that do not say it have the weights of an index where there is one.
  const bool tensors_tell = config.architecture == kGguf[1] && !keys.has("attention.indexer.types");
  for (std::uint32_t n = 1; tensors_tell && n < indexed.size(); ++n)
    indexed[n] = keys.files().find_tensor(tensor_name("blk.{}.indexer.attn_k.weight", n)) != nullptr;
  TRY(finish(keys.names(), TRY(keys.count("attention.head_count")), indexed, keys.key("attention.indexer.types"),
             config));
  return config;
}

// indexer_types, or GLM's patterns: a letter for each layer, or every so many layers behind the first ones.
base::Result<std::vector<bool>> read_indexed(const HfKeys& keys, std::size_t layers, bool is_glm) {
  std::vector<bool> indexed(layers, true);
  if (!is_glm) return indexed;
  std::vector<std::string_view> words;
  if (keys.has("indexer_types")) {
    words = TRY(keys.text().string_list("indexer_types"));
  } else if (keys.text().kind("index_topk_pattern") == io::HfKind::kString) {
    const std::string_view letters = TRY(keys.text().string("index_topk_pattern"));
    for (std::size_t n = 0; n < letters.size(); ++n)
      words.push_back(letters[n] == 'F' ? "full" : letters[n] == 'S' ? "shared" : letters.substr(n, 1));
  } else if (keys.has("index_topk_pattern")) {
    words = TRY(keys.text().string_list("index_topk_pattern"));
  } else {
    const std::uint32_t every = TRY(keys.count_or("index_topk_freq", 1)),
                        first = TRY(keys.number_or("index_skip_topk_offset", 2));
    for (std::size_t n = 0; n < layers; ++n) indexed[n] = n + 1 <= first || (n + 1 - first) % every == 0;
    return indexed;
  }
  if (words.size() != layers)
    return impossible("indexer_types", std::to_string(words.size()), "must be one for each layer");
  for (std::size_t n = 0; n < layers; ++n) {
    if (words[n] != "full" && words[n] != "shared")
      return impossible("indexer_types", std::string(words[n]), "must be full or shared");
    indexed[n] = words[n] == "full";
  }
  return indexed;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const bool is_glm = TRY(text_model_type(keys.root())) == "glm_moe_dsa";
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = is_glm ? 1e-5F : 1e-6F}));
  TRY(read_hf_latent(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(demand_latent_weights(keys, config));
  TRY(demand_word(keys, "scoring_func", "sigmoid"));
  TRY(demand_word(keys, "topk_method", "noaux_tc"));
  HfExpertKeys names{.scale_absent = 2.5F};
  if (!is_glm) names.groups_absent = 8, names.groups_used_absent = 4;
  TRY(read_hf_routed_experts(keys, config, names));
  TRY(read_hf_dense_first(keys, {}, config));
  if (keys.has("layer_types")) {
    for (const std::string_view word : TRY(keys.text().string_list("layer_types"))) {
      if (word != "indexed_attention" && word != "deepseek_sparse_attention")  // of other versions of the library
        return impossible(keys.key("layer_types"), std::string(word), "must be indexed_attention for each layer");
    }
  }
  config.index.heads = TRY(keys.count_or("index_n_heads", is_glm ? 32 : 64));
  config.index.d_index = TRY(keys.count_or("index_head_dim", 128));
  config.index.top_k = TRY(keys.count_or("index_topk", 2048));
  const std::vector<bool> indexed = TRY(read_indexed(keys, config.layers.size(), is_glm));
  TRY(finish(keys.names(), TRY(keys.count("num_attention_heads")), indexed, keys.key("indexer_types"), config));
  return config;
}

}  // namespace

const Family kDeepseekV32{
    .name = "deepseek_v32",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .predictor = &kPredictor,
    .ignores_layers_past_end = true,
    .gguf_others = "attention.head_count_kv attention.key_length attention.value_length",
    .hf_others = "num_nextn_predict_layers ep_size moe_layer_freq=1 intermediate_size first_k_dense_replace",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::deepseek_v32
