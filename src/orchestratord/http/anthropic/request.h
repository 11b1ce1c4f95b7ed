#pragma once
// Bodies of the Anthropic API as submissions of ours. Pure.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/output_reader.h"
#include "orchestratord/http/chat/tool_use.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::anthropic {

// What the answer must know of the request besides its job.
struct AnswerOptions {
  std::string model;            // as the client spelled it
  bool stream = false;          // events as they come, else one message at the end
  std::int64_t max_tokens = 0;  // that the answer may have at most; one that is cut with fewer has filled the context
  std::vector<std::string> stop;
  std::shared_ptr<const chat::Reading> reading{};  // these two are the tasks::Admission's
  std::int64_t tokens_in = 0;
};

struct Request {
  wire::SubmitRequest submission;
  chat::ToolUse tool_use;
  AnswerOptions answer;
};

// `tokens_max`: limits.max_tokens, to which the answer's max_tokens is lowered; the submission's is the client's, and lowered where it is
// admitted. Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body.
base::Result<Request> decode_messages(std::string_view body, std::int64_t tokens_max);
// Only what decides the prompt is set.
base::Result<Request> decode_count_tokens(std::string_view body);

}  // namespace llorch::orchestratord::http::anthropic
