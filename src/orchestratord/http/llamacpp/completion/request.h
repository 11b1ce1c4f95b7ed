#pragma once
// Bodies of POST /completion and /infill as submissions. Pure. Errors of all: INVALID_PARAMS with details {field, reason}; fields
// are named as in the body, or as in /v2 where it has that bound.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "wire/llamacpp.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::llamacpp {

// What the answer must know of the request besides its job.
struct CompletionOptions {
  bool stream = false;        // events as they come, else one object at the end
  bool hides_output = false;  // n_predict 0: the one token that a job has is told to nobody
  bool return_tokens = false;
  bool logprobs = false;
  std::string model{};
  std::string stopping_word{};  // the only one there is
  std::string settings{};       // members of generation_settings, but for the seed
  std::vector<std::string> response_fields{};
  bool is_filtered = false;    // the last object has `response_fields` alone
  std::int64_t tokens_in = 0;  // of the prompt
};
struct CompletionCall {
  wire::SubmitRequest submission;  // `model` is set if the request names one
  wire::LlamaCppPrompt prompt{};   // of /completion, for set_prompt()
  CompletionOptions answer;
};

base::Result<CompletionCall> decode_completion(std::string_view body);
base::Result<CompletionCall> decode_infill(std::string_view body);

// Before it takes any time: `bytes_max` is limits.prompt_bytes_max.
base::Result<> check_bytes(const wire::LlamaCppPrompt& prompt, std::int64_t bytes_max);
// Gives the submission of a /completion its prompt. Control tokens that texts spell are tokens, as with that server; the first text
// has what the model wants at the begin of one. `tokenizer` null: the model's engine makes the tokens, and takes one text.
base::Result<> set_prompt(CompletionCall& call, const text::Tokenizer* tokenizer);

}  // namespace llorch::orchestratord::http::llamacpp
