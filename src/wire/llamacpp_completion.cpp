#include "wire/field.h"
#include "wire/gateway_fields.h"
#include "wire/json_text_fields.h"
#include "wire/llamacpp.h"
#include "wire/request_limits.h"
#include "wire/sampling_fields.h"

namespace llorch::wire {

template <>
struct Codec<LlamaCppBias> {
  static constexpr double kLowest = -100;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             LlamaCppBias& out) {
    if (!v.is_array()) return Codec<std::vector<LogitBias>>::read(v, path, b, unknown, out.tokens);
    TRY(check_array(v, path, b));
    out.tokens.clear();
    for (const bj::value& item : v.get_array()) {
      const bj::array* pair = item.if_array();
      if (pair == nullptr || pair->size() != 2) {
        return field_error(path, "type", fmt::format("{} must hold lists of a token id and its bias", path));
      }
      // The path ends here: which tokens a client names is its own affair.
      LogitBias bias{.token = 0, .bias = kLowest};
      TRY(Codec<std::int64_t>::read((*pair)[0], path, {0, 4'294'967'295}, unknown, bias.token));
      const bool* given = (*pair)[1].if_bool();
      if (given == nullptr || *given)
        TRY(Codec<double>::read((*pair)[1], path, {kLowest, -kLowest}, unknown, bias.bias));
      out.tokens.push_back(bias);
    }
    std::ranges::sort(out.tokens, {}, &LogitBias::token);
    const auto twice = std::ranges::adjacent_find(out.tokens, {}, &LogitBias::token);
    if (twice == out.tokens.end()) return {};
    return field_error(path, "duplicate", fmt::format("{} names a token twice", path));
  }
  static void write(std::string& out, const LlamaCppBias& v) { Codec<std::vector<LogitBias>>::write(out, v.tokens); }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"array", "object"}}}; }
};

// Bounds count the bytes of each text.
template <>
struct Codec<LlamaCppPrompt> {
  static constexpr double kIdsMax = 1 << 20;

  static base::Result<> read(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                             LlamaCppPrompt& out) {
    out.parts.clear();
    if (v.is_string()) return read_text(v, path, b, unknown, out);
    TRY(check_array(v, path, {0, kIdsMax}));
    const bj::array& list = v.get_array();
    if (list.size() == 1 && !list[0].is_number()) return read(list[0], path.element(0), b, unknown, out);
    const bool has_ids = std::ranges::any_of(list, [](const bj::value& item) { return item.is_number(); });
    if (!has_ids) return several(list, path);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].is_string()) {
        TRY(read_text(list[i], path.element(i), b, unknown, out));
        continue;
      }
      std::int32_t id = 0;
      TRY(Codec<std::int32_t>::read(list[i], path.element(i), {0, 2'147'483'647}, unknown, id));
      if (out.parts.empty() || !out.parts.back().has_tokens()) out.parts.emplace_back();
      out.parts.back().tokens.push_back(id);
    }
    return {};
  }
  static void write(std::string& out, const LlamaCppPrompt& v) {
    out += '[';
    for (const TextOrTokens& part : v.parts) {
      if (!part.has_tokens()) append_json_string(out.append(out.back() == '[' ? "" : ","), part.text);
      for (const std::int32_t id : part.tokens) out.append(out.back() == '[' ? "" : ",").append(std::to_string(id));
    }
    out += ']';
  }
  static bj::object schema(const Bounds&) { return {{"type", bj::array{"string", "array"}}}; }

 private:
  static base::Result<> read_text(const bj::value& v, const Path& path, const Bounds& b, UnknownKeys unknown,
                                  LlamaCppPrompt& out) {
    return Codec<std::string>::read(v, path, b, unknown, out.parts.emplace_back().text);
  }
  static base::Result<> several(const bj::array& list, const Path& path) {
    if (list.empty()) return field_error(path, "length", fmt::format("{} is empty; give a text or ids", path));
    return field_error(path, "unsupported",
                       fmt::format("{} has several prompts; send each in a request of its own", path));
  }
};

template <>
struct Table<LlamaCppGeneration> {
  using S = LlamaCppGeneration;
  static constexpr double kAny = 9e15;
  static constexpr double kCountMax = 10'000'000;
  static Fields fields() { return joined({answer_fields(), cut_fields(), penalty_fields(), other_fields()}); }

 private:
  static Fields answer_fields() {
    return {
        optional("model", &S::model, "As in /v2/tasks. Omitted: the one that is configured.", {1, 512}),
        optional("n_predict", &S::n_predict,
                 "Tokens at most. Below 0: what the context has room for. 0: the prompt is read and no output told.",
                 {-kAny, kOutputTokensAskedMax}),
        optional("stream", &S::stream, "Events as they come."),
        optional("seed", &S::seed, "Below 0, or 4294967295: one is drawn.", {-kAny, kAny}),
        optional("stop", &S::stop, "Texts that end the output; they are not part of it.", {0, kStopTextsMax}),
        optional("n_probs", &S::n_probs, "Above 0: log-probabilities, and this many of the likeliest tokens.",
                 {0, kTopLogprobsMax}),
        optional("return_tokens", &S::return_tokens, "Ids of the output's tokens as well."),
        optional("response_fields", &S::response_fields,
                 "Members the answer has, /-separated where they are within another; all others are left out.",
                 {0, 64}),
        optional("grammar", &S::grammar, "GBNF that the output follows. Empty: none.", {0, 1 << 20}),
        optional("json_schema", &S::json_schema, "JSON Schema that the output follows.", {0, 1 << 20})};
  }
  static Fields cut_fields() {
    return {
        optional("temperature", &S::temperature, "0 and below is greedy.", {-kAny, 2}),
        optional("dynatemp_range", &S::dynatemp_range, "As in /v2.", {0, 2}),
        optional("dynatemp_exponent", &S::dynatemp_exponent, "As in /v2.", {0, 10}),
        optional("top_k", &S::top_k, "Most likely tokens kept; 0 and below is off.", {-kAny, kCountMax}),
        optional("top_p", &S::top_p, "Smallest set of tokens with this probability mass; 1 is off.", {0, 1}),
        optional("min_p", &S::min_p, "Least probability relative to the likeliest token; 0 is off.", {0, 1}),
        optional("typical_p", &S::typical_p, "As in /v2; 1 is off.", {0, 1}),
        optional("top_n_sigma", &S::top_n_sigma, "As in /v2; 0 and below is off.", {-kAny, 100}),
        optional("xtc_probability", &S::xtc_probability, "As in /v2; 0 is off.", {0, 1}),
        optional("xtc_threshold", &S::xtc_threshold, "As in /v2; above 0.5 XTC is off.", {0, 1}),
        optional("mirostat", &S::mirostat, "1 or 2: this version of mirostat instead of the cuts; 0 is off.", {0, 2}),
        optional("mirostat_tau", &S::mirostat_tau, "As in /v2.", {0, 20}),
        optional("mirostat_eta", &S::mirostat_eta, "As in /v2.", {0, 1}),
        optional("min_keep", &S::min_keep, "Tokens every cut leaves at least.", {0, kCountMax}),
        optional("samplers", &S::samplers, "Those that are not listed are off. The order is that of /v2.", {0, 32})};
  }
  static Fields penalty_fields() {
    return {
        optional("repeat_last_n", &S::repeat_last_n,
                 "Newest tokens the penalties look at; 0: no penalties, -1: all of them.", {-1, kCountMax}),
        optional("repeat_penalty", &S::repeat_penalty, "repetition_penalty of /v2; 1 is off.", {0, 2}),
        optional("presence_penalty", &S::presence_penalty, "Subtracted once from seen tokens.", {-2, 2}),
        optional("frequency_penalty", &S::frequency_penalty, "Subtracted per occurrence of a token.", {-2, 2}),
        optional("dry_multiplier", &S::dry_multiplier, "As in /v2; 0 is off.", {0, 10}),
        optional("dry_base", &S::dry_base, "As in /v2.", {1, 4}),
        optional("dry_allowed_length", &S::dry_allowed_length, "As in /v2.", {1, kCountMax}),
        optional("dry_penalty_last_n", &S::dry_penalty_last_n,
                 "Newest tokens DRY looks at; 0: DRY is off, -1: all of them.", {-1, kCountMax}),
        optional("dry_sequence_breakers", &S::dry_sequence_breakers, "Texts over which no repeat reaches.", {0, 16}),
        optional("logit_bias", &S::logit_bias,
                 "Lists of a token id and what is added to its logit, false for -100; or an object of both.",
                 {0, 1024})};
  }
  static Fields other_fields() {
    return {optional("ignore_eos", &S::ignore_eos, "Refused unless false."),
            optional("post_sampling_probs", &S::post_sampling_probs, "Refused unless false."),
            optional("n_cmpl", &S::n_cmpl, "Accepted; one completion is made.", {1, kCountMax}),
            optional("lora", &S::lora, "Refused unless empty.", {0, 1 << 16})};
  }
};

template <>
struct Table<LlamaCppCompletionRequest> {
  using S = LlamaCppCompletionRequest;
  static Fields fields() {
    return joined({{required("prompt", &S::prompt, "Text to continue, token ids, or a list of both.", {0, 4 << 20})},
                   fields_of(&S::generation, Table<LlamaCppGeneration>::fields())});
  }
};
template <>
struct Codec<LlamaCppCompletionRequest> : NullableCodec<LlamaCppCompletionRequest> {};

template <>
struct Table<InfillExtra> {
  using S = InfillExtra;
  static Fields fields() {
    return {optional("filename", &S::filename, "Path or name.", {0, 4096}),
            required("text", &S::text, "What is in it.", {0, 4 << 20})};
  }
};
template <>
struct Codec<InfillExtra> : NullableCodec<InfillExtra> {};
template <>
struct Table<InfillRequest> {
  using S = InfillRequest;
  static Fields own() {
    return {
        required("input_prefix", &S::input_prefix, "What stands before the output.", {0, 4 << 20}),
        required("input_suffix", &S::input_suffix, "What stands behind it.", {0, 4 << 20}),
        optional("prompt", &S::prompt, "Follows on input_prefix: the begin of the line that is written.", {0, 4 << 20}),
        optional("input_extra", &S::input_extra, "Other texts that the model may look at, the nearest last.",
                 {0, 256})};
  }
  static Fields fields() { return joined({own(), fields_of(&S::generation, Table<LlamaCppGeneration>::fields())}); }
};
template <>
struct Codec<InfillRequest> : NullableCodec<InfillRequest> {};

}  // namespace llorch::wire

using namespace llorch::wire;
LLORCH_INSTANTIATE_WIRE(LlamaCppGeneration)
LLORCH_INSTANTIATE_WIRE(LlamaCppCompletionRequest)
LLORCH_INSTANTIATE_WIRE(InfillRequest)
