// llama.cpp's server: /completion, and its chat completions where a job has messages, whose template it knows.
#include <fmt/core.h>

#include <algorithm>

#include "adapter/engines/kinds.h"
#include "adapter/engines/openai.h"
#include "adapter/engines/token_logprobs.h"

namespace llorch::adapter::engines {
namespace {

using base::ErrorCode;
using wire::StopReason;

// Its seeds have 32 bits, and the last one means a random seed.
constexpr std::uint64_t kSeeds = 0xffff'ffffu;

std::optional<StopReason> stop_of(const bj::value* event) {
  const auto type = text_of(member(event, "stop_type"));
  if (type == "limit" || is_true(member(event, "stopped_limit"))) return StopReason::kMaxTokens;
  if (type == "word" || is_true(member(event, "stopped_word"))) return StopReason::kStop;
  return StopReason::kEos;
}

// Tokens that penalties look at. It takes no word for all of them, and allocates as many as it is told.
std::int64_t penalty_tokens(const wire::SamplingRequest& s, std::int64_t context_tokens) {
  constexpr std::int64_t kUnknownContext = 8192;
  const bool off = s.repetition_penalty == 1 && s.frequency_penalty == 0 && s.presence_penalty == 0;
  if (off) return 0;
  const std::int64_t all = context_tokens > 0 ? context_tokens : kUnknownContext;
  return s.penalty_last_n == 0 ? all : std::min(s.penalty_last_n, all);
}

void add_sampling(const wire::SamplingRequest& s, std::int64_t context_tokens, bj::object& body) {
  // Its own defaults are others than ours, so every one is named.
  body["top_k"] = s.top_k;
  body["top_p"] = s.top_p;
  body["min_p"] = s.min_p;
  body["typical_p"] = s.typical_p;
  body["top_n_sigma"] = s.top_n_sigma > 0 ? s.top_n_sigma : -1.0;
  body["xtc_probability"] = s.xtc_probability;
  body["xtc_threshold"] = s.xtc_threshold;
  body["dynatemp_range"] = s.dynatemp_range;
  body["min_keep"] = s.min_keep;
  body["repeat_penalty"] = s.repetition_penalty;
  body["frequency_penalty"] = s.frequency_penalty;
  body["presence_penalty"] = s.presence_penalty;
  body["repeat_last_n"] = penalty_tokens(s, context_tokens);
  body["dry_multiplier"] = 0.0;
  body["mirostat"] = s.mirostat;
  body["mirostat_tau"] = s.mirostat_tau;
  body["mirostat_eta"] = s.mirostat_eta;
  body["samplers"] = {"penalties", "temperature", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"};
}

class LlamaCpp final : public Engine {
 public:
  std::string_view kind() const override { return "llamacpp"; }
  std::string_view key_variable() const override { return "LLAMA_API_KEY"; }
  Probe health(const Target& target) const override { return {target.base_url + "/health"}; }
  // It answers whatever model a job names, so whether it has the configured one is for us to see.
  std::vector<Probe> facts(const Target& target) const override {
    std::vector<Probe> out{Probe{target.base_url + "/props"}};
    if (!target.model.empty()) out.push_back(Probe{target.base_url + "/v1/models"});
    return out;
  }

  base::Result<> read_facts(std::size_t index, std::string_view json, const Target& target,
                            EngineFacts& facts) const override {
    if (index == 1) return learn_models(json, target, facts);
    const bj::value props = parsed(json);
    const bj::value* settings = member(&props, "default_generation_settings");
    facts.context_tokens = number_of(member(settings, "n_ctx")).value_or(0);
    facts.slots = number_of(member(&props, "total_slots")).value_or(0);
    facts.version = text_of(member(&props, "build_info")).value_or("");
    return {};
  }

  base::Result<Submission> submit(const wire::ExecuteRequest& request, const Target& target,
                                  const EngineFacts& facts) const override {
    bj::object body = chat_body(request, target.model);
    // The same steps whatever ran before: a prefix that its cache holds is computed in other batches.
    body["cache_prompt"] = false;
    if (request.seed) body["seed"] = *request.seed % kSeeds;
    add_sampling(request.sampling, facts.context_tokens, body);
    // Both of its APIs read these two, and its grammars are GBNF as ours are.
    if (request.sampling.json_schema) body["json_schema"] = parsed(request.sampling.json_schema->text);
    if (request.sampling.grammar) body["grammar"] = *request.sampling.grammar;
    const wire::SamplingRequest& s = request.sampling;
    if (request.messages) {
      if (s.logprobs) body["logprobs"] = true;
      if (s.logprobs) body["top_logprobs"] = s.top_logprobs;
      return Submission{target.base_url + "/v1/chat/completions", bj::serialize(body)};
    }
    body["n_predict"] = request.max_tokens;
    body.erase("max_tokens");
    body.erase("stream_options");
    body["return_tokens"] = true;
    if (s.logprobs) body["n_probs"] = std::max<std::int64_t>(1, s.top_logprobs);  // with 0 it tells none
    return Submission{target.base_url + "/completion", bj::serialize(body)};
  }

  base::Result<Piece> read(std::string_view data) const override {
    const bj::value event = parsed(data);
    if (data == "[DONE]" || member(&event, "choices") != nullptr || has_error(event)) {
      return read_choice(data);
    }
    if (!event.is_object()) {
      return base::fail(ErrorCode::kIoError, "the engine's answer holds an event that is no JSON object");
    }
    Piece out;
    out.text = text_of(member(&event, "content"));
    out.last = is_true(member(&event, "stop"));
    const bj::value* tokens = member(&event, "tokens");
    if (tokens != nullptr && tokens->is_array() && !tokens->get_array().empty()) {
      out.tokens = static_cast<std::int64_t>(tokens->get_array().size());
    }
    out.logprobs = token_logprobs(member(&event, "completion_probabilities"));
    if (!out.last) return out;
    if (out.text && out.text->empty()) out.text.reset();
    out.stop = stop_of(&event);
    out.tokens_in = number_of(member(&event, "tokens_evaluated"));
    out.tokens_out = number_of(member(&event, "tokens_predicted"));
    return out;
  }
};

}  // namespace

const Engine& llamacpp() {
  static const LlamaCpp engine;
  return engine;
}

}  // namespace llorch::adapter::engines
