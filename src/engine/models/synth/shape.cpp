#include "engine/models/synth/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/models/config/rules.h"
#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/gguf_export/tensor_list.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::Activation;
using plan::MoeGate;

tl::unexpected<base::Error> invalid(std::string message) {
  return base::fail(base::ErrorCode::kInvalidParams, std::move(message));
}

class Maker {
 public:
  Maker(const Family& family, std::string_view architecture, const SynthShape& shape)
      : family_(family), architecture_(architecture), shape_(shape) {}

  Result<SynthConfig> run() {
    c_.architecture = architecture_;
    c_.name = fmt::format("synthetic {}", architecture_);
    c_.width = shape_.width.value_or(256);
    c_.vocab = shape_.vocab.value_or(512);
    c_.context_tokens = shape_.context.value_or(4096);
    c_.norm_eps = is("llama") || is("gpt-oss") ? 1e-5F : 1e-6F;
    c_.layers.resize(shape_.layers.value_or(4));
    experts();
    for (std::size_t n = 0; n < c_.layers.size(); ++n) TRY(layer(n));
    TRY(attention());
    if (any(OpType::kMlaAttention)) latent();
    if (any(OpType::kMambaMixer)) TRY(mamba());
    c_.shortconv.l_cache = 3;
    activation();
    multipliers();
    return SynthConfig{std::move(c_), shape_.tied.value_or(is("gemma2") || is("gemma3") || is("lfm2"))};
  }

 private:
  bool is(std::string_view name) const { return architecture_ == name; }
  bool any(OpType type) const {
    return std::ranges::any_of(c_.layers, [&](const LayerConfig& l) { return layer_has(family_, l, type); });
  }

  // The family's layers with an operation that mixes rows (in every n-th layer the other one) and one that does not.
  Result<std::uint8_t> layer_template(OpType mixer, std::optional<OpType> behind) const {
    for (std::size_t p = 0; p < family_.layer_templates.size(); ++p) {
      const LayerConfig candidate{.layer_template = static_cast<std::uint8_t>(p)};
      const bool plain = !layer_has(family_, candidate, OpType::kFfn) && !layer_has(family_, candidate, OpType::kMoe);
      if (layer_has(family_, candidate, mixer) && (behind ? layer_has(family_, candidate, *behind) : plain))
        return static_cast<std::uint8_t>(p);
    }
    return invalid(fmt::format("architecture {} has no layers {} experts", architecture_,
                               behind == OpType::kMoe ? "with" : "without"));
  }
  bool family_has(OpType type) const {
    for (std::size_t p = 0; p < family_.layer_templates.size(); ++p) {
      if (layer_has(family_, LayerConfig{.layer_template = static_cast<std::uint8_t>(p)}, type)) return true;
    }
    return false;
  }

  void experts() {
    MoeConfig& moe = c_.moe;
    const bool only = family_has(OpType::kMoe) && !family_has(OpType::kFfn);
    const bool usual = only || is("qwen3moe") || is("deepseek2") || architecture_.ends_with("moe");
    moe.experts = shape_.experts.value_or(usual ? 8 : 0);
    if (moe.experts == 0) return;
    moe.experts_used = shape_.experts_used.value_or(std::min(2U, moe.experts));
    moe.ffn_expert = shape_.expert_ffn.value_or(c_.width / 2);
    const std::uint32_t shared = shape_.shared_experts.value_or(is("deepseek2") || is("granitehybrid") ? 1 : 0);
    moe.ffn_shared = shared * moe.ffn_expert;
    if (is("gpt-oss") || is("granitehybrid")) moe.gate = MoeGate::kSoftmaxAfterTopk;
    const bool sigmoid = architecture_.starts_with("lfm2") || (is("deepseek2") && shape_.q_rank.value_or(1) != 0);
    if (sigmoid) moe.gate = MoeGate::kSigmoid;
    moe.norm_topk = is("qwen3moe") || architecture_ == "qwen3vlmoe" || sigmoid;
  }

  Result<> layer(std::size_t n) {
    LayerConfig& l = c_.layers[n];
    const bool hybrid = is("granitehybrid") || architecture_.starts_with("lfm2");
    const std::uint32_t period = shape_.attention_period.value_or(2);
    if (period == 0) return invalid("--attention-period must be at least 1");
    OpType mixer = OpType::kAttention;
    if (is("deepseek2")) mixer = OpType::kMlaAttention;
    if (is("mamba2")) mixer = OpType::kMambaMixer;
    if (hybrid && (n + 1) % period != 0) mixer = is("granitehybrid") ? OpType::kMambaMixer : OpType::kShortconv;
    const std::uint32_t dense = shape_.dense_layers.value_or(is("deepseek2") ? 1 : 0);
    const bool sparse = c_.moe.experts != 0 && n >= dense;
    std::optional<OpType> behind = sparse ? OpType::kMoe : OpType::kFfn;
    if (is("mamba2")) behind.reset();
    l.layer_template = TRY(layer_template(mixer, behind));
    if (behind == OpType::kFfn) l.ffn = shape_.ffn.value_or((c_.width * 8 / 3 + 31) / 32 * 32);
    if (mixer != OpType::kAttention && mixer != OpType::kMlaAttention) return {};
    l.heads = shape_.heads.value_or(std::max(1U, c_.width / 64));
    l.kv_heads =
        mixer == OpType::kMlaAttention ? l.heads : shape_.kv_heads.value_or(l.heads % 4 == 0 ? l.heads / 4 : l.heads);
    l.rope = 0;
    l.window = window(n);
    return {};
  }

  std::uint32_t window(std::size_t n) const {
    if (is("gemma3")) return (n + 1) % 6 != 0 ? shape_.window.value_or(512) : 0;
    if (is("gemma2")) return n % 2 == 0 ? shape_.window.value_or(4096) : 0;
    if (is("gpt-oss")) return n % 2 == 0 ? shape_.window.value_or(128) : 0;
    return 0;
  }

  Result<> attention() {
    if (!any(OpType::kAttention)) return {};
    std::uint32_t heads = 0;
    for (const LayerConfig& l : c_.layers) heads = std::max(heads, l.heads);
    if (heads == 0 || (!shape_.head_dim && c_.width % heads != 0)) {
      return invalid(fmt::format("--heads {} must divide --width {} when there is no --head-dim", heads, c_.width));
    }
    AttentionConfig& a = c_.attention;
    a.d_qk = a.d_v = shape_.head_dim.value_or(c_.width / heads);
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.d_qk)));
    if (is("gemma2")) a.logit_softcap = 50;
    RopeConfig rope{.dims = a.d_qk};
    if (is("phi3")) rope.dims = a.d_qk * 3 / 4 / 2 * 2;
    rope.base = is("llama") ? 500000 : is("gpt-oss") ? 150000 : is("gemma2") ? 10000 : 1000000;
    if (is("gpt-oss")) yarn(rope);
    c_.ropes = {rope};
    if (is("gemma3")) {
      c_.ropes.push_back({.dims = a.d_qk});
      for (LayerConfig& l : c_.layers) l.rope = l.window != 0 ? 1 : 0;
    }
    if (is("granitehybrid")) {
      for (LayerConfig& l : c_.layers) l.rope = kNoRope;
    }
    if (architecture_.starts_with("qwen3vl")) {
      const std::uint32_t pairs = a.d_qk / 2;
      a.mrope = plan::MropeKind::kInterleaved;
      a.sections = {pairs - 2 * (pairs / 3), pairs / 3, pairs / 3};
    }
    return {};
  }

  static void yarn(RopeConfig& rope) {
    rope.kind = RopeKind::kYarn;
    rope.factor = 32;
    rope.original_context = 4096;
    rope.truncate = false;
    rope.attn_factor = static_cast<float>(yarn_magnitude(1, rope.factor));
  }

  void latent() {
    MlaConfig& mla = c_.mla;
    const bool small = c_.width < 1024;
    mla.q_lora = shape_.q_rank.value_or(c_.width / 4);
    mla.kv_lora = shape_.kv_rank.value_or(small ? 64 : 512);
    mla.d_v = shape_.head_dim.value_or(small ? 32 : 128);
    mla.d_nope = mla.d_v;
    mla.d_rope = mla.d_nope / 2;
    mla.norm_eps = c_.norm_eps;
    mla.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(mla.d_nope + mla.d_rope)));
    c_.ropes = {{.dims = mla.d_rope}};
  }

  Result<> mamba() {
    MambaConfig& m = c_.mamba;
    m.d_inner = 2 * c_.width;
    m.heads = shape_.mixer_heads.value_or(std::max(1U, m.d_inner / 64));
    if (m.heads == 0 || m.d_inner % m.heads != 0)
      return invalid(fmt::format("--mixer-heads {} must divide twice the width, {}", m.heads, m.d_inner));
    m.d_head = m.d_inner / m.heads;
    m.d_state = shape_.state.value_or(c_.width < 1024 ? 32 : 128);
    m.groups = 1;
    m.d_conv = 4;
    return {};
  }

  void activation() {
    if (is("gemma2") || is("gemma3")) c_.ffn.activation = Activation::kGeluTanh;
    if (is("gpt-oss")) c_.ffn = {.activation = Activation::kSwigluOai, .alpha = 1.702F, .limit = 7};
  }

  void multipliers() {
    if (is("gemma2") || is("gemma3")) c_.embedding_scale = std::sqrt(static_cast<float>(c_.width));
    if (is("gemma2")) c_.logit_softcap = 30;
    if (!is("granitehybrid")) return;
    c_.embedding_scale = 12;
    c_.residual_scale = 0.22F;
    c_.logit_mul = 1.0F / 6;
  }

  const Family& family_;
  const std::string_view architecture_;
  const SynthShape& shape_;
  ModelConfig c_;
};

}  // namespace

Result<SynthConfig> synth_config(const Family& family, std::string_view architecture, const SynthShape& shape) {
  for (const auto& [name, number] : {std::pair{"--layers", shape.layers},
                                     {"--width", shape.width},
                                     {"--heads", shape.heads},
                                     {"--kv-heads", shape.kv_heads},
                                     {"--vocab", shape.vocab},
                                     {"--context", shape.context}}) {
    if (number == 0U) return invalid(fmt::format("{} must be at least 1", name));
  }
  if (shape.layers.value_or(1) > kLayersMax) return invalid(fmt::format("--layers must be at most {}", kLayersMax));
  return Maker(family, architecture, shape).run();
}

}  // namespace llorch::engine::models
