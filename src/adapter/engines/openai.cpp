#include "adapter/engines/openai.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "adapter/engines/kinds.h"
#include "adapter/engines/token_logprobs.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;
using wire::StopReason;

// vLLM took guided_regex before its version 0.11, and structured_outputs since.
bool has_structured_outputs(std::string_view version) {
  int minor = 0;
  if (!version.starts_with("0.")) return true;
  std::from_chars(version.data() + 2, version.data() + version.size(), minor);
  return minor == 0 || minor >= 11;
}

bool has_path(std::string_view url) {
  const std::size_t host = url.find("://");
  return host != std::string_view::npos && url.find('/', host + 3) != std::string_view::npos;
}

// The server's origin: its other APIs lie beside /v1.
std::string beside_v1(const Target& target, std::string_view path) {
  std::string_view url = target.base_url;
  if (url.ends_with("/v1")) url.remove_suffix(3);
  return fmt::format("{}{}", url, path);
}

std::optional<StopReason> stop_of(const bj::value* choice) {
  const auto reason = text_of(member(choice, "finish_reason"));
  if (!reason) return std::nullopt;
  if (*reason == "length") return StopReason::kMaxTokens;
  // vLLM says which stop text it was; others leave open whether it was one.
  const bj::value* matched = member(choice, "stop_reason");
  return matched != nullptr && matched->is_string() ? StopReason::kStop : StopReason::kEos;
}

// By its id, or by one of the aliases that llama.cpp tells.
bool is_named(const bj::value& model, std::string_view name) {
  if (text_of(member(&model, "id")) == name) return true;
  const bj::value* aliases = member(&model, "aliases");
  if (aliases == nullptr || !aliases->is_array()) return false;
  return std::ranges::any_of(aliases->get_array(), [&](const bj::value& alias) { return text_of(&alias) == name; });
}

void rename_fields(const Target& target, bj::object& body) {
  for (const auto& [field, name] : target.field_names) {
    const bj::value* sent = body.if_contains(field);
    if (sent == nullptr) continue;
    bj::value value = *sent;
    body.erase(field);
    body[name] = std::move(value);
  }
}

}  // namespace

std::string v1_url(const Target& target, std::string_view path) {
  return fmt::format("{}{}{}", target.base_url, has_path(target.base_url) ? "" : "/v1", path);
}

bj::object chat_body(const wire::ExecuteRequest& request, std::string_view model) {
  bj::object body{{"stream", true},
                  {"stream_options", {{"include_usage", true}}},
                  {"max_tokens", request.max_tokens},
                  {"temperature", request.temperature}};
  if (!model.empty()) body["model"] = bj::string_view(model.data(), model.size());
  if (request.messages) {
    body["messages"] = parsed(request.messages->text);
  } else {
    body["prompt"] = *request.prompt;
  }
  if (request.seed) body["seed"] = *request.seed & 0x7fff'ffff'ffff'ffffu;
  if (!request.stop.empty()) body["stop"] = bj::array(request.stop.begin(), request.stop.end());
  const wire::SamplingRequest defaults;
  const auto add = [&](const char* name, auto wire::SamplingRequest::*field) {
    if (request.sampling.*field != defaults.*field) body[name] = request.sampling.*field;
  };
  add("top_p", &wire::SamplingRequest::top_p);
  add("frequency_penalty", &wire::SamplingRequest::frequency_penalty);
  add("presence_penalty", &wire::SamplingRequest::presence_penalty);
  return body;
}

void add_response_format(const wire::SamplingRequest& sampling, bj::object& body) {
  if (!sampling.json_schema) return;
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "answer"}, {"strict", true}, {"schema", parsed(sampling.json_schema->text)}}}};
}

base::Result<Piece> read_choice(std::string_view data) {
  if (data == "[DONE]") return Piece{.text = {}, .last = true};
  const bj::value event = parsed(data);
  if (!event.is_object())
    return base::fail(ErrorCode::kIoError, "the engine's answer holds an event that is no JSON object");
  Piece out;
  if (has_error(event)) {
    out.error = refusal(0, data, {});
    return out;
  }
  if (const bj::value* choice = first(member(&event, "choices"))) {
    const bj::value* delta = member(choice, "delta");
    out.text = delta != nullptr ? text_of(member(delta, "content")) : text_of(member(choice, "text"));
    if (out.text && out.text->empty()) out.text.reset();
    out.stop = stop_of(choice);
    out.logprobs = token_logprobs(member(member(choice, "logprobs"), "content"));
    out.tokens = std::max<std::int64_t>(1, static_cast<std::int64_t>(out.logprobs.size()));
  }
  const bj::value* usage = member(&event, "usage");
  out.tokens_in = number_of(member(usage, "prompt_tokens"));
  out.tokens_out = number_of(member(usage, "completion_tokens"));
  return out;
}

base::Result<> learn_models(std::string_view json, const Target& target, EngineFacts& facts) {
  const bj::value value = parsed(json);
  const bj::value* data = member(&value, "data");
  if (data == nullptr || !data->is_array()) return {};
  const bj::array& models = data->get_array();
  const bj::value* found = target.model.empty() && models.size() == 1 ? &models[0] : nullptr;
  for (const bj::value& model : models) {
    if (is_named(model, target.model)) found = &model;
  }
  if (found == nullptr) {
    return base::fail(ErrorCode::kModelNotFound,
                      target.model.empty()
                          ? fmt::format("the engine serves {} models; name one of them in `model`", models.size())
                          : fmt::format("the engine serves no model {}; see its /v1/models", target.model));
  }
  facts.model = text_of(member(found, "id")).value_or("");
  facts.context_tokens = number_of(member(found, "max_model_len")).value_or(facts.context_tokens);
  return {};
}

base::Result<> OpenAi::read_facts(std::size_t, std::string_view json, const Target& target, EngineFacts& facts) const {
  return learn_models(json, target, facts);
}

base::Result<Submission> OpenAi::submit(const wire::ExecuteRequest& request, const Target& target,
                                        const EngineFacts& facts) const {
  const std::string_view model = target.model.empty() ? facts.model : target.model;
  if (request.sampling.json_schema && !request.messages) {
    return base::fail(ErrorCode::kInvalidParams,
                      "this engine's API knows json_schema for messages only, not for a prompt");
  }
  bj::object body = chat_body(request, model);
  add_response_format(request.sampling, body);
  if (!request.messages) return Submission{v1_url(target, "/completions"), bj::serialize(body)};
  rename_fields(target, body);
  return Submission{v1_url(target, "/chat/completions"), bj::serialize(body)};
}

namespace {

class Vllm final : public OpenAi {
 public:
  std::string_view kind() const override { return "vllm"; }
  std::string_view key_variable() const override { return "VLLM_API_KEY"; }
  Probe health(const Target& target) const override { return {beside_v1(target, "/health")}; }
  std::vector<Probe> facts(const Target& target) const override {
    return {Probe{v1_url(target, "/models")}, Probe{beside_v1(target, "/version")}};
  }
  base::Result<> read_facts(std::size_t index, std::string_view json, const Target& target,
                            EngineFacts& facts) const override {
    if (index == 0) return learn_models(json, target, facts);
    const bj::value value = parsed(json);
    facts.version = text_of(member(&value, "version")).value_or("");
    return {};
  }
  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts& facts) const override {
    bj::object body = chat_body(request, target.model.empty() ? facts.model : target.model);
    const wire::SamplingRequest& sampling = request.sampling;
    if (sampling.top_k > 0) body["top_k"] = sampling.top_k;
    if (sampling.min_p > 0) body["min_p"] = sampling.min_p;
    if (sampling.repetition_penalty != 1.0) body["repetition_penalty"] = sampling.repetition_penalty;
    add_response_format(sampling, body);
    if (sampling.regex && has_structured_outputs(facts.version))
      body["structured_outputs"] = {{"regex", *sampling.regex}};
    if (sampling.regex && !has_structured_outputs(facts.version)) body["guided_regex"] = *sampling.regex;
    return Submission{v1_url(target, request.messages ? "/chat/completions" : "/completions"), bj::serialize(body)};
  }
};

}  // namespace

const Engine& openai() {
  static const OpenAi engine;
  return engine;
}
const Engine& vllm() {
  static const Vllm engine;
  return engine;
}

}  // namespace llorch::adapter::engines
