// The rotation dictionaries of config.json: rope_scaling (transformers 4) and rope_parameters (transformers 5).
#include <fmt/format.h>

#include <cmath>

#include "engine/models/config/hf_keys.h"
#include "engine/models/portable_math.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using io::HfConfig;

// Keys of the dictionary, and those that may stand beside it.
class Reader {
 public:
  Reader(const HfKeys& keys, const std::optional<HfConfig>& dictionary, const HfRopeRules& rules)
      : keys_(keys), dictionary_(dictionary), rules_(rules) {}

  Result<RopeConfig> read(std::uint32_t head_size) {
    RopeConfig rope;
    rope.base = TRY(theta());
    std::string_view kind = TRY(this->kind());
    if (kind == "proportional") return proportional(rope, head_size);
    rope.dims = TRY(dims(head_size));
    if (rules_.longrope_aliases && (kind == "su" || kind == "yarn")) kind = "longrope";
    if (kind == "default" || kind == "mrope") return rope;
    if (kind == "dynamic" && rules_.alpha && has("alpha")) {
      const double alpha = TRY(check_positive("alpha", TRY(required("alpha"))));
      rope.base *= portable_pow(alpha, static_cast<double>(rope.dims) / (rope.dims - 2.0));
      return rope;
    }
    if (kind == "dynamic") {
      // NTK stretches the base once a sequence passes max_position_embeddings, which no slot does here.
      TRY(check_positive("factor", TRY(required("factor"))));
      return rope;
    }
    if (kind == "linear") {
      rope.kind = RopeKind::kLinear;
      rope.factor = TRY(required("factor"));
      return rope;
    }
    if (kind == "llama3") return llama3(rope);
    if (kind == "yarn") return yarn(rope);
    if (kind == "longrope") return longrope(rope);
    return impossible("rope_type", std::string(kind),
                      "must be default, linear, dynamic, llama3, yarn, longrope, proportional or mrope");
  }

 private:
  bool has(std::string_view name) const { return dictionary_ && dictionary_->contains(name); }
  Result<float> real_or(std::string_view name, float absent) const {
    return dictionary_ ? dictionary_->f32_or(name, absent) : absent;
  }
  Result<float> required(std::string_view name) const { return dictionary_->f32(name); }

  Result<double> theta() const {
    if (has("rope_theta")) return TRY(required("rope_theta"));
    return TRY(keys_.text().f32_or(rules_.theta_key, static_cast<float>(rules_.theta_absent)));
  }

  Result<std::uint32_t> dims(std::uint32_t head_size) const {
    if (!rules_.partial) return head_size;
    const float share =
        TRY(real_or("partial_rotary_factor", TRY(keys_.text().f32_or("partial_rotary_factor", rules_.partial_absent))));
    if (!(share > 0 && share <= 1))
      return impossible("partial_rotary_factor", fmt::format("{}", share), "must be in (0, 1]");
    return static_cast<std::uint32_t>(static_cast<double>(head_size) * share);
  }

  Result<std::string_view> kind() const {
    if (!dictionary_) return std::string_view("default");
    for (std::string_view name : {"rope_type", "type"}) {
      if (dictionary_->contains(name)) return dictionary_->string(name);
    }
    return std::string_view("default");
  }

  Result<std::uint32_t> max_positions() const { return keys_.count("max_position_embeddings", kContextMax); }
  Result<std::uint32_t> original() const {
    constexpr std::string_view kName = "original_max_position_embeddings";
    if (keys_.has(kName)) {
      const std::uint32_t top = TRY(keys_.count(kName, kContextMax));
      if (!has(kName) || TRY(dictionary_->u32(kName)) == top) return top;
      return impossible(kName, fmt::format("{}", top), "must be the number that the rotation's dictionary has");
    }
    if (has(kName)) return check_count(kName, TRY(dictionary_->u32(kName)), kContextMax);
    return rules_.original_absent != 0 ? Result<std::uint32_t>(rules_.original_absent) : max_positions();
  }
  // Given, or how far the context was stretched.
  Result<double> factor(std::uint32_t original_context) const {
    if (has("factor")) return TRY(check_positive("factor", TRY(required("factor"))));
    return static_cast<double>(TRY(max_positions())) / original_context;
  }

  // Pairs reach across the whole head; only a share of them turns.
  Result<RopeConfig> proportional(RopeConfig rope, std::uint32_t head_size) const {
    rope.dims = head_size;
    const float share = TRY(real_or("partial_rotary_factor", 1.0F));
    rope.turning = static_cast<std::uint32_t>(static_cast<double>(share) * head_size / 2);
    if (!(share > 0 && share <= 1) || rope.turning == 0)
      return impossible("partial_rotary_factor", fmt::format("{}", share), "must be in (0, 1] and leave a pair");
    rope.factor = TRY(real_or("factor", 1.0F));
    if (rope.factor != 1.0) rope.kind = RopeKind::kLinear;
    return rope;
  }

  Result<RopeConfig> llama3(RopeConfig rope) const {
    rope.kind = RopeKind::kLlama3;
    rope.original_context = TRY(original());
    rope.factor = TRY(required("factor"));
    rope.low_freq_factor = TRY(required("low_freq_factor"));
    rope.high_freq_factor = TRY(required("high_freq_factor"));
    return rope;
  }

  Result<RopeConfig> yarn(RopeConfig rope) const {
    rope.kind = RopeKind::kYarn;
    rope.original_context = TRY(original());
    if (!dictionary_->is_null("factor")) TRY(required("factor"));  // null, and only that, is for being derived
    rope.factor = TRY(factor(rope.original_context));
    rope.beta_fast = TRY(real_or("beta_fast", 32));
    rope.beta_slow = TRY(real_or("beta_slow", 1));
    rope.truncate = TRY(dictionary_->boolean_or("truncate", true));
    const float mscale = TRY(real_or("mscale", 0));
    const float mscale_all = TRY(real_or("mscale_all_dim", 0));
    double magnitude = yarn_magnitude(1, rope.factor);
    if (mscale != 0 && mscale_all != 0)
      magnitude = yarn_magnitude(mscale, rope.factor) / yarn_magnitude(mscale_all, rope.factor);
    rope.attn_factor = TRY(real_or("attention_factor", static_cast<float>(magnitude)));
    return rope;
  }

  Result<std::vector<float>> divisors(std::string_view name, std::size_t count) const {
    std::vector<float> list = TRY(dictionary_->f32_list(name));
    if (list.size() != count) {
      return impossible(name, fmt::format("{} numbers", list.size()),
                        fmt::format("must have one for each of the rotation's {} frequencies", count));
    }
    return list;
  }

  Result<RopeConfig> longrope(RopeConfig rope) const {
    rope.original_context = TRY(original());
    rope.divisors = TRY(divisors("short_factor", rope.dims / 2));
    rope.divisors_long = TRY(divisors("long_factor", rope.dims / 2));
    if (rules_.magnitudes) {
      rope.attn_factor = TRY(required("short_mscale"));
      if (TRY(required("long_mscale")) == rope.attn_factor) return rope;
      return impossible("long_mscale", fmt::format("{}", TRY(required("long_mscale"))), "must be short_mscale");
    }
    const double stretch = TRY(factor(rope.original_context));
    double magnitude = 1;
    if (stretch > 1) magnitude = std::sqrt(1 + portable_log(stretch) / portable_log(rope.original_context));
    rope.attn_factor = TRY(real_or("attention_factor", static_cast<float>(magnitude)));
    return rope;
  }

  const HfKeys& keys_;
  const std::optional<HfConfig>& dictionary_;
  const HfRopeRules& rules_;
};

}  // namespace

Result<RopeConfig> read_hf_rope(const HfKeys& keys, const std::optional<HfConfig>& dictionary, std::uint32_t head_size,
                                const HfRopeRules& rules) {
  return Reader(keys, dictionary, rules).read(head_size);
}

Result<RopeConfig> read_hf_rope(const HfKeys& keys, std::uint32_t head_size, const HfRopeRules& rules) {
  std::optional<HfConfig> dictionary = TRY(keys.rope_dictionary());
  const std::string_view layer_type = rules.layer_type.empty() ? "full_attention" : rules.layer_type;
  if (dictionary && dictionary->kind(layer_type) == io::HfKind::kObject)
    dictionary = TRY(dictionary->object(layer_type));
  return read_hf_rope(keys, dictionary, head_size, rules);
}

}  // namespace llorch::engine::models
