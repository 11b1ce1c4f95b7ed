#pragma once
// How a request wants its tokens chosen: fields that clients send to orchestratord and orchestratord hands to workers
// unchanged. Order, formulas: docs/internals/sampling.md. Field table: sampling_fields.h.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::wire {

enum class SamplerOrder : std::uint8_t { kTemperatureFirst = 0, kTemperatureLast = 1 };
enum class PenaltyScope : std::uint8_t { kAll = 0, kOutput = 1 };

// On the wire one member of an object, "<token id>": bias.
struct LogitBias {
  std::int64_t token = 0;
  double bias = 0;
  bool operator==(const LogitBias&) const = default;
};

// The text of a JSON Schema; on the wire an object, true or false.
struct JsonSchema {
  std::string text;
  bool operator==(const JsonSchema&) const = default;
};

// Part of SubmitRequest and ExecuteRequest; on the wire its fields stand beside theirs. The defaults change nothing.
struct SamplingRequest {
  double top_p = 1.0;
  std::int64_t top_k = 0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double top_n_sigma = 0.0;
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  std::int64_t min_keep = 1;
  double dynatemp_range = 0.0;
  double dynatemp_exponent = 1.0;
  double repetition_penalty = 1.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  PenaltyScope repetition_scope = PenaltyScope::kAll;
  PenaltyScope frequency_scope = PenaltyScope::kOutput;
  std::int64_t penalty_last_n = 0;
  double dry_multiplier = 0.0;
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_last_n = 0;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::int64_t mirostat = 0;
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  SamplerOrder sampler_order = SamplerOrder::kTemperatureFirst;
  std::vector<LogitBias> logit_bias;  // ascending ids
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
  std::optional<bool> prompt_logprobs;  // with `logprobs`; omitted: false
  // What the output must look like; at most one of them (docs/internals/constrained-output.md).
  std::optional<JsonSchema> json_schema;
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // GBNF
};

// Rules across fields: combinations in which a field would silently do nothing or contradict another. `temperature` is
// the one the job runs with. INVALID_PARAMS with details {field, reason: "combination"} and why.
base::Result<> validate_sampling(const SamplingRequest& request, double temperature);
// What only the vocabulary can refuse: top_k, ids of logit_bias. INVALID_PARAMS.
base::Result<> validate_for_vocabulary(const SamplingRequest& request, std::size_t vocab_size);
// Whether so many tokens of a prompt may be told with their log-probabilities, if the request asks for them. INVALID_PARAMS with the
// numbers.
inline constexpr std::int64_t kPromptLogprobsMax =
    65'536;  // entries, the prompt's own and the likeliest: some 5 MB of JSON
base::Result<> validate_prompt_logprobs(const SamplingRequest& request, std::size_t prompt_tokens);
// The fields that differ from their defaults, as members of a JSON object without its braces (`"top_k":40`); nothing
// text-like (dry_sequence_breakers, logit_bias, what constrains the output). For operators.
std::string changed_sampling_fields(const SamplingRequest& request);
// Names of all fields that differ from their defaults.
std::vector<std::string_view> names_of_changed_fields(const SamplingRequest& request);

// With a token event, when the request says `logprobs`. Of the model itself, before any step of the chain.
struct TokenLogprob {
  std::int64_t id = 0;
  double logprob = 0;               // natural logarithm
  std::string token;                // U+FFFD where its bytes are no whole characters
  std::vector<std::uint8_t> bytes;  // what it adds to the text; empty for control tokens
};
struct TokenLogprobs {
  std::int64_t id = 0;
  double logprob = 0;
  std::string token;
  std::vector<std::uint8_t> bytes;
  std::vector<TokenLogprob> top_logprobs;  // likeliest first
};
// The same of a token of the prompt, with its event, when the request says `prompt_logprobs`.
struct PromptTokenLogprobs {
  std::int64_t id = 0;
  std::optional<double> logprob;  // absent: of the first token, which follows on nothing
  std::string token;
  std::vector<std::uint8_t> bytes;
  std::vector<TokenLogprob> top_logprobs;  // of the first token none
};

}  // namespace llorch::wire
