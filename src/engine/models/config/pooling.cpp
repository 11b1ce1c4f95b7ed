#include "engine/models/config/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::Pooling;

constexpr std::string_view kSupported = "mean, first (cls) and last token are built";
constexpr std::string_view kCausalOnly = "models whose rows see later ones are not built";

// One name, or one flag per kind of older files.
Result<Pooling> read_hf(const io::HfConfig& config) {
  struct Kind {
    std::string_view name, flag;
    Pooling pooling;
  };
  constexpr std::array kKinds{Kind{"mean", "pooling_mode_mean_tokens", Pooling::kMean},
                              Kind{"cls", "pooling_mode_cls_token", Pooling::kFirst},
                              Kind{"lasttoken", "pooling_mode_lasttoken", Pooling::kLast}};
  if (config.contains("pooling_mode")) {
    const std::string_view name = TRY(config.string("pooling_mode"));
    const auto kind = std::ranges::find(kKinds, name, &Kind::name);
    if (kind == kKinds.end()) return impossible(config.source() + " pooling_mode", std::string(name), kSupported);
    return kind->pooling;
  }
  Pooling found = Pooling::kNone;
  for (const std::string_view key : config.keys()) {
    if (!key.starts_with("pooling_mode_") || !TRY(config.boolean_or(key, false))) continue;
    const auto kind = std::ranges::find(kKinds, key, &Kind::flag);
    if (kind == kKinds.end() || found != Pooling::kNone)
      return impossible(config.source(), std::string(key), fmt::format("{}, one at a time", kSupported));
    found = kind->pooling;
  }
  if (found == Pooling::kNone) return impossible(config.source(), "no kind of pooling", kSupported);
  return found;
}

}  // namespace

Result<Pooling> read_pooling(const GgufKeys& keys) {
  if (!TRY(keys.flag_or("attention.causal", true)))
    return impossible(keys.key("attention.causal"), "false", kCausalOnly);
  const std::uint32_t kind = TRY(keys.number_or("pooling_type", 0));
  if (kind <= static_cast<std::uint32_t>(Pooling::kLast)) return static_cast<Pooling>(kind);
  return impossible(keys.key("pooling_type"), fmt::to_string(kind), kSupported);
}

Result<Pooling> read_pooling(const HfKeys& keys) {
  const io::HfConfig& config = keys.text();
  if (!TRY(config.boolean_or("is_causal", true))) return impossible("is_causal", "false", kCausalOnly);
  if (TRY(config.boolean_or("use_bidirectional_attention", false)))
    return impossible("use_bidirectional_attention", "true", kCausalOnly);
  const io::HfConfig* pooling = keys.files().hf_pooling();
  return pooling == nullptr ? Pooling::kNone : read_hf(*pooling);
}

}  // namespace llorch::engine::models
