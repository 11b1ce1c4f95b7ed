#pragma once
// One job inside the worker as a pure state machine: prompt in, logits in, token events out. No threads, no sockets, no
// engine: the loop that owns the engine drives it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/sha256.h"
#include "engine/sampling/sampler.h"
#include "grammar/matcher.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"
#include "wire/task.h"
#include "wire/worker.h"
#include "worker/images/prompt_images.h"
#include "worker/sampling/break_tracker.h"

namespace llorch::worker {

using base::TokenId;

struct SequenceSpec {
  base::JobId job_id;
  std::optional<std::string> execution_id{};  // of this run
  std::vector<TokenId> prompt;                // special tokens included, never empty
  std::string prompt_sha256;
  std::string parameters_sha256;
  std::shared_ptr<const images::PromptImages> images{};  // behind the image tokens of `prompt`; null: text only
  std::int64_t max_tokens = 0;
  std::vector<std::string> stop;
  engine::sampling::SamplingParams sampling;
  std::vector<std::string> dry_sequence_breakers;  // read when DRY is on
  bool logprobs = false;
  std::uint32_t top_logprobs = 0;
  bool prompt_logprobs = false;                  // the prompt's tokens are told as well, before the output
  bool drafted = false;                          // a draft model writes ahead: draft() is called
  std::optional<grammar::Matcher> constraint{};  // at the start of an output of this vocabulary
};

// Validates a request against this model and turns text into tokens where the request holds text.
// INVALID_PARAMS: prompt too long for the context (details.reason CONTEXT_TOO_LARGE, numbers), a token id outside the
// vocabulary, a sampling parameter or stop string out of range. `seed_if_absent` is used when the request names none.
base::Result<SequenceSpec> make_sequence_spec(const wire::ExecuteRequest& request, const text::Tokenizer& tokenizer,
                                              std::int64_t context_tokens, std::uint64_t seed_if_absent);

struct TokenOut {
  TokenId token{};
  std::string text;  // whole code points; the last one carries all that was held back
  std::int64_t index = 0;
  std::optional<wire::StopReason> finished;
  std::optional<wire::TokenLogprobs> logprobs{};               // when the request asked for them
  std::optional<wire::PromptTokenLogprobs> prompt_logprobs{};  // a token of the prompt, without a text
};

class Sequence {
 public:
  // `tokenizer` outlives the sequence. REQUIRES spec from make_sequence_spec with the same tokenizer and context.
  Sequence(SequenceSpec spec, const text::Tokenizer& tokenizer, std::int64_t context_tokens);

  const SequenceSpec& spec() const { return spec_; }
  std::uint64_t seed() const { return spec_.sampling.seed; }
  // Positions it may ever hold: the prompt and as many tokens as it may get.
  std::uint32_t tokens_max() const { return tokens_max_; }

  // The event of the prompt's token at `position`, which is its index, too. `logits` [V] are those after the token before it, of
  // the first token none. Errors: INTERNAL when they are not finite. REQUIRES: spec().prompt_logprobs.
  base::Result<TokenOut> prompt_token(std::uint32_t position, std::span<const float> logits) const;

  // Samples the next token, among those the constraint allows. logits [V], after the last token. REQUIRES: not finished.
  // INTERNAL when the logits are not finite. INVALID_PARAMS when the constraint is too ambiguous here.
  base::Result<TokenOut> accept(std::span<const float> logits);

  // The same in three parts, where a device draws. How the next token is drawn, with at most `edits_max` edits, valid until
  // the next call here; null when accept() must be given the logits: log-probabilities are wanted, or the parameters are none
  // a device knows (Sampler::device_draw), or there is an error for accept() to find.
  const engine::plan::RowDraw* device_draw(std::uint32_t edits_max);
  // Takes the token that was drawn and settles everything that the next draw depends on. Errors as of accept().
  base::Result<TokenId> take(const engine::plan::RowDrawn& drawn);
  // The event of the token taken last; one for each take(), before the next one. Only here a stop string is found.
  TokenOut say();
  // What it would draw behind `ahead` from a draft model's logits: with the same parameters, random numbers and history, but
  // without the constraint. Changes nothing. The draft model may have fewer tokens than the model: it proposes none of the others.
  // REQUIRES: spec().drafted, room in the context for all of `ahead`.
  TokenId draft(std::span<const TokenId> ahead, std::span<const float> logits);

  // Whether the sequence ends with the token taken last whatever its text is.
  bool ends() const { return ending_.has_value(); }

  bool finished() const { return finished_; }
  std::int64_t tokens_out() const { return tokens_out_; }
  // Lower-case hex SHA-256 of the output text so far.
  std::string output_sha256() const;

 private:
  base::Result<std::span<const std::uint32_t>> mask();
  engine::sampling::SampleInput sample_input(std::span<const float> logits, std::span<const std::uint32_t> mask) const;
  base::Result<> take(TokenId token);
  void append(TokenId token);

  SequenceSpec spec_;
  const text::Tokenizer* tokenizer_;
  std::int64_t context_tokens_;
  std::uint32_t tokens_max_;
  engine::sampling::Sampler sampler_;
  std::optional<engine::sampling::Sampler> drafter_;
  text::TextStream text_;
  std::vector<TokenId> history_;  // prompt and output, and in draft() what is ahead of them
  std::optional<sampling::BreakTracker> break_tracker_;
  std::vector<std::uint8_t> breaks_;  // of history_; empty without DRY
  std::int64_t tokens_out_ = 0;
  std::optional<wire::StopReason> ending_;  // of the token taken last, but for stop strings
  bool finished_ = false;
  base::Sha256 output_hash_;
};

}  // namespace llorch::worker
