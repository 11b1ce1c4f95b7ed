#include "orchestratord/http/anthropic/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orchestratord/http/anthropic/messages.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/thinking.h"
#include "wire/anthropic.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

using chat::refused;

chat::Thinking thinking_of(const wire::AnthropicPrompt& body) {
  using wire::AnthropicEffort;
  chat::Thinking out;
  out.enabled = body.thinking && body.thinking->type != wire::AnthropicThinkingType::kDisabled;
  if (body.output_config && body.output_config->effort) {
    const AnthropicEffort effort = *body.output_config->effort;
    const bool is_most = effort == AnthropicEffort::kXhigh || effort == AnthropicEffort::kMax;
    out.effort = is_most ? "high" : wire::enum_name(effort);
  }
  return out;
}

base::Result<> set_format(const wire::AnthropicPrompt& body, wire::SamplingRequest& sampling) {
  const auto newer = body.output_config ? body.output_config->format : std::nullopt;
  const auto& format = newer ? newer : body.output_format;
  if (!format) return {};
  if (body.output_format && body.output_format->schema != format->schema) {
    return refused("output_format", "combination",
                   "output_format is the older spelling of output_config.format, and the two differ; leave it out");
  }
  const std::string_view field = newer ? "output_config.format" : "output_format";
  if (sampling.json_schema || sampling.regex || sampling.grammar) {
    return refused(
        field, "combination",
        fmt::format("an output follows one of {}, json_schema, regex and grammar; leave the others out", field));
  }
  sampling.json_schema = format->schema;
  return {};
}

base::Result<> set_tools(const wire::AnthropicPrompt& body, Request& request) {
  using Mode = wire::AnthropicToolMode;
  wire::SubmitRequest& submission = request.submission;
  const wire::AnthropicToolChoice choice = body.tool_choice.value_or(wire::AnthropicToolChoice{});
  submission.tools = TRY(template_tools(body.tools));
  request.tool_use = {.required = choice.type == Mode::kAny || choice.type == Mode::kTool,
                      .function = choice.name,
                      .several = !choice.disable_parallel_tool_use.value_or(false) && !choice.name};
  const auto& sampling = submission.sampling;
  if (request.tool_use.required && !submission.tools) {
    return refused("tool_choice", "combination", "tool_choice requires a call, and tools is empty");
  }
  if (request.tool_use.required && (sampling.json_schema || sampling.regex || sampling.grammar)) {
    return refused("tool_choice", "combination",
                   "tool_choice requires a call, which is an output of a form of its own; leave output_config.format, "
                   "json_schema, regex and grammar out");
  }
  if (choice.type == Mode::kNone) submission.tools.reset();
  return {};
}

// Clients that have no value of a cut to send write -1.
template <class T>
T cut_or(std::optional<T> value, T otherwise) {
  return value.value_or(-1) < 0 ? otherwise : *value;
}

// Of what decides the prompt; `sampling`: what the request says of it besides.
base::Result<Request> prompt_part(const wire::AnthropicPrompt& body, wire::SamplingRequest sampling) {
  Request out;
  out.submission.model = body.model;
  out.submission.messages = TRY(template_messages(body.messages, body.system));
  out.submission.chat_template_kwargs = chat::with_thinking(std::nullopt, thinking_of(body));
  out.submission.sampling = std::move(sampling);
  TRY(set_format(body, out.submission.sampling));
  TRY(set_tools(body, out));
  out.answer.model = body.model;
  return out;
}

}  // namespace

base::Result<Request> decode_messages(std::string_view text, std::int64_t tokens_max) {
  TRY(chat::check_utf8(text));
  auto body = TRY(wire::decode<wire::MessagesRequest>(text, wire::UnknownKeys::kRefuse));
  Request out = TRY(prompt_part(body.prompt, std::move(body.extensions)));
  wire::SubmitRequest& submission = out.submission;
  submission.max_tokens = chat::lowered_tokens(body.max_tokens);
  submission.temperature = body.temperature.value_or(1.0);
  submission.sampling.top_p = cut_or(body.top_p, submission.sampling.top_p);
  submission.sampling.top_k = cut_or(body.top_k, submission.sampling.top_k);
  submission.stop = body.stop_sequences;
  submission.seed = body.seed;
  TRY(wire::validate_submission(submission));
  out.answer.max_tokens = std::min(*submission.max_tokens, tokens_max);
  out.answer.stream = body.stream.value_or(false);
  out.answer.stop = std::move(body.stop_sequences);
  return out;
}

base::Result<Request> decode_count_tokens(std::string_view text) {
  TRY(chat::check_utf8(text));
  const auto body = TRY(wire::decode<wire::CountTokensRequest>(text, wire::UnknownKeys::kRefuse));
  Request out = TRY(prompt_part(body.prompt, {}));
  TRY(wire::validate_submission(out.submission));
  return out;
}

}  // namespace llorch::orchestratord::http::anthropic
