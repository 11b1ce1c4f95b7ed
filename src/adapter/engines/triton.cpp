// Triton Inference Server: generate_stream of its generate extension, with the inputs that TensorRT-LLM's ensemble names.
#include <fmt/core.h>

#include "adapter/engines/kinds.h"
#include "adapter/engines/openai.h"
#include "adapter/engines/triton.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;

class Triton final : public Engine {
 public:
  std::string_view kind() const override { return "triton"; }
  Probe health(const Target& target) const override {
    return {fmt::format("{}/v2/models/{}/ready", target.base_url, target.model)};
  }
  std::vector<Probe> facts(const Target& target) const override { return {Probe{target.base_url + "/v2"}}; }

  base::Result<> read_facts(std::size_t, std::string_view json, const Target& target,
                            EngineFacts& facts) const override {
    const bj::value server = parsed(json);
    facts.version = text_of(member(&server, "version")).value_or("");
    facts.model = target.model;
    return {};
  }

  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts&) const override {
    if (request.messages) return base::fail(triton_tells_no_messages());
    const wire::SamplingRequest& s = request.sampling;
    bj::object body{
        {"text_input", *request.prompt},   {"max_tokens", request.max_tokens}, {"stream", true},
        {"exclude_input_in_output", true}, {"return_num_input_tokens", true},  {"return_num_output_tokens", true}};
    // A top_k of 1 is greedy there, and a temperature of 0 none that it takes.
    if (request.temperature == 0) {
      body["top_k"] = 1;
    } else {
      body["temperature"] = request.temperature;
      if (s.top_k > 0) body["top_k"] = s.top_k;
    }
    if (s.top_p < 1) body["top_p"] = s.top_p;
    if (s.repetition_penalty != 1) body["repetition_penalty"] = s.repetition_penalty;
    if (s.frequency_penalty != 0) body["frequency_penalty"] = s.frequency_penalty;
    if (s.presence_penalty != 0) body["presence_penalty"] = s.presence_penalty;
    if (request.seed) body["random_seed"] = *request.seed;
    if (!request.stop.empty()) body["stop_words"] = bj::array(request.stop.begin(), request.stop.end());
    return Submission{fmt::format("{}/v2/models/{}/generate_stream", target.base_url, target.model),
                      bj::serialize(body)};
  }

  bool ends_with_answer() const override { return true; }

  base::Result<Piece> read(std::string_view data) const override {
    const bj::value event = parsed(data);
    if (!event.is_object()) {
      return base::fail(ErrorCode::kIoError, "the engine's answer holds an event that is no JSON object");
    }
    Piece out;
    if (has_error(event)) {
      out.error = refusal(0, data, {});
      return out;
    }
    out.text = text_of(member(&event, "text_output"));
    out.tokens_in = number_of(member(&event, "num_input_tokens"));
    out.tokens_out = number_of(member(&event, "num_output_tokens"));
    return out;
  }
};

}  // namespace

base::Error triton_tells_no_messages() {
  return base::Error{base::ErrorCode::kInvalidParams,
                     "Triton has no chat template; send `prompt`, with the conversation as the model wants it told",
                     {}}
      .with("field", std::string("messages"));
}

const Engine& triton() {
  static const Triton engine;
  return engine;
}

}  // namespace llorch::adapter::engines
