#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/gguf_export/tensor_list.h"
#include "engine/models/rope.h"

namespace llorch::engine::models {
namespace {

// f32 roundings of a factor that was stored as another; of a frequency that was stored as a divisor.
constexpr double kFactorTolerance = 1e-6;
constexpr double kFrequencyTolerance = 1e-6;

class Comparison {
 public:
  Comparison(const Family& family, const ModelConfig& wanted, const ModelConfig& got)
      : family_(family), wanted_(wanted), got_(got) {}

  KeyDifferences run() {
    check("width", wanted_.width, got_.width);
    check("context", wanted_.context_tokens, got_.context_tokens);
    check("pooling", wanted_.pooling, got_.pooling);
    check("kind of norms", wanted_.norm_kind, got_.norm_kind);
    near("norm epsilon", wanted_.norm_eps, got_.norm_eps);
    near("embedding scale", wanted_.embedding_scale, got_.embedding_scale);
    near("residual scale", wanted_.residual_scale, got_.residual_scale);
    near("logit scale", wanted_.logit_mul, got_.logit_mul);
    near("cap of the logits", wanted_.logit_softcap, got_.logit_softcap);
    if (wanted_.layers.size() != got_.layers.size()) {
      check("number of layers", wanted_.layers.size(), got_.layers.size());
      return std::move(out_);
    }
    if (!ropes()) return std::move(out_);
    for (layer_ = 0; layer_ < wanted_.layers.size(); ++layer_) compare_layer();
    if (any(OpType::kAttention)) attention();
    if (any(OpType::kMlaAttention)) latent();
    if (any(OpType::kFfn) || any(OpType::kMoe)) activation();
    if (any(OpType::kMoe)) experts();
    if (any(OpType::kLightningIndex)) index();
    if (any(OpType::kGatedDelta)) delta();
    if (any(OpType::kMambaMixer)) mamba();
    if (any(OpType::kShortconv)) check("taps", wanted_.shortconv.l_cache, got_.shortconv.l_cache);
    return std::move(out_);
  }

 private:
  bool any(OpType type) const {
    return std::ranges::any_of(wanted_.layers, [&](const LayerConfig& l) { return layer_has(family_, l, type); });
  }
  void lost(std::string text) {
    if (std::ranges::find(out_.lost, text) == out_.lost.end()) out_.lost.push_back(std::move(text));
  }
  template <class T>
  void check(std::string_view what, T wanted, T got) {
    if (wanted == got) return;
    if constexpr (std::is_enum_v<T>) {
      lost(fmt::format("its {}", what));
    } else {
      lost(fmt::format("{} {} (readers would take {})", what, wanted, got));
    }
  }
  static bool is_near(double a, double b, double tolerance) {
    if (!std::isfinite(a) || !std::isfinite(b)) return a == b;
    return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
  }
  void near(std::string_view what, double wanted, double got) {
    if (!is_near(wanted, got, kFactorTolerance)) check(what, wanted, got);
  }

  // All tables of both models; false when one cannot be made.
  bool ropes() {
    auto wanted = make_rope_tables(wanted_.ropes);
    auto got = make_rope_tables(got_.ropes);
    if (!wanted || !got) {
      lost("its rotation");
      return false;
    }
    wanted_tables_ = *std::move(wanted);
    got_tables_ = *std::move(got);
    return true;
  }

  void table(std::uint32_t wanted, std::uint32_t got) {
    const bool none = wanted == plan::kNoRopeTable;
    if (none != (got == plan::kNoRopeTable)) return lost(fmt::format("the rotation of layer {}", layer_));
    if (none) return;
    const RopeTableData& a = wanted_tables_[wanted];
    const RopeTableData& b = got_tables_[got];
    near("factor of the rotation", a.attn_factor, b.attn_factor);
    const bool same =
        std::ranges::equal(a.inv_freq, b.inv_freq, [](float x, float y) { return is_near(x, y, kFrequencyTolerance); });
    if (!same) lost("its rotation's frequencies");
  }

  static bool rotates(const ModelConfig& config) {
    return std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.rope != kNoRope; });
  }
  void pairs() {
    if (!rotates(wanted_) || pairs_become_neighbours(wanted_, got_)) return;
    check("rotation's pairs", wanted_.attention.rope_layout, got_.attention.rope_layout);
  }

  // A window that no context passes is none.
  static std::uint32_t window(const ModelConfig& config, const LayerConfig& layer) {
    return layer.window >= config.context_tokens ? 0 : layer.window;
  }

  void compare_layer() {
    const LayerConfig& a = wanted_.layers[layer_];
    const LayerConfig& b = got_.layers[layer_];
    if (a.layer_template != b.layer_template) return lost(fmt::format("the kind of layer that layer {} is", layer_));
    if (layer_has(family_, a, OpType::kFfn)) check("feed-forward width", a.ffn, b.ffn);
    const bool attends = layer_has(family_, a, OpType::kAttention);
    if (!attends && !layer_has(family_, a, OpType::kMlaAttention)) return;
    check("heads", a.heads, b.heads);
    check("kv heads", a.kv_heads, b.kv_heads);
    check("head size of a layer", a.d_head, b.d_head);
    check("layer whose cache is read", a.cache_of, b.cache_of);
    check("norm of queries and keys", a.qk_norm, b.qk_norm);
    near("scale of a layer", a.output_scale, b.output_scale);
    if (window(wanted_, a) != window(got_, b)) {
      lost(fmt::format("the window of {} positions in layer {}{}", a.window, layer_,
                       b.window == 0 ? ": readers of this architecture know no window" : ""));
    }
    const RopeTableIds wanted = rope_table_ids(wanted_.ropes, a.rope);
    const RopeTableIds got = rope_table_ids(got_.ropes, b.rope);
    table(wanted.table, got.table);
    table(wanted.long_table, got.long_table);
    check("length of the original context", long_rope_context(wanted_.ropes), long_rope_context(got_.ropes));
  }

  void attention() {
    const AttentionConfig& a = wanted_.attention;
    const AttentionConfig& b = got_.attention;
    check("head size", a.d_qk, b.d_qk);
    check("value size", a.d_v, b.d_v);
    near("attention scale", a.scale, b.scale);
    near("cap of the attention", a.logit_softcap, b.logit_softcap);
    check("kind of positions", a.mrope, b.mrope);
    if (a.sections != b.sections) lost("its sections of positions");
    check("norm of queries and keys", a.qk_norm, b.qk_norm);
    check("gate of the attention", a.gate, b.gate);
    near("scale of the values", a.value_scale, b.value_scale);
    if (a.causal != b.causal) lost("which positions a row sees");
    if (a.unit_values != b.unit_values) lost("the norm of its values");
    if (a.chunked != b.chunked) lost("which positions its windows begin at");
    pairs();
    temperature();
  }

  // Without a length there is none.
  void temperature() {
    const Temperature& a = wanted_.attention.temperature;
    const Temperature& b = got_.attention.temperature;
    if (a.length == 0 && b.length == 0) return;
    near("growth of queries", a.length == 0 ? 0 : a.factor, b.length == 0 ? 0 : b.factor);
    check("positions from one growth of queries to the next", a.length, b.length);
    check("first position of the growth of queries", a.offset, b.offset);
    if (a.of_rotated != b.of_rotated) lost("which layers' queries grow");
  }

  void index() {
    const IndexConfig& a = wanted_.index;
    const IndexConfig& b = got_.index;
    check("heads of the index", a.heads, b.heads);
    check("head size of the index", a.d_index, b.d_index);
    check("positions chosen", a.top_k, b.top_k);
    near("norm epsilon of the index", a.norm_eps, b.norm_eps);
    check("rotation's pairs in the index", a.rope_layout, b.rope_layout);
  }

  void delta() {
    const DeltaConfig& a = wanted_.delta;
    const DeltaConfig& b = got_.delta;
    check("key heads of the delta rule", a.key_heads, b.key_heads);
    check("value heads of the delta rule", a.value_heads, b.value_heads);
    check("key size of the delta rule", a.d_k, b.d_k);
    check("value size of the delta rule", a.d_v, b.d_v);
    check("taps of the delta rule", a.d_conv, b.d_conv);
    check("rank of the delta rule", a.rank, b.rank);
    if (a.keys_take_turns != b.keys_take_turns) lost("which key head a value head of the delta rule reads");
    if (a.channel_decay != b.channel_decay) lost("the decays of the delta rule");
    if (a.sigmoid_gate != b.sigmoid_gate) lost("the gate of the delta rule");
  }

  void latent() {
    const MlaConfig& a = wanted_.mla;
    const MlaConfig& b = got_.mla;
    check("q rank", a.q_lora, b.q_lora);
    check("kv rank", a.kv_lora, b.kv_lora);
    check("head size", a.d_nope, b.d_nope);
    check("rotated head size", a.d_rope, b.d_rope);
    check("value size", a.d_v, b.d_v);
    near("attention scale", a.scale, b.scale);
    pairs();
    // One key for all norms. These act on sums of hundreds of squares near one: the difference is that of the epsilons.
    if (a.norm_eps != b.norm_eps) {
      out_.notes.push_back(fmt::format("GGUF has one epsilon for all norms: those inside attention get {:g} for {:g}",
                                       b.norm_eps, a.norm_eps));
    }
  }

  void activation() {
    check("activation", wanted_.ffn.activation, got_.ffn.activation);
    near("activation's alpha", wanted_.ffn.alpha, got_.ffn.alpha);
    near("activation's limit", wanted_.ffn.limit, got_.ffn.limit);
  }

  void experts() {
    const MoeConfig& a = wanted_.moe;
    const MoeConfig& b = got_.moe;
    check("experts", a.experts, b.experts);
    check("experts used", a.experts_used, b.experts_used);
    check("width of an expert", a.ffn_expert, b.ffn_expert);
    check("width of the shared expert", a.ffn_shared, b.ffn_shared);
    check("width between projections of experts", a.latent, b.latent);
    check("expert groups", a.groups, b.groups);
    check("expert groups used", a.groups_used, b.groups_used);
    if (a.groups != 0) check("score of expert groups", a.group_score, b.group_score);
    check("gate of the experts", a.gate, b.gate);
    // Softmax over the chosen ones sums to one by itself.
    if (a.gate != plan::MoeGate::kSoftmaxAfterTopk && a.norm_topk != b.norm_topk)
      lost(fmt::format("that weights of experts are {}renormalised", a.norm_topk ? "" : "not "));
    near("scale of the experts", a.weights_scale, b.weights_scale);
    near("reach of the mixer of experts", a.reach, b.reach);
  }

  void mamba() {
    const MambaConfig& a = wanted_.mamba;
    const MambaConfig& b = got_.mamba;
    check("state-space width", a.d_inner, b.d_inner);
    check("state-space heads", a.heads, b.heads);
    check("state size", a.d_state, b.d_state);
    check("state-space groups", a.groups, b.groups);
    check("taps", a.d_conv, b.d_conv);
    near("least time step", a.dt_min, b.dt_min);
    near("greatest time step", a.dt_max, b.dt_max);
  }

  const Family& family_;
  const ModelConfig& wanted_;
  const ModelConfig& got_;
  std::vector<RopeTableData> wanted_tables_, got_tables_;
  std::size_t layer_ = 0;
  KeyDifferences out_;
};

}  // namespace

bool pairs_become_neighbours(const ModelConfig& wanted, const ModelConfig& got) {
  return wanted.attention.rope_layout == plan::RopeLayout::kHalf &&
         got.attention.rope_layout == plan::RopeLayout::kInterleaved;
}

KeyDifferences compare(const Family& family, const ModelConfig& wanted, const ModelConfig& got) {
  return Comparison(family, wanted, got).run();
}

}  // namespace llorch::engine::models
