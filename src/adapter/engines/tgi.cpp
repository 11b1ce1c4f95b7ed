// Text Generation Inference: /generate_stream, and its chat completions where a job has messages.

#include "adapter/engines/kinds.h"
#include "adapter/engines/openai.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;
using wire::StopReason;

// It reads a schema and an expression in one shape, as a parameter and as the response_format of a chat. Null: neither is asked for.
bj::value constraint_of(const wire::SamplingRequest& sampling) {
  if (sampling.json_schema) return {{"type", "json"}, {"value", parsed(sampling.json_schema->text)}};
  if (sampling.regex) return {{"type", "regex"}, {"value", *sampling.regex}};
  return nullptr;
}

bj::object parameters_of(const wire::ExecuteRequest& request) {
  const wire::SamplingRequest& s = request.sampling;
  bj::object out{{"max_new_tokens", request.max_tokens}, {"details", true}, {"return_full_text", false}};
  // It refuses a temperature of 0: without sampling it takes the likeliest token.
  const bool greedy = request.temperature == 0;
  out["do_sample"] = !greedy;
  if (!greedy) out["temperature"] = request.temperature;
  if (!greedy && s.top_p < 1) out["top_p"] = s.top_p;
  if (!greedy && s.top_k > 0) out["top_k"] = s.top_k;
  if (!greedy && s.typical_p < 1) out["typical_p"] = s.typical_p;
  if (s.repetition_penalty != 1) out["repetition_penalty"] = s.repetition_penalty;
  if (s.frequency_penalty != 0) out["frequency_penalty"] = s.frequency_penalty;
  if (auto constraint = constraint_of(s); !constraint.is_null()) out["grammar"] = std::move(constraint);
  if (request.seed) out["seed"] = *request.seed;
  if (!request.stop.empty()) out["stop"] = bj::array(request.stop.begin(), request.stop.end());
  return out;
}

StopReason stop_of(const std::optional<std::string>& reason) {
  if (reason == "length") return StopReason::kMaxTokens;
  return reason == "stop_sequence" ? StopReason::kStop : StopReason::kEos;
}

class Tgi final : public Engine {
 public:
  std::string_view kind() const override { return "tgi"; }
  Probe health(const Target& target) const override { return {target.base_url + "/health"}; }
  std::vector<Probe> facts(const Target& target) const override { return {Probe{target.base_url + "/info"}}; }

  base::Result<> read_facts(std::size_t, std::string_view json, const Target&, EngineFacts& facts) const override {
    const bj::value info = parsed(json);
    facts.version = text_of(member(&info, "version")).value_or("");
    facts.model = text_of(member(&info, "model_id")).value_or("");
    facts.context_tokens = number_of(member(&info, "max_total_tokens")).value_or(0);
    return {};
  }

  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts&) const override {
    if (request.messages) {
      bj::object body = chat_body(request, "tgi");
      if (auto constraint = constraint_of(request.sampling); !constraint.is_null()) {
        body["response_format"] = std::move(constraint);
      }
      return Submission{target.base_url + "/v1/chat/completions", bj::serialize(body)};
    }
    return Submission{target.base_url + "/generate_stream",
                      bj::serialize(bj::object{{"inputs", *request.prompt}, {"parameters", parameters_of(request)}})};
  }

  base::Result<Piece> read(std::string_view data) const override {
    const bj::value event = parsed(data);
    if (data == "[DONE]" || member(&event, "choices") != nullptr || has_error(event)) {
      return read_choice(data);
    }
    const bj::value* token = member(&event, "token");
    if (token == nullptr) return base::fail(ErrorCode::kIoError, "the engine's answer holds an event without a token");
    Piece out;
    // A special token is one of the answer's and no part of its text.
    out.text = is_true(member(token, "special")) ? "" : text_of(member(token, "text")).value_or("");
    if (const bj::value* details = member(&event, "details"); details != nullptr && details->is_object()) {
      out.stop = stop_of(text_of(member(details, "finish_reason")));
      out.tokens_out = number_of(member(details, "generated_tokens"));
      out.tokens_in = number_of(member(details, "input_length"));
      out.last = true;
    }
    return out;
  }
};

}  // namespace

const Engine& tgi() {
  static const Tgi engine;
  return engine;
}

}  // namespace llorch::adapter::engines
