#pragma once
// Requests of llama.cpp's server that orchestratord takes as well. As there, an unknown field is ignored. Field tables: llamacpp.cpp,
// llamacpp_completion.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/embedding.h"
#include "wire/gateway.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::wire {

// `model` may be left out of all of them where one model is configured.
struct TokenizeRequest {
  std::optional<std::string> model;
  std::string content;
  bool add_special = false;   // tokens around the text, where the model wants them
  bool parse_special = true;  // spelled control tokens are tokens
  bool with_pieces = false;   // the text of each token as well
};
struct DetokenizeRequest {
  std::optional<std::string> model;
  std::vector<std::int64_t> tokens;
};
struct ApplyTemplateRequest {
  std::optional<std::string> model;
  JsonArray messages;
  std::optional<JsonArray> tools;
  std::optional<JsonObject> chat_template_kwargs;
  std::optional<bool> add_generation_prompt;  // omitted: true
};

// Exactly one of `content` and `input` is looked at: `input`, if both are sent.
struct LlamaCppEmbeddingRequest {
  std::optional<std::string> model;
  std::optional<EmbeddingInputs> content;
  std::optional<EmbeddingInputs> input;
  std::int64_t embd_normalize = 2;  // refused but for 2: vectors are one long
};

// On the wire a text, or an object with it as `text`.
struct RerankDocument {
  std::string text;
};
// Also as Jina and Cohere have it.
struct RerankRequest {
  std::optional<std::string> model;
  std::string query;
  std::vector<RerankDocument> documents;  // one or more
  std::optional<std::int64_t> top_n;      // of the results; omitted: all
  std::optional<bool> return_documents;   // omitted: false
};

// On the wire [[id, bias], ...], where false is the lowest bias, or an object as in /v2.
struct LlamaCppBias {
  std::vector<LogitBias> tokens;  // ascending ids
};
// What /completion and /infill share, with that server's defaults. As everywhere null is left out, also of what has a value of its
// own then.
struct LlamaCppGeneration {
  std::optional<std::string> model;
  std::int64_t n_predict = -1;  // below 0: what the context has room for; 0: the prompt is read, and no output told
  bool stream = false;
  std::optional<std::int64_t> seed;  // below 0: one is drawn
  double temperature = 0.8;          // 0 and below is greedy
  std::int64_t top_k = 40;           // 0 and below is off
  double top_p = 0.95;
  double min_p = 0.05;
  double typical_p = 1.0;
  double top_n_sigma = -1.0;  // 0 and below is off
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double dynatemp_range = 0.0;
  double dynatemp_exponent = 1.0;
  std::int64_t repeat_last_n = 64;  // 0: no penalties; below: of all tokens
  double repeat_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double dry_multiplier = 0.0;
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_penalty_last_n = -1;  // 0: none; below: of all tokens
  std::vector<std::string> dry_sequence_breakers = SamplingRequest().dry_sequence_breakers;
  std::int64_t mirostat = 0;
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  std::int64_t min_keep = 0;
  std::int64_t n_probs = 0;    // above 0: every token comes with its log-probability and this many of the likeliest
  bool return_tokens = false;  // ids as well
  std::optional<StopTexts> stop;
  std::optional<LlamaCppBias> logit_bias;
  std::optional<std::string> grammar;  // empty: none
  std::optional<JsonSchema> json_schema;
  std::optional<std::vector<std::string>> samplers;  // those that are not listed are off; their order is ours
  std::optional<std::vector<std::string>> response_fields;
  std::int64_t n_cmpl = 1;  // completions that are asked for; one is made
  // Refused but for what they are where left out.
  bool ignore_eos = false;
  bool post_sampling_probs = false;
  std::optional<JsonArray> lora;
};

// On the wire a text, a list of ids, or a list of both; in a list alone also that.
struct LlamaCppPrompt {
  std::vector<TextOrTokens> parts;  // one behind the other
};
struct LlamaCppCompletionRequest {
  LlamaCppGeneration generation;
  LlamaCppPrompt prompt;
};

struct InfillExtra {
  std::string filename = "tmp";
  std::string text;
};
struct InfillRequest {
  LlamaCppGeneration generation;
  std::string input_prefix;
  std::string input_suffix;
  std::optional<std::string> prompt;  // follows on the prefix
  std::optional<std::vector<InfillExtra>> input_extra;
};

}  // namespace llorch::wire
