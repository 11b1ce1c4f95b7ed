#pragma once
// Bodies of the Ollama API as submissions of ours. Pure.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "orchestratord/http/chat/output_reader.h"
#include "orchestratord/http/chat/tool_use.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::ollama {

enum class Endpoint : std::uint8_t { kChat, kGenerate };

// What the answer must know of the request besides its job.
struct AnswerOptions {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;   // as the client spelled it
  bool stream = true;  // lines as they come, else one object at the end
  bool logprobs = false;
  std::shared_ptr<const chat::Reading> reading{};  // tasks::Admission::reading
};

struct Request {
  wire::SubmitRequest submission;
  std::optional<chat::ToolUse> tool_use{};  // absent: a prompt as it stands
  // What a model without a chat template continues in place of the submission's messages; absent: it is refused.
  std::optional<std::string> plain_prompt{};
  // Of submission.sampling, what the request leaves out and that API has a value of its own for.
  std::vector<std::string_view> api_defaults{};
  bool only_finds_model = false;  // nothing is asked of the model; `submission` has its name alone
  bool stops_workers = false;     // nor shall it stay in memory; only with only_finds_model
  AnswerOptions answer;
};

// Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body, or as in /v2 where it has that bound.
base::Result<Request> decode_chat(std::string_view body);
base::Result<Request> decode_generate(std::string_view body);
// The model that POST /api/show names.
base::Result<std::string> decode_show(std::string_view body);

}  // namespace llorch::orchestratord::http::ollama
