#pragma once
// Requests of llama.cpp's server that orchestratord takes as well (/tokenize, /detokenize, /apply-template, /rerank). As there, an unknown
// field is ignored. Field tables: llamacpp.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace llorch::wire
