#include "worker/sampling/wire.h"

#include "text/text_stream.h"
#include "wire/request_limits.h"

namespace llorch::worker::sampling {
namespace {

static_assert(engine::sampling::kTopLogprobsMax == wire::kTopLogprobsMax);

engine::sampling::PenaltyScope scope_of(wire::PenaltyScope scope) {
  return scope == wire::PenaltyScope::kOutput ? engine::sampling::PenaltyScope::kOutput
                                              : engine::sampling::PenaltyScope::kAll;
}

// WireEntry: TokenLogprob, TokenLogprobs or PromptTokenLogprobs.
template <class WireEntry>
void spell(WireEntry& out, base::TokenId token, const text::Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  text::Utf8Assembler text;
  out.id = index(token);
  out.token = text.push(bytes);
  out.token += text.finish();
  out.bytes.assign(bytes.begin(), bytes.end());
}

template <class WireEntry>
void fill(WireEntry& out, const engine::sampling::TokenLogprob& entry, const text::Tokenizer& tokenizer) {
  spell(out, entry.token, tokenizer);
  out.logprob = entry.logprob;
}

// WireEntries: TokenLogprobs or PromptTokenLogprobs.
template <class WireEntries>
WireEntries filled(const engine::sampling::TokenLogprobs& logprobs, const text::Tokenizer& tokenizer) {
  WireEntries out;
  fill(out, logprobs.chosen, tokenizer);
  out.top_logprobs.resize(logprobs.top_count);
  for (std::size_t i = 0; i < logprobs.top_count; ++i) fill(out.top_logprobs[i], logprobs.top[i], tokenizer);
  return out;
}

}  // namespace

engine::sampling::SamplingParams engine_params(const wire::ExecuteRequest& request, std::uint64_t seed) {
  const wire::SamplingRequest& r = request.sampling;
  const auto f32 = [](double value) { return static_cast<float>(value); };
  const auto count = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  engine::sampling::SamplingParams out{.temperature = f32(request.temperature),
                                       .top_k = count(r.top_k),
                                       .top_p = f32(r.top_p),
                                       .min_p = f32(r.min_p),
                                       .repetition_penalty = f32(r.repetition_penalty),
                                       .frequency_penalty = f32(r.frequency_penalty),
                                       .presence_penalty = f32(r.presence_penalty),
                                       .repetition_scope = scope_of(r.repetition_scope),
                                       .frequency_scope = scope_of(r.frequency_scope),
                                       .penalty_last_n = count(r.penalty_last_n),
                                       .dry_multiplier = f32(r.dry_multiplier),
                                       .dry_base = f32(r.dry_base),
                                       .dry_allowed_length = count(r.dry_allowed_length),
                                       .dry_last_n = count(r.dry_last_n),
                                       .dynatemp_range = f32(r.dynatemp_range),
                                       .dynatemp_exponent = f32(r.dynatemp_exponent),
                                       .top_n_sigma = f32(r.top_n_sigma),
                                       .typical_p = f32(r.typical_p),
                                       .xtc_probability = f32(r.xtc_probability),
                                       .xtc_threshold = f32(r.xtc_threshold),
                                       .min_keep = count(r.min_keep),
                                       .mirostat = count(r.mirostat),
                                       .mirostat_tau = f32(r.mirostat_tau),
                                       .mirostat_eta = f32(r.mirostat_eta),
                                       .seed = seed};
  if (r.sampler_order == wire::SamplerOrder::kTemperatureLast) {
    out.order = engine::sampling::SamplerOrder::kTemperatureLast;
  }
  out.logit_bias.reserve(r.logit_bias.size());
  for (const wire::LogitBias& b : r.logit_bias) {
    out.logit_bias.push_back({.token = base::TokenId{count(b.token)}, .bias = f32(b.bias)});
  }
  return out;
}

wire::TokenLogprobs wire_logprobs(const engine::sampling::TokenLogprobs& logprobs, const text::Tokenizer& tokenizer) {
  return filled<wire::TokenLogprobs>(logprobs, tokenizer);
}

wire::PromptTokenLogprobs first_logprobs(base::TokenId token, const text::Tokenizer& tokenizer) {
  wire::PromptTokenLogprobs out;
  spell(out, token, tokenizer);
  return out;
}

wire::PromptTokenLogprobs prompt_logprobs(const engine::sampling::TokenLogprobs& logprobs,
                                          const text::Tokenizer& tokenizer) {
  return filled<wire::PromptTokenLogprobs>(logprobs, tokenizer);
}

}  // namespace llorch::worker::sampling
