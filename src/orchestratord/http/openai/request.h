#pragma once
// Bodies of the OpenAI API as submissions of ours. Pure.
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "orchestratord/http/chat/output_reader.h"
#include "orchestratord/http/chat/tool_use.h"
#include "orchestratord/http/openai/response_items.h"
#include "wire/openai.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::openai {

enum class Endpoint { kChat, kCompletions, kResponses };

// A conversation as a request has seen it.
struct ConversationUse {
  std::string id;  // empty: none
  std::int64_t version = 0;
};

// What the answer must know of the request besides its job.
struct AnswerOptions {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;              // as the client spelled it
  bool stream = false;            // chunks as they come, else one body at the end
  bool include_usage = false;     // with `stream`: a chunk of its own counts the tokens
  bool continuous_usage = false;  // with `include_usage`: every chunk does
  // Of the prompt, as far as it is known before the job ends; of a model that takes text its bytes.
  std::int64_t tokens_in = 0;
  bool logprobs = false;
  bool background = false;           // of a response: nobody waits for it
  bool kept = false;                 // of a response: it can be asked for later
  std::string previous_response_id;  // of a response that goes on with a kept one; may be empty
  ConversationUse conversation{};    // of a response that is a turn of a conversation
  bool is_flex = false;              // the answer's service_tier; completions have none
  std::string echo;                  // text that the output begins with
  bool echo_logprobs = false;  // its log-probabilities do, too; where `echo` is empty, the text is what the tokens say
  bool hides_output = false;   // one token is made and not told
  // Of a whole answer that tells the prompt's tokens as vLLM does: how many of the likeliest stand with each.
  std::optional<std::int64_t> prompt_logprobs{};
  // How many of the likeliest `logprobs` has with a token, where the worker tells more; absent: all that it tells.
  std::optional<std::int64_t> top_logprobs_max{};
  std::string asked;      // of a response: members of the request that it repeats, `"name":value,...`
  MemberNames members{};  // of the response's tools
  // Of the response's tools those whose calls are told with one text.
  std::set<std::string, std::less<>> custom_tools{};
  std::shared_ptr<const chat::Reading> reading{};  // tasks::Admission::reading
  // Of several choices (choices.h) a renderer makes this one's part; then the answer has the first job's id.
  std::int64_t choices = 1;  // of all prompts
  std::int64_t choices_per_prompt = 1;
  std::int64_t index = 0;
  std::optional<base::JobId> first_job_id{};
};

// Whether its job goes on when the client goes.
inline bool outlives_client(const AnswerOptions& answer) { return answer.kept || !answer.conversation.id.empty(); }

struct Request {
  // Of each choice. max_tokens absent: what the context has room for; model: the only one that has a name.
  wire::SubmitRequest submission;
  std::optional<chat::ToolUse> tool_use{};  // absent: a completion
  AnswerOptions answer;
  std::vector<wire::TextOrTokens> prompts{};  // of a completion with several: `submission` has the first
};

// Errors: INVALID_PARAMS with details {field, reason}; fields are named as in the body.
base::Result<Request> decode_chat(std::string_view body);
base::Result<Request> decode_completion(std::string_view body);
base::Result<Request> decode_response(std::string_view body);

}  // namespace llorch::orchestratord::http::openai
