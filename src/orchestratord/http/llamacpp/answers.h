#pragma once
// Answers of llama.cpp's API. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "orchestratord/models/catalog.h"
#include "text/tokenizer.h"
#include "wire/llamacpp.h"

namespace llorch::orchestratord::http::llamacpp {

// {"tokens":[1,2]}; with_pieces: [{"id":1,"piece":"a"}], where a piece that is no whole characters is a list of its bytes, and
// that of a control token is empty.
base::Result<std::string> tokenize_body(const text::Tokenizer& tokenizer, const wire::TokenizeRequest& request);

// {"content":"..."}, with U+FFFD in place of what is ill-formed. Errors: INVALID_PARAMS: an id that is none, a text of more than
// `bytes_max`.
base::Result<std::string> detokenize_body(const text::Tokenizer& tokenizer, const std::vector<std::int64_t>& tokens,
                                          std::int64_t bytes_max);

// {"prompt":"..."}
std::string apply_template_body(const std::string& prompt);

// What is known of a model: its context, its slots, what a request to /completion has where it says nothing else, its chat template.
std::string props_body(const std::string& name, const models::KnownModel& model, std::int64_t context_tokens);

struct WorkerSlots {
  std::string model;  // its name
  std::int64_t total = 0;
  std::int64_t busy = 0;
  std::int64_t context_tokens = 0;
};
// What may be said of each slot: nothing of a prompt. Slots have no numbers beyond this answer: the busy ones of a worker come first.
std::string slots_body(const std::vector<WorkerSlots>& workers);

}  // namespace llorch::orchestratord::http::llamacpp
