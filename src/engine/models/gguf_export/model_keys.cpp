#include "engine/models/gguf_export/model_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/assert.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/config/rules.h"
#include "engine/models/gguf_export/tensor_list.h"
#include "engine/models/portable_math.h"

namespace llorch::engine::models {
namespace {

// What architectures say beyond the keys all have.
enum Feature : std::uint32_t {
  kFewExpertKeys = 1U << 0,   // counts and sizes of a mixture; the rest goes without saying
  kAllExpertKeys = 1U << 1,   // its gate, scale and groups too
  kWindows = 1U << 2,         // attention.sliding_window is honoured
  kScaleKey = 1U << 3,        // attention.scale is written whatever it is: readers would guess it from the depth
  kMambaKeys = 1U << 4,       //
  kLatentKeys = 1U << 5,      //
  kShortconvKeys = 1U << 6,   //
  kMultiplierKeys = 1U << 7,  // embedding_scale, residual_scale, logit_scale, and whether there is a rotation
  kSecondBase = 1U << 8,      // rope.freq_base_swa
  kSectionKeys = 1U << 9,     // rope.dimension_sections
  kZeroCounts = 1U << 10,     // no attention, no feed-forward: readers want the keys nevertheless
  kOneMixer = 1U << 11,       // a layer has one part: readers tell which by the sizes that are 0
  kRmsEpsilon = 1U << 12,     // the epsilon has the key of RMS norms, whatever norms are
  kTemperature = 1U << 13,    // attention.temperature_scale, counted in original contexts of yarn
  kLogitScale = 1U << 14,     // logit_scale is what logits are multiplied by
  kSharedWidth = 1U << 15,    // expert_shared_feed_forward_length
  kDenseFirst = 1U << 16,     // which layers are mixtures: leading_dense_block_count and a step of one
  kAlwaysWindows = 1U << 17,  // llama.cpp gives layers a window whatever the file says, also one of 0
};

struct Dialect {
  std::string_view family;  // Family::name
  std::uint32_t features = 0;
  // What readers assume without sliding_window_pattern; 1: they demand it, a flag per layer.
  std::uint32_t window_period = 1;
};

constexpr std::array kDialects{
    Dialect{"gemma2", kWindows | kAlwaysWindows | kScaleKey, 2},
    Dialect{"gemma3", kWindows | kScaleKey | kSecondBase, 6},
    Dialect{"qwen3_moe", kFewExpertKeys},
    Dialect{"qwen3_vl", kFewExpertKeys | kSectionKeys},
    Dialect{"gpt_oss", kFewExpertKeys | kWindows | kAlwaysWindows, 2},
    Dialect{"granite_hybrid", kFewExpertKeys | kMambaKeys | kMultiplierKeys},
    Dialect{"mamba2", kMambaKeys | kZeroCounts},
    Dialect{"lfm2", kAllExpertKeys | kShortconvKeys},
    Dialect{"deepseek", kAllExpertKeys | kLatentKeys},
    Dialect{"nemotron_h", kAllExpertKeys | kMambaKeys | kOneMixer},
    Dialect{"phimoe", kFewExpertKeys | kRmsEpsilon},
    Dialect{"ministral3", kTemperature},
    Dialect{"cohere", kWindows | kAlwaysWindows | kLogitScale, 4},
    Dialect{"granite", kWindows | kMultiplierKeys},
    Dialect{"granite_moe", kFewExpertKeys | kMultiplierKeys},
    Dialect{"olmo", kWindows, 4},  // llama.cpp rotates all layers by rope.freq_base
    Dialect{"exaone4", kWindows, 4},
    Dialect{"glm4_moe", kAllExpertKeys},
    Dialect{"dots1", kAllExpertKeys},
    Dialect{"ernie4_5", kFewExpertKeys | kSharedWidth | kDenseFirst},
    Dialect{"qwen2_moe", kFewExpertKeys | kSharedWidth},
    Dialect{"exaone_moe", kWindows | kAlwaysWindows | kAllExpertKeys, 4},
};

// A family that is not in the table is plain: what every decoder has.
Dialect dialect_of(const Family& family) {
  const auto at = std::ranges::find(kDialects, family.name, &Dialect::family);
  return at == kDialects.end() ? Dialect{family.name} : *at;
}

// Factors that come out of a formula in f32 differ from what a reader gets by roundings.
bool close(double a, double b, double tolerance = 1e-6) {
  return a == b || std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

class KeyWriter {
 public:
  KeyWriter(const Family& family, const ModelConfig& config)
      : family_(family),
        config_(config),
        dialect_(dialect_of(family)),
        architecture_(gguf_architecture(family, config)),
        prefix_(std::string(architecture_) + ".") {}

  GgufModelKeys run() {
    keys_.metadata.put("general.architecture", std::string(architecture_));
    put("block_count", static_cast<std::uint32_t>(config_.layers.size()));
    put("context_length", config_.context_tokens);
    put("embedding_length", config_.width);
    put("vocab_size", config_.vocab);
    const bool plain = config_.norm_kind == plan::NormKind::kLayerNorm && !has(kRmsEpsilon);
    put(plain ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", config_.norm_eps);
    feed_forward();
    if (has(kLatentKeys)) {
      latent();
    } else if (any_layer(OpType::kAttention)) {
      attention();
    } else {
      put("attention.head_count", 0U);
    }
    if (config_.logit_softcap != 0) put("final_logit_softcapping", config_.logit_softcap);
    if (config_.pooling != plan::Pooling::kNone) put("pooling_type", static_cast<std::uint32_t>(config_.pooling));
    if (any_layer(OpType::kMoe)) experts();
    if (has(kMambaKeys) && any_layer(OpType::kMambaMixer)) mamba();
    if (has(kShortconvKeys)) put("shortconv.l_cache", config_.shortconv.l_cache);
    if (has(kMultiplierKeys)) multipliers();
    if (has(kLogitScale)) put("logit_scale", config_.logit_mul);
    return std::move(keys_);
  }

 private:
  bool has(Feature feature) const { return (dialect_.features & feature) != 0; }
  bool any_layer(OpType type) const {
    return std::ranges::any_of(config_.layers, [&](const LayerConfig& l) { return layer_has(family_, l, type); });
  }
  void put(std::string_view name, io::GgufMetadataValue value) {
    keys_.metadata.put(prefix_ + std::string(name), std::move(value));
  }

  // One number when all layers agree, else one for each.
  void per_layer(std::string_view name, const std::function<std::uint32_t(const LayerConfig&)>& of) {
    std::vector<std::int32_t> values;
    for (const LayerConfig& layer : config_.layers) values.push_back(static_cast<std::int32_t>(of(layer)));
    if (std::ranges::adjacent_find(values, std::ranges::not_equal_to()) == values.end()) {
      put(name, static_cast<std::uint32_t>(values.front()));
    } else {
      put(name, std::move(values));
    }
  }

  // Layers without a dense one repeat the next best, so that one number will do for all, unless the number says what they are.
  void feed_forward() {
    if (has(kOneMixer)) {
      return per_layer("feed_forward_length", [&](const LayerConfig& layer) {
        return layer_has(family_, layer, OpType::kFfn)   ? layer.ffn
               : layer_has(family_, layer, OpType::kMoe) ? config_.moe.ffn_expert
                                                         : 0;
      });
    }
    std::uint32_t fallback = config_.moe.ffn_expert;
    for (const LayerConfig& layer : config_.layers) {
      if (layer_has(family_, layer, OpType::kFfn)) fallback = layer.ffn;
    }
    per_layer("feed_forward_length",
              [&](const LayerConfig& layer) { return layer_has(family_, layer, OpType::kFfn) ? layer.ffn : fallback; });
  }

  void attention() {
    const AttentionConfig& a = config_.attention;
    std::uint32_t fallback = 0;  // readers take the head count of layers without attention from this key too
    for (const LayerConfig& layer : config_.layers) fallback = std::max(fallback, layer.heads);
    per_layer("attention.head_count",
              [&](const LayerConfig& layer) { return layer.heads != 0 ? layer.heads : fallback; });
    per_layer("attention.head_count_kv", [](const LayerConfig& layer) { return layer.kv_heads; });
    put("attention.key_length", a.d_qk);
    put("attention.value_length", a.d_v);
    if (has(kScaleKey) || !close(a.scale, 1.0 / std::sqrt(static_cast<double>(a.d_qk))))
      put("attention.scale", a.scale);
    if (a.logit_softcap != 0) put("attn_logit_softcapping", a.logit_softcap);
    if (has(kWindows) && architecture_ != "command-r") windows();
    if (has(kTemperature)) temperature();
    if (!config_.ropes.empty()) rope(config_.ropes.front());
    if (has(kSecondBase) && config_.ropes.size() > 1)
      put("rope.freq_base_swa", static_cast<float>(config_.ropes.back().base));
    if (has(kSectionKeys)) {
      const auto& s = a.sections;
      put("rope.dimension_sections",
          std::vector<std::int32_t>{static_cast<std::int32_t>(s[0]), static_cast<std::int32_t>(s[1]),
                                    static_cast<std::int32_t>(s[2]), 0});
    }
  }

  // Readers take the length from the rotation.
  void temperature() {
    const Temperature& t = config_.attention.temperature;
    const bool has_length = !config_.ropes.empty() && config_.ropes.front().kind == RopeKind::kYarn;
    if (t.length != 0 && has_length) put("attention.temperature_scale", t.factor);
  }

  // Versions of llama.cpp that read a pattern take one number; some pass over a list of flags and take the period that they assume.
  void windows() {
    std::uint32_t window = 0;
    io::GgufFlags flags;
    for (const LayerConfig& layer : config_.layers) {
      window = std::max(window, layer.window);
      flags.values.push_back(layer.window != 0);
    }
    put("attention.sliding_window", window);
    if (window == 0) {
      if (has(kAlwaysWindows)) keys_.lost.emplace_back("that no layer has a window");
      return;
    }
    if (dialect_.window_period == 1) return put("attention.sliding_window_pattern", std::move(flags));
    const std::uint32_t period = window_period();
    if (period == 0) {
      keys_.lost.emplace_back("windows whose layers follow no period");
    } else if (period != dialect_.window_period) {
      put("attention.sliding_window_pattern", period);
    }
  }

  // Layer n has no window iff n % period == period - 1; 0 when there is no such period.
  std::uint32_t window_period() const {
    const auto fits = [&](std::uint32_t period) {
      for (std::size_t n = 0; n < config_.layers.size(); ++n) {
        if ((config_.layers[n].window == 0) != (n % period == period - 1)) return false;
      }
      return true;
    };
    if (fits(dialect_.window_period)) return dialect_.window_period;
    for (std::uint32_t period = 2; period <= config_.layers.size() + 1; ++period) {
      if (fits(period)) return period;
    }
    return 0;
  }

  void rope(const RopeConfig& rope) {
    put("rope.dimension_count", rope.dims);
    put("rope.freq_base", static_cast<float>(rope.base));
    if (rope.kind == RopeKind::kLinear || rope.kind == RopeKind::kYarn) {
      put("rope.scaling.type", std::string(rope.kind == RopeKind::kYarn ? "yarn" : "linear"));
      put("rope.scaling.factor", static_cast<float>(rope.factor));
    }
    if (rope.kind == RopeKind::kYarn) yarn(rope);
    if (!rope.divisors_long.empty()) {
      put("rope.scaling.type", std::string("longrope"));
      put("rope.scaling.original_context_length", rope.original_context);
      put("rope.scaling.attn_factor", rope.attn_factor);
      keys_.rope_tensors.push_back({"rope_factors_long.weight", rope.divisors_long});
      keys_.rope_tensors.push_back({"rope_factors_short.weight", rope.divisors});
    } else if (rope.kind == RopeKind::kLlama3) {
      keys_.rope_tensors.push_back({"rope_freqs.weight", llama3_divisors(rope)});
    } else if (!rope.divisors.empty()) {
      keys_.rope_tensors.push_back({"rope_freqs.weight", rope.divisors});
    }
  }

  void yarn(const RopeConfig& rope) {
    put("rope.scaling.original_context_length", rope.original_context);
    put("rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
    put("rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
    if (latent_magnitude_per_log() != 0) return;
    const double given = rope.attn_factor / yarn_magnitude(1, rope.factor);
    if (!close(given, 1)) put("rope.scaling.attn_factor", static_cast<float>(given));
  }

  // Readers divide the frequencies by these; the scaling itself has no keys.
  static std::vector<float> llama3_divisors(const RopeConfig& rope) {
    constexpr double kTwoPi = 6.283185307179586;
    std::vector<float> divisors;
    for (std::uint32_t i = 0; i < rope.dims / 2; ++i) {
      const double turn = kTwoPi * portable_exp(portable_log(rope.base) * 2.0 * i / rope.dims);
      const double length = rope.original_context / turn;
      const double smooth =
          std::clamp((length - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
      divisors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / rope.factor + smooth)));
    }
    return divisors;
  }

  void latent() {
    const MlaConfig& mla = config_.mla;
    put("attention.head_count", config_.layers.front().heads);
    put("attention.head_count_kv", 1U);  // of the cache: one row for all heads
    put("attention.key_length", mla.kv_lora + mla.d_rope);
    put("attention.value_length", mla.kv_lora);
    put("attention.key_length_mla", mla.d_nope + mla.d_rope);
    put("attention.value_length_mla", mla.d_v);
    if (mla.q_lora != 0) put("attention.q_lora_rank", mla.q_lora);
    put("attention.kv_lora_rank", mla.kv_lora);
    rope(config_.ropes.front());
    if (const float per_log = latent_magnitude_per_log(); per_log != 0)
      put("rope.scaling.yarn_log_multiplier", per_log);
  }

  // 0.1 * mscale_all_dim, out of the scale it went into: scale = m^2 / sqrt(d), m = 1 + 0.1 mscale_all_dim ln(factor).
  float latent_magnitude_per_log() const {
    const RopeConfig& rope = config_.ropes.front();
    if (!has(kLatentKeys) || rope.kind != RopeKind::kYarn || rope.factor <= 1) return 0;
    const double d = config_.mla.d_nope + config_.mla.d_rope;
    const double magnitude = std::sqrt(config_.mla.scale * std::sqrt(d));
    // The scale was rounded; published values have at most four digits.
    return static_cast<float>(std::round((magnitude - 1) / portable_log(rope.factor) * 1e5) / 1e5);
  }

  void experts() {
    const MoeConfig& moe = config_.moe;
    put("expert_count", moe.experts);
    put("expert_used_count", moe.experts_used);
    put("expert_feed_forward_length", moe.ffn_expert);
    if (moe.latent != 0) put("moe_latent_size", moe.latent);
    if (has(kMultiplierKeys) || has(kOneMixer) || has(kSharedWidth))
      put("expert_shared_feed_forward_length", moe.ffn_shared);
    std::uint32_t dense = 0;
    while (dense < config_.layers.size() && !layer_has(family_, config_.layers[dense], OpType::kMoe)) ++dense;
    if (has(kDenseFirst)) {
      put("leading_dense_block_count", dense);
      put("interleave_moe_layer_step", 1U);
    }
    if (!has(kAllExpertKeys)) return;
    if (!has(kOneMixer)) put("leading_dense_block_count", dense);
    if (moe.ffn_shared != 0) put("expert_shared_count", moe.ffn_shared / moe.ffn_expert);
    if (has(kLatentKeys) || moe.groups != 0) {
      put("expert_group_count", std::max(moe.groups, 1U));
      put("expert_group_used_count", std::max(moe.groups_used, 1U));
    }
    put("expert_gating_func", static_cast<std::uint32_t>(moe.gate));
    put("expert_weights_scale", moe.weights_scale);
    put("expert_weights_norm", moe.norm_topk);
  }

  void mamba() {
    const MambaConfig& m = config_.mamba;
    put("ssm.conv_kernel", m.d_conv);
    put("ssm.state_size", m.d_state);
    put("ssm.group_count", m.groups);
    put("ssm.inner_size", m.d_inner);
    put("ssm.time_step_rank", m.heads);
  }

  void multipliers() {
    put("embedding_scale", config_.embedding_scale);
    put("residual_scale", config_.residual_scale);
    put("logit_scale", 1 / config_.logit_mul);
    const bool rotates =
        std::ranges::any_of(config_.layers, [](const LayerConfig& layer) { return layer.rope != kNoRope; });
    put("rope.scaling.finetuned", rotates);
    if (!rotates && architecture_ == "granitemoe") keys_.lost.emplace_back("that no layer rotates");
  }

  const Family& family_;
  const ModelConfig& config_;
  const Dialect dialect_;
  const std::string_view architecture_;
  const std::string prefix_;
  GgufModelKeys keys_;
};

}  // namespace

std::string_view gguf_architecture(const Family& family, const ModelConfig& config) {
  ASSERT(!family.gguf.empty(), "family {} has no name in GGUF", family.name);
  const auto any_layer = [&](OpType type) {
    return std::ranges::any_of(config.layers, [&](const LayerConfig& layer) {
      return layer.layer_template < family.layer_templates.size() && layer_has(family, layer, type);
    });
  };
  const bool sparse = any_layer(OpType::kMoe);
  // llama.cpp demands the sizes of a mixer from every granitehybrid: without one, converters name what the rest of the layers is.
  if (family.name == "granite_hybrid" && !any_layer(OpType::kMambaMixer)) return sparse ? "granitemoe" : "granite";
  const auto mixture = std::ranges::find_if(family.gguf, [](std::string_view name) { return name.ends_with("moe"); });
  if (sparse && mixture != family.gguf.end()) return *mixture;
  // Where both formats have the name, it says which of a family's architectures this is.
  const auto same = std::ranges::find(family.gguf, config.architecture);
  return same != family.gguf.end() ? *same : family.gguf.front();
}

GgufModelKeys gguf_model_keys(const Family& family, const ModelConfig& config) {
  return KeyWriter(family, config).run();
}

base::Result<ModelConfig> read_back(const Family& family, const GgufModelKeys& keys, std::uint32_t vocab) {
  io::GgufWriter writer;
  keys.metadata.write_to(writer);
  for (const RopeTensor& tensor : keys.rope_tensors) {
    writer.add_tensor({tensor.name, plan::DType::kF32, {tensor.values.size()}},
                      std::as_bytes(std::span(tensor.values)));
  }
  const std::vector<std::byte> bytes = TRY(writer.to_bytes());
  const io::ModelFiles files = TRY(io::ModelFiles::from_gguf(TRY(io::GgufFile::parse(bytes, "the new metadata"))));
  ModelConfig config = TRY(family.read_gguf(TRY(GgufKeys::of(files))));
  config.vocab = vocab;
  return config;
}

}  // namespace llorch::engine::models
