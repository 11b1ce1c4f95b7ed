#include "worker/sequence.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "engine/plan/draw_math.h"
#include "engine/sampling/logprobs.h"
#include "worker/sampling/wire.h"

namespace llorch::worker {

using wire::StopReason;

base::Result<SequenceSpec> make_sequence_spec(const wire::ExecuteRequest& request, const text::Tokenizer& tokenizer,
                                              std::int64_t context_tokens, std::uint64_t seed_if_absent) {
  if (request.messages) {
    return base::fail(
        base::Error{base::ErrorCode::kInvalidParams, "this worker takes prompt or prompt_tokens", {}}.with(
            "field", std::string("messages")));
  }
  SequenceSpec spec;
  spec.job_id = base::JobId(request.job_id);
  spec.execution_id = request.execution_id;
  const auto vocab = tokenizer.facts().vocab_size;
  if (request.prompt) {
    spec.prompt = TRY(tokenizer.encode(*request.prompt));
    spec.prompt_sha256 = base::to_hex(base::sha256(*request.prompt));
  } else {
    spec.prompt.reserve(request.prompt_tokens->size());
    for (const std::int32_t id : *request.prompt_tokens) {
      if (id < 0 || static_cast<std::size_t>(id) >= vocab) {
        return base::fail(base::ErrorCode::kInvalidParams,
                          fmt::format("prompt_tokens holds an id outside the vocabulary of {} tokens", vocab));
      }
      spec.prompt.push_back(static_cast<TokenId>(id));
    }
    spec.prompt_sha256 = request.prompt_sha256.value_or("");
  }
  if (spec.prompt.empty()) {
    return base::fail(base::ErrorCode::kInvalidParams, "the prompt has no tokens; give at least one character");
  }
  const auto prompt_tokens = static_cast<std::int64_t>(spec.prompt.size());
  if (prompt_tokens >= context_tokens) {
    return base::fail(base::Error{
        base::ErrorCode::kInvalidParams,
        fmt::format("the prompt has {} tokens and this worker's context holds {}; shorten the "
                    "prompt or start the worker with more context",
                    prompt_tokens, context_tokens),
        {}}.with("reason", "CONTEXT_TOO_LARGE")
                          .with("prompt_tokens", prompt_tokens)
                          .with("context_tokens", context_tokens));
  }
  TRY(text::validate_stop_strings(tokenizer, request.stop));
  spec.stop = request.stop;
  spec.max_tokens = request.max_tokens;
  spec.parameters_sha256 = wire::parameters_sha256(request.temperature, request.sampling, request.stop);
  spec.sampling = sampling::engine_params(request, request.seed.value_or(seed_if_absent));
  spec.dry_sequence_breakers = request.sampling.dry_sequence_breakers;
  spec.logprobs = request.sampling.logprobs;
  spec.top_logprobs = static_cast<std::uint32_t>(request.sampling.top_logprobs);
  spec.prompt_logprobs = request.sampling.prompt_logprobs.value_or(false);
  TRY(wire::validate_prompt_logprobs(request.sampling, spec.prompt.size()));
  TRY(engine::sampling::validate(spec.sampling, vocab));
  return spec;
}

namespace {

// Most tokens ahead of a draft.
constexpr std::size_t kDraftedMax = 64;

std::uint32_t positions_max(const SequenceSpec& spec, std::int64_t context_tokens) {
  const auto prompt_tokens = static_cast<std::int64_t>(spec.prompt.size());
  return static_cast<std::uint32_t>(prompt_tokens + std::min(spec.max_tokens, context_tokens - prompt_tokens));
}

}  // namespace

Sequence::Sequence(SequenceSpec spec, const text::Tokenizer& tokenizer, std::int64_t context_tokens)
    : spec_(std::move(spec)),
      tokenizer_(&tokenizer),
      context_tokens_(context_tokens),
      tokens_max_(positions_max(spec_, context_tokens)),
      sampler_(spec_.sampling,
               {.vocab = tokenizer.facts().vocab_size, .history_max = static_cast<std::size_t>(context_tokens)}),
      text_(tokenizer, {.stop_strings = spec_.stop}) {
  history_.reserve(tokens_max_ + spec_.drafted * kDraftedMax);
  if (spec_.drafted) {
    // Mirostat learns from what it draws, and these are no draws.
    engine::sampling::SamplingParams params = spec_.sampling;
    params.mirostat = 0;
    params.dry_multiplier = 0;
    drafter_.emplace(
        params, engine::sampling::SamplerSizes{.vocab = tokenizer.facts().vocab_size,
                                               .history_max = static_cast<std::size_t>(context_tokens) + kDraftedMax});
  }
  if (spec_.sampling.dry_multiplier > 0.0f) {
    break_tracker_.emplace(spec_.dry_sequence_breakers);
    breaks_.reserve(tokens_max_);
  }
  for (const TokenId token : spec_.prompt) append(token);
}

void Sequence::append(TokenId token) {
  history_.push_back(token);
  if (break_tracker_) breaks_.push_back(break_tracker_->push(tokenizer_->token_bytes(token)) ? 1 : 0);
}

base::Result<std::span<const std::uint32_t>> Sequence::mask() {
  if (!spec_.constraint) return std::span<const std::uint32_t>();
  return spec_.constraint->mask();
}

engine::sampling::SampleInput Sequence::sample_input(std::span<const float> logits,
                                                     std::span<const std::uint32_t> mask) const {
  return {.logits = logits,
          .history = {.tokens = history_, .prompt_tokens = spec_.prompt.size(), .breaks = breaks_},
          .position = static_cast<std::uint32_t>(history_.size()),
          .mask = mask};
}

base::Result<TokenOut> Sequence::prompt_token(std::uint32_t position, std::span<const float> logits) const {
  ASSERT(spec_.prompt_logprobs && position < spec_.prompt.size() && logits.empty() == (position == 0), "position {}",
         position);
  TokenOut out{.token = spec_.prompt[position], .text = {}, .index = position, .finished = {}};
  if (position == 0) {
    out.prompt_logprobs = sampling::first_logprobs(out.token, *tokenizer_);
    return out;
  }
  // As of a draw there.
  bool is_finite = true;
  for (const float logit : logits) is_finite &= engine::plan::is_finite(logit);
  if (!is_finite) TRY(engine::sampling::Sampler::drawn({.fault = engine::plan::DrawFault::kNotFinite}, position));
  out.prompt_logprobs =
      sampling::prompt_logprobs(engine::sampling::token_logprobs(logits, out.token, spec_.top_logprobs), *tokenizer_);
  return out;
}

base::Result<TokenOut> Sequence::accept(std::span<const float> logits) {
  ASSERT(!finished_);
  const TokenId token = TRY(sampler_.sample(sample_input(logits, TRY(mask()))));
  TRY(take(token));
  TokenOut out = say();
  if (spec_.logprobs) {
    out.logprobs =
        sampling::wire_logprobs(engine::sampling::token_logprobs(logits, token, spec_.top_logprobs), *tokenizer_);
  }
  return out;
}

const engine::plan::RowDraw* Sequence::device_draw(std::uint32_t edits_max) {
  ASSERT(!finished_);
  if (spec_.logprobs) return nullptr;
  const auto allowed = mask();
  return allowed ? sampler_.device_draw(sample_input({}, *allowed), edits_max) : nullptr;
}

TokenId Sequence::draft(std::span<const TokenId> ahead, std::span<const float> logits) {
  ASSERT(drafter_ && ahead.size() <= kDraftedMax, "{} tokens ahead", ahead.size());
  const std::size_t known = history_.size();
  history_.insert(history_.end(), ahead.begin(), ahead.end());
  auto input = sample_input(logits, {});
  input.history.breaks = {};
  const auto token = drafter_->sample(input);
  history_.resize(known);
  return token.value_or(TokenId{0});  // of logits that are no numbers nothing can be expected
}

base::Result<TokenId> Sequence::take(const engine::plan::RowDrawn& drawn) {
  const TokenId token = TRY(engine::sampling::Sampler::drawn(drawn, static_cast<std::uint32_t>(history_.size())));
  TRY(take(token));
  return token;
}

base::Result<> Sequence::take(TokenId token) {
  ASSERT(!finished_);
  if (spec_.constraint) TRY(spec_.constraint->accept(token));
  append(token);
  ++tokens_out_;
  if (tokenizer_->is_end_of_generation(token)) {
    ending_ = StopReason::kEos;
  } else if (tokens_out_ == spec_.max_tokens) {
    ending_ = StopReason::kMaxTokens;
  } else if (static_cast<std::int64_t>(history_.size()) == context_tokens_) {
    ending_ = StopReason::kContext;
  }
  return {};
}

TokenOut Sequence::say() {
  ASSERT(!finished_ && tokens_out_ > 0);
  const TokenId token = history_.back();
  text::TextPiece piece = text_.push(token);
  const std::int64_t told_before = spec_.prompt_logprobs ? std::ssize(spec_.prompt) : 0;
  TokenOut out{
      .token = token, .text = std::move(piece.text), .index = told_before + tokens_out_ - 1, .finished = ending_};
  if (piece.stopped && ending_ != StopReason::kEos) out.finished = StopReason::kStop;
  if (out.finished) {
    out.text += text_.finish().text;
    finished_ = true;
  }
  output_hash_.update(out.text);
  return out;
}

std::string Sequence::output_sha256() const { return base::to_hex(output_hash_.digest()); }

}  // namespace llorch::worker
