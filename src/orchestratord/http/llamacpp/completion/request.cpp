#include "orchestratord/http/llamacpp/completion/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "orchestratord/http/chat/parsing.h"
#include "orchestratord/http/tasks/prompt.h"
#include "text/text_budget.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

using chat::refused;

base::Result<> check_refused(const wire::LlamaCppGeneration& given) {
  const std::pair<std::string_view, bool> unsupported[] = {
      {"ignore_eos", given.ignore_eos},
      {"post_sampling_probs", given.post_sampling_probs},
      {"lora", given.lora && given.lora->text != "[]"},
  };
  for (const auto& [field, is_set] : unsupported) {
    if (is_set)
      return refused(field, "unsupported", std::string(field) + " is not supported by this server; leave it out");
  }
  return {};
}

// A sampler that the list leaves out is off.
void switch_off_unlisted(wire::LlamaCppGeneration& given) {
  if (!given.samplers) return;
  const auto has = [&](std::string_view name) {
    return std::ranges::find(*given.samplers, name) != given.samplers->end();
  };
  if (!has("temperature")) given.temperature = 1;
  if (!has("top_k")) given.top_k = 0;
  if (!has("top_p")) given.top_p = 1;
  if (!has("min_p")) given.min_p = 0;
  if (!has("typ_p") && !has("typical_p")) given.typical_p = 1;
  if (!has("top_n_sigma")) given.top_n_sigma = 0;
  if (!has("xtc")) given.xtc_probability = 0;
  if (!has("dry")) given.dry_multiplier = 0;
  if (!has("penalties")) given.repeat_last_n = 0;
}

// That server's chain has the temperature behind the cuts, unless a list has it first.
wire::SamplerOrder order_of(const wire::LlamaCppGeneration& given) {
  for (const std::string& name : given.samplers.value_or(std::vector<std::string>())) {
    if (name == "temperature") return wire::SamplerOrder::kTemperatureFirst;
    if (name != "penalties" && name != "dry") break;
  }
  return wire::SamplerOrder::kTemperatureLast;
}

// What a greedy job or mirostat would leave without effect is left out: that API has its cuts by default.
void set_cuts(const wire::LlamaCppGeneration& given, wire::SamplingRequest& out) {
  if (given.temperature <= 0) return;
  out.dynatemp_range = given.dynatemp_range;
  out.dynatemp_exponent = given.dynatemp_exponent;
  if (given.mirostat != 0) {
    out.mirostat = given.mirostat;
    out.mirostat_tau = given.mirostat_tau;
    out.mirostat_eta = given.mirostat_eta;
    return;
  }
  out.top_k = std::max<std::int64_t>(given.top_k, 0);
  out.top_p = given.top_p;
  out.min_p = given.min_p;
  out.typical_p = given.typical_p;
  out.top_n_sigma = std::max(given.top_n_sigma, 0.0);
  if (given.xtc_threshold <= 0.5) {
    out.xtc_probability = given.xtc_probability;
    out.xtc_threshold = given.xtc_threshold;
  }
  out.min_keep = std::max<std::int64_t>(given.min_keep, 1);
  out.sampler_order = order_of(given);
}

void set_penalties(const wire::LlamaCppGeneration& given, wire::SamplingRequest& out) {
  const bool has_penalty = given.repeat_penalty != 1 || given.presence_penalty != 0 || given.frequency_penalty != 0;
  if (given.repeat_last_n != 0 && has_penalty) {
    out.penalty_last_n = std::max<std::int64_t>(given.repeat_last_n, 0);
    out.repetition_penalty = given.repeat_penalty;
    out.presence_penalty = given.presence_penalty;
    out.frequency_penalty = given.frequency_penalty;
    out.frequency_scope = wire::PenaltyScope::kAll;
  }
  if (given.dry_penalty_last_n != 0 && given.dry_multiplier != 0) {
    out.dry_last_n = std::max<std::int64_t>(given.dry_penalty_last_n, 0);
    out.dry_multiplier = given.dry_multiplier;
    out.dry_base = given.dry_base;
    out.dry_allowed_length = given.dry_allowed_length;
    out.dry_sequence_breakers = given.dry_sequence_breakers;
  }
}

wire::SamplingRequest sampling_of(const wire::LlamaCppGeneration& given) {
  wire::SamplingRequest out;
  set_cuts(given, out);
  set_penalties(given, out);
  if (given.logit_bias) out.logit_bias = given.logit_bias->tokens;
  out.logprobs = given.n_probs > 0;
  out.top_logprobs = given.n_probs;
  out.json_schema = given.json_schema;
  if (!given.grammar.value_or("").empty()) out.grammar = given.grammar;
  return out;
}

// Nothing text-like but the stop texts.
std::string settings_of(wire::LlamaCppGeneration given) {
  given.model.reset();
  given.seed.reset();
  given.grammar.reset();
  given.json_schema.reset();
  given.response_fields.reset();
  given.n_cmpl = 1;
  if (!given.stop) given.stop.emplace();
  const std::string object = wire::encode(given);
  return object.substr(1, object.size() - 2);
}

base::Result<CompletionCall> shared_part(wire::LlamaCppGeneration given) {
  constexpr std::int64_t kDrawn = std::numeric_limits<std::uint32_t>::max();
  TRY(check_refused(given));
  switch_off_unlisted(given);
  CompletionCall out;
  wire::SubmitRequest& submission = out.submission;
  submission.model = given.model;
  submission.temperature = std::max(given.temperature, 0.0);
  submission.sampling = sampling_of(given);
  if (given.n_predict >= 0) submission.max_tokens = chat::lowered_tokens(std::max<std::int64_t>(given.n_predict, 1));
  if (given.seed.value_or(-1) >= 0 && *given.seed != kDrawn) submission.seed = static_cast<std::uint64_t>(*given.seed);
  if (given.stop) submission.stop = given.stop->texts;
  out.answer.stream = given.stream;
  out.answer.hides_output = given.n_predict == 0;
  out.answer.return_tokens = given.return_tokens;
  out.answer.logprobs = submission.sampling.logprobs;
  if (submission.stop.size() == 1) out.answer.stopping_word = submission.stop.front();
  out.answer.is_filtered = given.response_fields.has_value();
  out.answer.response_fields = given.response_fields.value_or(std::vector<std::string>());
  out.answer.settings = settings_of(std::move(given));
  return out;
}

base::Result<wire::TextOrTokens> prompt_of(const wire::LlamaCppPrompt& prompt, const text::Tokenizer* tokenizer) {
  const bool is_text = prompt.parts.size() == 1 && !prompt.parts.front().has_tokens();
  if (is_text && (tokenizer == nullptr || !prompt.parts.front().text.empty())) return prompt.parts.front();
  if (tokenizer == nullptr) {
    return refused("prompt", "engine", "this model's engine is another system's and takes texts; send one text");
  }
  wire::TextOrTokens out;
  text::TextBudget budget = text::TextBudget::of_texts();
  for (std::size_t i = 0; i < prompt.parts.size(); ++i) {
    const wire::TextOrTokens& part = prompt.parts[i];
    out.tokens.insert(out.tokens.end(), part.tokens.begin(), part.tokens.end());
    if (part.has_tokens()) continue;
    const auto tokens =
        TRY(tokenizer->encode(part.text, {.add_special = i == 0, .parse_special = true, .budget = &budget}));
    std::ranges::transform(tokens, std::back_inserter(out.tokens),
                           [](base::TokenId id) { return static_cast<std::int32_t>(base::index(id)); });
  }
  if (out.tokens.empty()) return refused("prompt", "empty", "the prompt has no tokens");
  return out;
}

}  // namespace

base::Result<CompletionCall> decode_completion(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto read = TRY(wire::decode<wire::LlamaCppCompletionRequest>(body, wire::UnknownKeys::kIgnore));
  CompletionCall out = TRY(shared_part(std::move(read.generation)));
  out.prompt = std::move(read.prompt);
  wire::SubmitRequest checked = out.submission;
  checked.prompt = {.text = "any"};
  TRY(chat::check_as_task(std::move(checked)));
  return out;
}

base::Result<CompletionCall> decode_infill(std::string_view body) {
  TRY(chat::check_utf8(body));
  auto read = TRY(wire::decode<wire::InfillRequest>(body, wire::UnknownKeys::kIgnore));
  CompletionCall out = TRY(shared_part(std::move(read.generation)));
  wire::SubmitRequest& submission = out.submission;
  submission.prompt = {.text = std::move(read.input_prefix) + read.prompt.value_or("")};
  submission.suffix = std::move(read.input_suffix);
  if (read.input_extra) {
    submission.extra_files.emplace();
    for (wire::InfillExtra& extra : *read.input_extra) {
      submission.extra_files->push_back({.name = std::move(extra.filename), .text = std::move(extra.text)});
    }
  }
  TRY(chat::check_as_task(submission));
  return out;
}

base::Result<> check_bytes(const wire::LlamaCppPrompt& prompt, std::int64_t bytes_max) {
  std::size_t bytes = 0;
  for (const wire::TextOrTokens& part : prompt.parts) bytes += part.bytes();
  if (bytes <= static_cast<std::size_t>(bytes_max)) return {};
  return tasks::too_long("prompt", "the prompt is", bytes, "prompt_bytes_max", bytes_max);
}

base::Result<> set_prompt(CompletionCall& call, const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {  // how its chain is ordered is its own affair
    call.submission.sampling.sampler_order = wire::SamplingRequest().sampler_order;
    call.submission.sampling.frequency_scope = wire::SamplingRequest().frequency_scope;
  }
  call.submission.prompt = TRY(prompt_of(call.prompt, tokenizer));
  if (!call.submission.prompt->has_tokens()) call.submission.parse_special = true;
  return {};
}

}  // namespace llorch::orchestratord::http::llamacpp
