#include "orchestratord/http/openai/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/thinking.h"
#include "orchestratord/http/chat/tools.h"
#include "orchestratord/http/openai/llamacpp_fields.h"
#include "orchestratord/http/openai/messages.h"
#include "orchestratord/http/openai/response_items.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

namespace json = boost::json;
using chat::check_utf8;
using chat::refused;

constexpr std::int64_t kCompletionTokens = 16;  // of a completion that names no max_tokens
constexpr std::string_view kAnyObject = R"({"type":"object"})";

// As many as are wanted are made, and all of them are told.
base::Result<> check_best_of(const wire::TextCompletionRequest& body) {
  if (body.best_of.value_or(body.common.n.value_or(1)) == body.common.n.value_or(1)) return {};
  return refused("best_of", "unsupported", "best_of must be n: nothing is made that is not told; leave it out");
}

// `extensions` with what the API spells itself.
wire::SamplingRequest sampling_of(const wire::OpenAiRequest& common, const wire::SamplingRequest& extensions) {
  wire::SamplingRequest out = extensions;
  out.top_p = common.top_p.value_or(out.top_p);
  out.frequency_penalty = common.frequency_penalty.value_or(out.frequency_penalty);
  out.presence_penalty = common.presence_penalty.value_or(out.presence_penalty);
  out.logit_bias = common.logit_bias.value_or(out.logit_bias);
  return out;
}

// Of a field that may be left out; absent as well where there is no limit.
std::optional<std::int64_t> tokens_of(const std::optional<wire::TokensMax>& given) {
  return given ? given->tokens : std::nullopt;
}

base::Result<Request> shared_part(const wire::OpenAiRequest& common, const wire::SamplingRequest& extensions) {
  Request out;
  if (!common.model.value_or("").empty()) out.submission.model = common.model;
  out.submission.temperature = common.temperature.value_or(1.0);
  out.submission.sampling = sampling_of(common, extensions);
  if (common.stop) out.submission.stop = common.stop->texts;
  if (common.seed) out.submission.seed = common.seed->bits;
  out.answer.model = common.model.value_or("");
  out.answer.choices = out.answer.choices_per_prompt = common.n.value_or(1);
  out.answer.stream = common.stream.value_or(false);
  if (common.stream_options && !out.answer.stream) {
    return refused("stream_options", "combination", "stream_options needs \"stream\": true");
  }
  const wire::StreamOptions stream_options = common.stream_options.value_or(wire::StreamOptions{});
  out.answer.include_usage = stream_options.include_usage.value_or(false);
  out.answer.continuous_usage = out.answer.include_usage && stream_options.continuous_usage_stats.value_or(false);
  return out;
}

// `field` is where the request spells the format; without a schema any object will do.
base::Result<> set_format(std::string_view field, wire::ResponseFormatType type,
                          const std::optional<wire::JsonSchema>& schema, wire::SamplingRequest& sampling) {
  if (type == wire::ResponseFormatType::kText) return {};
  if (sampling.json_schema || sampling.regex || sampling.grammar) {
    return refused(
        field, "combination",
        fmt::format("an output follows one of {}, json_schema, regex and grammar; leave the others out", field));
  }
  sampling.json_schema = schema.value_or(wire::JsonSchema{std::string(kAnyObject)});
  return {};
}

chat::Thinking thinking_of(wire::ReasoningEffort effort) {
  using wire::ReasoningEffort;
  switch (effort) {
    case ReasoningEffort::kNone: return {.enabled = false, .effort = {}};
    case ReasoningEffort::kMinimal: return {.enabled = {}, .effort = "low"};
    case ReasoningEffort::kXhigh:
    case ReasoningEffort::kMax: return {.enabled = {}, .effort = "high"};
    default: return {.enabled = {}, .effort = wire::enum_name(effort)};
  }
}

base::Result<> set_tools(const std::optional<wire::JsonArray>& tools, const wire::ToolChoice& choice,
                         std::optional<bool> parallel, Request& request) {
  wire::SubmitRequest& submission = request.submission;
  submission.tools = TRY(chat::template_tools(tools));
  chat::ToolUse use{.required = choice.mode == wire::ToolChoiceMode::kRequired,
                    .function = choice.function,
                    .several = parallel.value_or(true) && !choice.function};
  if (use.required && !submission.tools) {
    return refused("tool_choice", "combination", "tool_choice requires a call, and tools is empty");
  }
  const auto& sampling = submission.sampling;
  if (use.required && (sampling.json_schema || sampling.regex || sampling.grammar)) {
    return refused("tool_choice", "combination",
                   "tool_choice requires a call, which is an output of a form of its own; leave the response format, "
                   "json_schema, regex and grammar out");
  }
  if (choice.mode == wire::ToolChoiceMode::kNone) submission.tools.reset();
  request.tool_use = std::move(use);
  return {};
}

base::Result<> set_prompts(std::vector<wire::TextOrTokens> prompts, Request& request) {
  AnswerOptions& answer = request.answer;
  answer.choices = answer.choices_per_prompt * static_cast<std::int64_t>(prompts.size());
  if (prompts.size() > 1 && answer.choices > wire::kPromptsMax) {
    return refused("n", "range",
                   fmt::format("n for each of {} prompts makes {} choices, and a request has up to {}; send fewer",
                               prompts.size(), answer.choices, wire::kPromptsMax));
  }
  request.submission.prompt = prompts.front();
  if (prompts.size() > 1) request.prompts = std::move(prompts);
  return {};
}

// Also of a request that leaves its model to be found.
base::Result<> check_submission(wire::SubmitRequest& submission) {
  const bool is_named = submission.model.has_value();
  if (!is_named) submission.model = "any";
  auto checked = wire::validate_submission(submission);
  if (!is_named) submission.model.reset();
  return checked;
}

// Each of several prompts makes a submission that /v2 would take.
base::Result<> check_submissions(Request& request) {
  TRY(check_submission(request.submission));
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string field = fmt::format("prompt[{}]", i);
    const bool has_suffix = request.submission.suffix.has_value();
    if (request.prompts[i].bytes() == 0 && !has_suffix) {
      return refused(field, "length", field + " is empty; give at least one byte of text");
    }
    if (request.prompts[i].has_tokens() && has_suffix) {
      return refused("suffix", "combination", "suffix needs prompts of text: the output stands between the two");
    }
  }
  return {};
}

base::Result<> set_echo(Request& request) {
  wire::SubmitRequest& submission = request.submission;
  if (request.answer.logprobs) {
    if (submission.suffix) {
      return refused("suffix", "combination",
                     "with suffix the model reads other tokens than the prompt's; leave out "
                     "suffix, or echo or logprobs");
    }
    submission.sampling.prompt_logprobs = request.answer.echo_logprobs = true;
  } else if (submission.prompt->has_tokens()) {
    return refused("echo", "combination",
                   "echo of token ids needs logprobs, with which the worker tells what they say");
  }
  request.answer.echo = submission.prompt->text;  // of the first; Gateway has the others'
  return {};
}

// As vLLM has it. The worker tells the tokens of the prompt and of the output with as many of the likeliest as either is to have.
// REQUIRES: a request that is valid without it.
base::Result<> set_prompt_logprobs(std::optional<std::int64_t> likeliest, Request& request) {
  if (!likeliest) return {};
  AnswerOptions& answer = request.answer;
  if (answer.stream) {
    return refused("prompt_logprobs", "combination",
                   "prompt_logprobs stand in a whole answer; leave stream or prompt_logprobs out");
  }
  if (answer.endpoint == Endpoint::kChat && answer.choices > 1) {
    return refused("prompt_logprobs", "combination",
                   "a chat tells its prompt once, so prompt_logprobs goes with one choice; leave n out");
  }
  if (request.submission.suffix) {
    return refused("suffix", "combination",
                   "with suffix the model reads other tokens than the prompt's; leave suffix or prompt_logprobs out");
  }
  wire::SamplingRequest& sampling = request.submission.sampling;
  if (*likeliest > sampling.top_logprobs) {
    answer.top_logprobs_max = std::exchange(sampling.top_logprobs, *likeliest);
  }
  sampling.logprobs = true;
  sampling.prompt_logprobs = true;
  answer.prompt_logprobs = likeliest;
  return {};
}

void set_service_tier(const std::optional<wire::ServiceTier>& tier, Request& request) {
  request.answer.is_flex = tier == wire::ServiceTier::kFlex;
  if (request.answer.is_flex) request.submission.priority = wire::Priority::kBatch;
}

base::Result<std::optional<std::int64_t>> chat_tokens_max(const wire::ChatCompletionRequest& body) {
  const std::optional<std::int64_t> tokens = tokens_of(body.max_completion_tokens);
  const std::optional<std::int64_t> older = tokens_of(body.max_tokens);
  if (tokens && older && tokens != older) {
    return refused("max_tokens", "combination", "max_tokens contradicts max_completion_tokens; leave it out");
  }
  if (body.max_completion_tokens || body.max_tokens) return tokens ? tokens : older;
  const std::optional<std::int64_t> ollamas = body.options ? body.options->num_predict : std::nullopt;
  return ollamas.value_or(0) > 0 ? ollamas : std::nullopt;
}

// Absent: the request says nothing of it.
std::optional<bool> wants_thinking(const wire::ChatCompletionRequest& body) {
  if (body.enable_thinking) return body.enable_thinking;
  if (!body.thinking) return body.reasoning ? body.reasoning->enabled : std::nullopt;
  switch (body.thinking->type) {
    case wire::ThinkingMode::kEnabled: return true;
    case wire::ThinkingMode::kDisabled: return false;
    default: return std::nullopt;
  }
}

// What the request says is more than what follows from an effort.
chat::Thinking chat_thinking(const wire::ChatCompletionRequest& body) {
  std::optional<wire::ReasoningEffort> effort = body.reasoning_effort;
  if (!effort && body.reasoning) effort = body.reasoning->effort;
  chat::Thinking out = effort ? thinking_of(*effort) : chat::Thinking{};
  if (const std::optional<bool> wanted = wants_thinking(body)) out.enabled = wanted;
  return out;
}

base::Result<> check_modalities(const std::optional<std::vector<std::string>>& modalities) {
  const bool only_text = !modalities || std::ranges::all_of(*modalities, [](const auto& m) { return m == "text"; });
  if (only_text) return {};
  return refused("modalities", "unsupported", "modalities must be [\"text\"]: nothing else is made");
}

base::Result<> check_response(const wire::ResponsesRequest& body) {
  if (body.common.n.value_or(1) != 1) {
    return refused("n", "unsupported", "n must be 1: a response has one output; send it again with another seed");
  }
  const std::string truncation = body.truncation.value_or("disabled");
  if (truncation != "disabled" && truncation != "auto") {
    return refused("truncation", "enum", "truncation is auto or disabled; nothing is ever truncated either way");
  }
  if (body.conversation && body.previous_response_id) {
    return refused("previous_response_id", "combination",
                   "a response goes on with conversation or with previous_response_id, not with both");
  }
  return {};
}

// What a response repeats of its request.
std::string asked_members(const wire::ResponsesRequest& body) {
  json::object out;
  out["instructions"] = body.instructions ? json::value(json::string(*body.instructions)) : json::value();
  const std::optional<std::int64_t> tokens_max = tokens_of(body.max_output_tokens);
  out["max_output_tokens"] = tokens_max ? json::value(*tokens_max) : json::value();
  out["parallel_tool_calls"] = body.parallel_tool_calls.value_or(true);
  out["temperature"] = body.common.temperature.value_or(1.0);
  const auto [choice, is_custom] = body.tool_choice.value_or(wire::ResponseToolChoice{});
  if (choice.function) {
    out["tool_choice"] = json::object{{"type", is_custom ? "custom" : "function"}, {"name", *choice.function}};
  } else {
    out["tool_choice"] = json::string(wire::enum_name(choice.mode));
  }
  json::array& tools = out["tools"].emplace_array();
  for (json::value& tool : body.tools ? base::parse_known_json(body.tools->text).as_array() : json::array()) {
    if (!is_left_out(tool)) tools.push_back(std::move(tool));
  }
  out["top_p"] = body.common.top_p.value_or(1.0);
  const std::string text = json::serialize(out);
  return text.substr(1, text.size() - 2);
}

}  // namespace

base::Result<Request> decode_chat(std::string_view text) {
  TRY(check_utf8(text));
  auto body = TRY(wire::decode<wire::ChatCompletionRequest>(text, wire::UnknownKeys::kRefuse));
  TRY(check_modalities(body.modalities));
  Request out = TRY(shared_part(body.common, body.extensions));
  wire::SubmitRequest& submission = out.submission;
  submission.max_tokens = chat::lowered_tokens(TRY(chat_tokens_max(body)));
  submission.messages = TRY(template_messages(body.messages));
  submission.documents = std::move(body.documents);
  submission.chat_template_kwargs = std::move(body.chat_template_kwargs);
  if (const chat::Thinking thinking = chat_thinking(body); thinking.enabled || !thinking.effort.empty()) {
    submission.chat_template_kwargs = chat::with_thinking(submission.chat_template_kwargs, thinking);
  }
  if (body.vllm.top_k) submission.sampling.top_k = std::max<std::int64_t>(*body.vllm.top_k, 0);
  TRY(set_llamacpp_fields(body.llamacpp, submission));
  submission.sampling.logprobs = body.logprobs.value_or(false);
  submission.sampling.top_logprobs = body.top_logprobs.value_or(0);
  if (const auto& format = body.response_format) {
    const auto schema = format->json_schema ? format->json_schema->schema : format->schema;
    TRY(set_format("response_format", format->type, schema, submission.sampling));
  }
  TRY(set_tools(body.tools, body.tool_choice.value_or(wire::ToolChoice{}), body.parallel_tool_calls, out));
  out.answer.endpoint = Endpoint::kChat;
  out.answer.logprobs = submission.sampling.logprobs;
  set_service_tier(body.service_tier, out);
  TRY(check_submission(submission));
  TRY(set_prompt_logprobs(body.prompt_logprobs, out));
  return out;
}

base::Result<Request> decode_completion(std::string_view text) {
  TRY(check_utf8(text));
  auto body = TRY(wire::decode<wire::TextCompletionRequest>(text, wire::UnknownKeys::kRefuse));
  TRY(check_best_of(body));
  Request out = TRY(shared_part(body.common, body.extensions));
  wire::SubmitRequest& submission = out.submission;
  TRY(set_prompts(std::move(body.prompt.prompts), out));
  if (!body.suffix.value_or("").empty()) {
    submission.suffix = std::move(body.suffix);
  } else {
    submission.parse_special = true;
  }
  const std::optional<std::int64_t> tokens_max = body.max_tokens ? body.max_tokens->tokens : kCompletionTokens;
  out.answer.hides_output = tokens_max == 0;
  submission.max_tokens = out.answer.hides_output ? 1 : chat::lowered_tokens(tokens_max);
  if (body.vllm.top_k) submission.sampling.top_k = std::max<std::int64_t>(*body.vllm.top_k, 0);
  TRY(set_llamacpp_fields(body.llamacpp, submission));
  submission.sampling.logprobs = body.logprobs.has_value();
  submission.sampling.top_logprobs = body.logprobs.value_or(0);
  out.answer.endpoint = Endpoint::kCompletions;
  out.answer.logprobs = submission.sampling.logprobs;
  if (out.answer.hides_output && !body.echo.value_or(false) && !body.prompt_logprobs) {
    return refused("max_tokens", "combination",
                   "max_tokens 0 makes no output, so it needs echo or prompt_logprobs: the prompt is the answer");
  }
  if (body.echo.value_or(false)) TRY(set_echo(out));
  TRY(check_submissions(out));
  TRY(set_prompt_logprobs(body.prompt_logprobs, out));
  return out;
}

base::Result<Request> decode_response(std::string_view text) {
  TRY(check_utf8(text));
  auto body = TRY(wire::decode<wire::ResponsesRequest>(text, wire::UnknownKeys::kRefuse));
  TRY(check_response(body));
  Request out = TRY(shared_part(body.common, body.extensions));
  wire::SubmitRequest& submission = out.submission;
  submission.max_tokens = chat::lowered_tokens(tokens_of(body.max_output_tokens));
  ResponseTools tools = TRY(chat_tools(body.tools));
  submission.messages = TRY(template_messages(TRY(chat_messages(body.input, body.instructions, tools.members))));
  submission.chat_template_kwargs = std::move(body.chat_template_kwargs);
  if (body.reasoning && body.reasoning->effort) {
    submission.chat_template_kwargs =
        chat::with_thinking(submission.chat_template_kwargs, thinking_of(*body.reasoning->effort));
  }
  const bool listed = body.include && std::ranges::count(*body.include, "message.output_text.logprobs") > 0;
  submission.sampling.logprobs = listed || body.top_logprobs.value_or(0) > 0;
  submission.sampling.top_logprobs = body.top_logprobs.value_or(0);
  if (body.text && body.text->format) {
    TRY(set_format("text.format", body.text->format->type, body.text->format->schema, submission.sampling));
  }
  auto [choice, is_custom] = body.tool_choice.value_or(wire::ResponseToolChoice{});
  if (choice.function && is_custom != tools.custom.contains(*choice.function)) {
    return refused("tool_choice", "unknown",
                   is_custom ? "tool_choice names no custom tool that the model is told of; one whose grammar is no "
                               "regular expression is left out"
                             : "tool_choice names a custom tool; its type is custom as well");
  }
  if (choice.function) choice.function = tools.chosen(*choice.function);
  TRY(set_tools(tools.functions, choice, body.parallel_tool_calls, out));
  out.answer.members = std::move(tools.members);
  out.answer.custom_tools = std::move(tools.custom);
  out.answer.endpoint = Endpoint::kResponses;
  out.answer.background = body.background.value_or(false);
  out.answer.kept = out.answer.background || body.store.value_or(false);
  out.answer.previous_response_id = body.previous_response_id.value_or("");
  if (body.conversation) out.answer.conversation.id = std::move(body.conversation->id);
  out.answer.asked = asked_members(body);
  out.answer.logprobs = submission.sampling.logprobs;
  set_service_tier(body.service_tier, out);
  TRY(wire::validate_submission(submission));
  return out;
}

}  // namespace llorch::orchestratord::http::openai
