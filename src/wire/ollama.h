#pragma once
// Requests of the Ollama API that orchestratord takes as well (/api). Names are that API's; where a field of it is not used,
// docs/guide/ollama.md says so. As there, an unknown field is ignored, and null means that a field is left out. Field tables:
// ollama.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/embedding.h"
#include "wire/gateway.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::wire {

// On the wire "" (none), "json" (any object) or a JSON Schema.
struct OllamaFormat {
  std::optional<JsonSchema> schema;
};
// On the wire true, false, or how hard: "low", "medium", "high", "max".
struct OllamaThink {
  bool enabled = false;
  std::string effort;  // empty: not told
};
// On the wire seconds or a duration: 300, "5m", "1h30m"; below 0: without end.
struct OllamaKeepAlive {
  bool is_zero = false;  // memory is to be freed now
};

// On the wire any number, whose fraction is cut off.
struct OllamaInteger {
  std::int64_t value = 0;
};

struct OllamaOptions {
  std::optional<OllamaInteger> seed;         // below 0: one is drawn
  std::optional<OllamaInteger> num_predict;  // 0 and below: what the context has room for
  std::optional<double> temperature;
  std::optional<OllamaInteger> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> typical_p;
  std::optional<double> repeat_penalty;
  std::optional<OllamaInteger> repeat_last_n;  // 0: no penalties; below: of all tokens
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<OllamaInteger> mirostat;
  std::optional<double> mirostat_tau;
  std::optional<double> mirostat_eta;
  std::optional<StopTexts> stop;
};

// What both kinds of request share.
struct OllamaRequest {
  std::string model;
  std::optional<bool> stream;  // omitted: true
  std::optional<OllamaFormat> format;
  std::optional<OllamaOptions> options;
  std::optional<OllamaThink> think;  // omitted: as the chat template has it
  std::optional<bool> logprobs;
  std::optional<std::int64_t> top_logprobs;
  std::optional<OllamaKeepAlive> keep_alive;
};

// POST /api/chat
struct OllamaChatRequest {
  OllamaRequest common;
  std::optional<JsonArray> messages;  // none: only the model is looked for
  std::optional<JsonArray> tools;
};

// POST /api/generate
struct OllamaGenerateRequest {
  OllamaRequest common;
  std::optional<std::string> prompt;  // empty: only the model is looked for
  std::optional<std::string> system;
  std::optional<bool> raw;  // the prompt as it stands, without the chat template
  std::optional<std::vector<std::string>> images;
  std::optional<std::string> suffix;                 // what follows on the output; empty: none
  std::optional<std::string> template_text;          // refused unless empty
  std::optional<std::vector<std::int64_t>> context;  // refused unless empty
};

// On the wire as EmbeddingInputs; "" and [] are none.
struct OllamaInputs {
  std::optional<EmbeddingInputs> inputs;
};

// POST /api/embed
struct OllamaEmbedRequest {
  std::string model;
  std::optional<OllamaInputs> input;  // none: only the model is looked for
  std::optional<bool> truncate;       // omitted: true
  std::optional<std::int64_t> dimensions;
};

// POST /api/embeddings
struct OllamaEmbeddingsRequest {
  std::string model;
  std::optional<std::string> prompt;  // empty: only the model is looked for
};

// POST /api/pull
struct OllamaPullRequest {
  std::optional<std::string> model;
  std::optional<std::string> name;  // older spelling
  std::optional<bool> stream;       // omitted: true
  std::optional<bool> insecure;     // refused unless false
};

// POST /api/copy
struct OllamaCopyRequest {
  std::string source;
  std::string destination;
};

// POST /api/show and DELETE /api/delete
struct OllamaShowRequest {
  std::optional<std::string> model;
  std::optional<std::string> name;  // older spelling
};

}  // namespace llorch::wire
