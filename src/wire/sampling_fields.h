#pragma once
// Field table of SamplingRequest. Included only by the .cpp files of this directory.
#include <charconv>

#include "wire/field.h"
#include "wire/request_limits.h"
#include "wire/sampling.h"

namespace llorch::wire {

inline constexpr double kStopTextsMax = 16;  // editors' completions send about ten

template <>
struct EnumNames<SamplerOrder> {
  static constexpr auto names =
      std::array{std::pair{SamplerOrder::kTemperatureFirst, std::string_view("temperature_first")},
                 std::pair{SamplerOrder::kTemperatureLast, std::string_view("temperature_last")}};
};
template <>
struct EnumNames<PenaltyScope> {
  static constexpr auto names = std::array{std::pair{PenaltyScope::kAll, std::string_view("all")},
                                           std::pair{PenaltyScope::kOutput, std::string_view("output")}};
};

// Bounds count the members.
template <>
struct Codec<std::vector<LogitBias>> {
  static constexpr double kBiasMax = 100;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys,
                             std::vector<LogitBias>& out) {
    if (!v.is_object()) return field_error(path, "type", fmt::format("{} must be an object of token ids", path));
    const bj::object& object = v.get_object();
    if (static_cast<double>(object.size()) > b.max) {
      return field_error(path, "length",
                         fmt::format("{} has {} members; at most {} are allowed", path, object.size(), b.max));
    }
    out.clear();
    out.reserve(object.size());
    for (const auto& [key, item] : object) {
      const auto token = token_id(std::string_view(key.data(), key.size()));
      if (!token) return field_error(path, "key", fmt::format("{} has a key that is no token id", path));
      // The path ends here: which tokens a client names is its own affair.
      double bias = 0;
      TRY(Codec<double>::read(item, path, {-kBiasMax, kBiasMax}, UnknownKeys::kRefuse, bias));
      out.push_back({.token = *token, .bias = bias});
    }
    std::sort(out.begin(), out.end(), [](const LogitBias& x, const LogitBias& y) { return x.token < y.token; });
    return {};
  }
  static void write(std::string& out, const std::vector<LogitBias>& v) {
    MembersWriter members(out);
    for (const LogitBias& item : v) members.add(std::to_string(item.token), item.bias);
  }
  static bj::object schema(const Bounds& b) {
    return {{"type", "object"},
            {"propertyNames", bj::object{{"pattern", "^(0|[1-9][0-9]{0,9})$"}}},
            {"additionalProperties", Codec<double>::schema({-kBiasMax, kBiasMax})},
            {"maxProperties", static_cast<std::int64_t>(b.max)}};
  }

 private:
  // One spelling per id, so that no id comes twice.
  static std::optional<std::int64_t> token_id(std::string_view text) {
    if (text.empty() || text.size() > 10 || (text[0] == '0' && text.size() > 1)) return std::nullopt;
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0) return std::nullopt;
    return id;
  }
};

// Bounds count the bytes of the text.
template <>
struct Codec<JsonSchema> {
  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys, JsonSchema& out) {
    if (!v.is_object() && !v.is_bool()) {
      return field_error(path, "type", fmt::format("{} must be a JSON Schema: an object, true or false", path));
    }
    out.text = bj::serialize(v);
    if (static_cast<double>(out.text.size()) > b.max) {
      return field_error(path, "length",
                         fmt::format("{} has {} bytes; at most {} are allowed", path, out.text.size(), b.max));
    }
    return {};
  }
  static void write(std::string& out, const JsonSchema& v) { out += v.text; }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"object", "boolean"}}}; }
};

template <>
struct Table<SamplingRequest> {
  using S = SamplingRequest;
  static constexpr double kCountMax = 10'000'000;
  static constexpr double kConstraintBytesMax = 1 << 20;
  static Fields fields() {
    return {
        optional("top_p", &S::top_p, "Smallest set of tokens with this probability mass; 1 is off.", {0, 1}),
        optional("top_k", &S::top_k, "Most likely tokens kept; 0 is off.", {0, kCountMax}),
        optional("min_p", &S::min_p, "Least probability relative to the likeliest token; 0 is off.", {0, 1}),
        optional("typical_p", &S::typical_p, "Mass of the tokens nearest to the entropy that is kept; 1 is off.",
                 {0, 1}),
        optional("top_n_sigma", &S::top_n_sigma,
                 "Logits within this many standard deviations of the largest are kept; 0 is off.", {0, 100}),
        optional("xtc_probability", &S::xtc_probability,
                 "How often all likely tokens but the last are left out; 0 is off.", {0, 1}),
        optional("xtc_threshold", &S::xtc_threshold, "Probability from which XTC calls a token likely.", {0, 0.5}),
        optional("min_keep", &S::min_keep, "Tokens every cut leaves at least.", {1, kCountMax}),
        optional("dynatemp_range", &S::dynatemp_range,
                 "Temperature moves by this much to either side with the entropy; 0 is off.", {0, 2}),
        optional("dynatemp_exponent", &S::dynatemp_exponent, "Of the normalised entropy in dynamic temperature.",
                 {0, 10}),
        optional("repetition_penalty", &S::repetition_penalty, "Divides or multiplies logits of seen tokens; 1 is off.",
                 {0, 2}),
        optional("frequency_penalty", &S::frequency_penalty, "Subtracted per occurrence of a token; 0 is off.",
                 {-2, 2}),
        optional("presence_penalty", &S::presence_penalty, "Subtracted once from seen tokens; 0 is off.", {-2, 2}),
        optional("repetition_scope", &S::repetition_scope,
                 "Which tokens repetition_penalty counts: prompt and output, or output."),
        optional("frequency_scope", &S::frequency_scope,
                 "Which tokens frequency_penalty and presence_penalty count: prompt and output, or output."),
        optional("penalty_last_n", &S::penalty_last_n, "Newest tokens the three penalties look at; 0 is all.",
                 {0, kCountMax}),
        optional("dry_multiplier", &S::dry_multiplier,
                 "Strength of the penalty on tokens that lengthen a repeat; 0 is off.", {0, 10}),
        optional("dry_base", &S::dry_base, "Growth of DRY's penalty per token of the repeat.", {1, 4}),
        optional("dry_allowed_length", &S::dry_allowed_length, "Longest repeat DRY lets pass, plus one.",
                 {1, kCountMax}),
        optional("dry_last_n", &S::dry_last_n, "Newest tokens DRY looks at; 0 is all.", {0, kCountMax}),
        optional("dry_sequence_breakers", &S::dry_sequence_breakers, "Texts over which no repeat reaches.", {0, 16}),
        optional("mirostat", &S::mirostat, "1 or 2: this version of mirostat instead of the cuts; 0 is off.", {0, 2}),
        optional("mirostat_tau", &S::mirostat_tau, "Surprise mirostat aims at, in bits per token.", {0, 20}),
        optional("mirostat_eta", &S::mirostat_eta, "How fast mirostat corrects itself.", {0, 1}),
        optional("sampler_order", &S::sampler_order, "Temperature before the cuts, or after them."),
        optional("logit_bias", &S::logit_bias, "Token id to what is added to its logit.", {0, 1024}),
        optional("logprobs", &S::logprobs, "Token events carry log-probabilities."),
        optional("top_logprobs", &S::top_logprobs, "With logprobs: how many of the likeliest tokens are listed.",
                 {0, kTopLogprobsMax}),
        optional(
            "prompt_logprobs", &S::prompt_logprobs,
            "With logprobs: events of the prompt's tokens, with their log-probabilities, come before the output's. "
            "Omitted: false."),
        optional("json_schema", &S::json_schema, "The output is JSON that is valid under this schema.",
                 {0, kConstraintBytesMax}),
        optional("regex", &S::regex, "The whole output matches this regular expression.", {1, kConstraintBytesMax}),
        optional("grammar", &S::grammar, "The output derives from rule root of this GBNF grammar.",
                 {1, kConstraintBytesMax})};
  }
};

template <>
struct Table<TokenLogprob> {
  using S = TokenLogprob;
  static Fields fields() {
    return {required("id", &S::id), required("logprob", &S::logprob, "Natural logarithm."),
            required("token", &S::token), required("bytes", &S::bytes)};
  }
};
template <>
struct Table<TokenLogprobs> {
  using S = TokenLogprobs;
  static Fields fields() {
    return {required("id", &S::id), required("logprob", &S::logprob, "Natural logarithm."),
            required("token", &S::token), required("bytes", &S::bytes),
            required("top_logprobs", &S::top_logprobs, "Likeliest first.")};
  }
};
template <>
struct Table<PromptTokenLogprobs> {
  using S = PromptTokenLogprobs;
  static Fields fields() {
    return {required("id", &S::id), optional("logprob", &S::logprob, "Natural logarithm. Absent: of the first token."),
            required("token", &S::token), required("bytes", &S::bytes),
            required("top_logprobs", &S::top_logprobs, "Likeliest first.")};
  }
};

}  // namespace llorch::wire
