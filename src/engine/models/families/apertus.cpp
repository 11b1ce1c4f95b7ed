// Apertus: attention with head norms, dense without gates; an activation with numbers of its own in every layer.
#include <cmath>

#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"
#include "engine/models/portable_math.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families::apertus {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr std::array kNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.attention_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.feedforward_layernorm.weight"),
};
constexpr std::array kUngated{kFfnWeights[1], kFfnWeights[2]};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kUngated);
constexpr std::array<std::string_view, 1> kNames{"apertus"};
constexpr std::array<std::string_view, 1> kGgufClaimed{"rope_freqs.weight"};
constexpr std::array<std::string_view, 1> kPrefix{"model."};
constexpr std::array<std::string_view, 1> kHfClaimed{"layers.{}.mlp.act_fn.*"};

// What training moves freely, made positive.
double softplus(float x) {
  return x > 20.0F ? static_cast<double>(x) : portable_log(1.0 + portable_exp(std::fmax(x, -600.0F)));
}

base::Result<XieluConfig> xielu(float alpha, float alpha_negative, float beta, float eps) {
  for (const float number : {alpha, alpha_negative, beta, eps}) {
    if (!std::isfinite(number)) return impossible("xielu", std::to_string(number), "must be finite");
  }
  if (eps > 0) return impossible("xielu eps", std::to_string(eps), "must be at most 0");
  return XieluConfig{.alpha = static_cast<float>(softplus(alpha)),
                     .alpha_negative = static_cast<float>(beta + softplus(alpha_negative)),
                     .beta = beta,
                     .eps = eps};
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.ffn.activation = plan::Activation::kXielu;
  std::array<std::vector<float>, 4> numbers;
  constexpr std::array<std::string_view, 4> kKeys{"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = TRY(keys.file().f32_array(kKeys[i]));
    if (numbers[i].size() != config.layers.size()) {
      return impossible(kKeys[i], std::to_string(numbers[i].size()) + " numbers",
                        "must have one for each of " + std::to_string(config.layers.size()) + " layers");
    }
  }
  for (std::size_t n = 0; n < config.layers.size(); ++n)
    config.layers[n].xielu = TRY(xielu(numbers[0][n], numbers[1][n], numbers[2][n], numbers[3][n]));
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  constexpr HfDefaults kDefaults{.eps = 1e-5F};
  ModelConfig config = TRY(read_hf_basics(keys, kDefaults));
  TRY(read_hf_heads(keys, kDefaults, config));
  TRY(read_hf_ffn(keys, config));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_word(keys, "hidden_act", "xielu"));
  config.ffn.activation = plan::Activation::kXielu;
  for (std::uint32_t n = 0; n < config.layers.size(); ++n) {
    const auto number = [&](std::string_view name) {
      return read_number(keys.files(), tensor_name("model.layers.{}.mlp.act_fn.", n) + std::string(name));
    };
    config.layers[n].xielu =
        TRY(xielu(TRY(number("alpha_p")), TRY(number("alpha_n")), TRY(number("beta")), TRY(number("eps"))));
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 12000000.0}, config));
  return config;
}

}  // namespace

const Family kApertus{
    .name = "apertus",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kPrefix,
    .gguf_claimed = kGgufClaimed,
    .hf_claimed = kHfClaimed,
    .hf_others = "post_norm=false qk_norm=true mlp_bias=false",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::apertus
