#include "orchestratord/http/ollama/request.h"

#include <algorithm>
#include <utility>

#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/chat/thinking.h"
#include "orchestratord/http/chat/tools.h"
#include "orchestratord/http/ollama/messages.h"
#include "wire/json.h"
#include "wire/ollama.h"

namespace llorch::orchestratord::http::ollama {
namespace {

using chat::refused;

// Ollama's own server takes any name. One that a model's notation cannot spell outside of JSON comes back as content, not as a call.
constexpr chat::FunctionRules kFunctionRules{.name_bytes_max = 256, .any_characters = true, .tools_max = 1024};

// That API's own values of what a request leaves out.
constexpr double kTemperature = 0.8, kTopP = 0.9, kRepeatPenalty = 1.1;
constexpr std::int64_t kTopK = 40, kRepeatLastN = 64;

std::int64_t value_or(const std::optional<wire::OllamaInteger>& number, std::int64_t otherwise) {
  return number ? number->value : otherwise;
}

// A cut that a greedy job or mirostat would leave without effect is left out: that API has its cuts by default.
wire::SamplingRequest sampling_of(const wire::OllamaOptions& options) {
  const wire::SamplingRequest defaults;
  wire::SamplingRequest out;
  const bool greedy = options.temperature.value_or(kTemperature) == 0;
  const std::int64_t mirostat = value_or(options.mirostat, 0);
  if (!greedy && mirostat == 0) {
    out.top_k = std::max<std::int64_t>(value_or(options.top_k, kTopK), 0);
    out.top_p = options.top_p.value_or(kTopP);
    out.min_p = options.min_p.value_or(defaults.min_p);
    out.typical_p = options.typical_p.value_or(defaults.typical_p);
  }
  if (!greedy && mirostat != 0) {
    out.mirostat = mirostat;
    out.mirostat_tau = options.mirostat_tau.value_or(defaults.mirostat_tau);
    out.mirostat_eta = options.mirostat_eta.value_or(defaults.mirostat_eta);
  }
  const std::int64_t last_n = value_or(options.repeat_last_n, kRepeatLastN);
  if (last_n != 0) {
    out.penalty_last_n = std::max<std::int64_t>(last_n, 0);
    const double penalty = options.repeat_penalty.value_or(kRepeatPenalty);
    out.repetition_penalty = penalty > 0 ? penalty : defaults.repetition_penalty;
    out.presence_penalty = options.presence_penalty.value_or(defaults.presence_penalty);
    out.frequency_penalty = options.frequency_penalty.value_or(defaults.frequency_penalty);
  }
  return out;
}

std::vector<std::string_view> defaults_of(const wire::OllamaOptions& options) {
  std::vector<std::string_view> out;
  if (!options.top_k) out.emplace_back("top_k");
  if (!options.top_p) out.emplace_back("top_p");
  if (!options.repeat_penalty) out.emplace_back("repetition_penalty");
  if (!options.repeat_last_n) out.emplace_back("penalty_last_n");
  return out;
}

Request shared_part(const wire::OllamaRequest& body) {
  const wire::OllamaOptions options = body.options.value_or(wire::OllamaOptions{});
  Request out;
  wire::SubmitRequest& submission = out.submission;
  submission.model = body.model;
  submission.temperature = options.temperature.value_or(kTemperature);
  submission.sampling = sampling_of(options);
  out.api_defaults = defaults_of(options);
  submission.sampling.logprobs = body.logprobs.value_or(false);
  submission.sampling.top_logprobs = submission.sampling.logprobs ? body.top_logprobs.value_or(0) : 0;
  if (body.format) submission.sampling.json_schema = body.format->schema;
  if (value_or(options.num_predict, 0) > 0) submission.max_tokens = chat::lowered_tokens(options.num_predict->value);
  if (value_or(options.seed, -1) >= 0) submission.seed = static_cast<std::uint64_t>(options.seed->value);
  if (options.stop) submission.stop = options.stop->texts;
  out.answer.model = body.model;
  out.answer.stream = body.stream.value_or(true);
  out.answer.logprobs = submission.sampling.logprobs;
  return out;
}

bool is_zero(const std::optional<wire::OllamaKeepAlive>& keep_alive) { return keep_alive && keep_alive->is_zero; }

void set_thinking(const std::optional<wire::OllamaThink>& think, wire::SubmitRequest& submission) {
  if (!think) return;
  const std::string_view effort = think->effort == "max" ? "high" : std::string_view(think->effort);
  submission.chat_template_kwargs = chat::with_thinking(std::nullopt, {.enabled = think->enabled, .effort = effort});
}

}  // namespace

base::Result<Request> decode_chat(std::string_view text) {
  TRY(chat::check_utf8(text));
  const auto body = TRY(wire::decode<wire::OllamaChatRequest>(text, wire::UnknownKeys::kIgnore));
  Request out = shared_part(body.common);
  out.answer.endpoint = Endpoint::kChat;
  if (body.messages) out.submission.messages = TRY(template_messages(*body.messages));
  out.only_finds_model = !body.messages || out.submission.messages->text == "[]";
  out.stops_workers = out.only_finds_model && is_zero(body.common.keep_alive);
  if (out.only_finds_model) return out;
  out.submission.tools = TRY(chat::template_tools(body.tools, kFunctionRules));
  out.tool_use = chat::ToolUse{};
  set_thinking(body.common.think, out.submission);
  TRY(chat::check_as_task(out.submission));
  return out;
}

base::Result<Request> decode_generate(std::string_view text) {
  TRY(chat::check_utf8(text));
  auto body = TRY(wire::decode<wire::OllamaGenerateRequest>(text, wire::UnknownKeys::kIgnore));
  const std::pair<std::string_view, bool> unsupported[] = {
      {"template", body.template_text && !body.template_text->empty()},
      {"context", body.context && !body.context->empty()}};
  for (const auto& [field, is_set] : unsupported) {
    if (is_set)
      return refused(field, "unsupported", std::string(field) + " is not supported by this server; leave it out");
  }
  Request out = shared_part(body.common);
  out.answer.endpoint = Endpoint::kGenerate;
  const std::string prompt = std::move(body.prompt).value_or("");
  const std::string system = std::move(body.system).value_or("");
  const auto images = std::move(body.images).value_or(std::vector<std::string>());
  const std::string suffix = std::move(body.suffix).value_or("");
  out.only_finds_model = prompt.empty() && images.empty() && suffix.empty();
  out.stops_workers = out.only_finds_model && is_zero(body.common.keep_alive);
  if (out.only_finds_model) return out;
  if (!suffix.empty()) {
    if (!images.empty() || !system.empty()) {
      return refused("suffix", "combination", "suffix and prompt are texts alone; leave system and images out");
    }
    out.submission.prompt = {.text = prompt};
    out.submission.suffix = suffix;
  } else if (body.raw.value_or(false)) {
    if (!images.empty() || !system.empty()) {
      return refused("raw", "combination", "raw continues the prompt as it stands; leave system and images out");
    }
    out.submission.prompt = {.text = prompt};
    out.submission.parse_special = true;
  } else {
    out.submission.messages = one_turn(system, prompt, images);
    out.tool_use = chat::ToolUse{};
    set_thinking(body.common.think, out.submission);
    if (system.empty() && images.empty()) out.plain_prompt = prompt;
  }
  TRY(chat::check_as_task(out.submission));
  return out;
}

base::Result<std::string> decode_show(std::string_view text) {
  TRY(chat::check_utf8(text));
  const auto body = TRY(wire::decode<wire::OllamaShowRequest>(text, wire::UnknownKeys::kIgnore));
  return body.model.value_or("").empty() ? *body.name : *body.model;
}

}  // namespace llorch::orchestratord::http::ollama
