#pragma once
// From the pieces of text that an engine sends to the token events of a job. Pure; one job, one thread.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/sha256.h"
#include "wire/sampling.h"

namespace llorch::adapter::output {

// A job has at most so many token events as it may have tokens, and its count is that of its events. Engines send text in pieces
// that hold one token, several or a part of one, and most say at the end how many there were. So a piece of n tokens is an event
// with its text and n - 1 empty ones, the last place is kept for text that comes when all others are taken, and what the engine
// counts beyond the pieces becomes empty events.
class TokenWriter {
 public:
  // Longer texts are cut at code points: no token is that long, and a line of the stream has an end.
  static constexpr std::size_t kTextBytesMax = 64 << 10;
  // Of text that waits for the last event.
  static constexpr std::size_t kHeldBytesMax = 256 << 10;
  // Empty events that one call adds, but for those with log-probabilities: an engine says any number of tokens in a few bytes.
  static constexpr std::int64_t kEmptyEventsMax = 1024;

  explicit TokenWriter(std::int64_t tokens_max) : tokens_max_(tokens_max) {}

  // Appends events as they go on the wire. `tokens`: how many the piece is said to hold, at least 1; those past the bound of a call are
  // left to what the engine counts at the end. `logprobs`: of its first tokens, an event each. Errors: INTERNAL, the engine sends more text than so many tokens have.
  base::Result<> add(std::string_view text, std::int64_t tokens, std::span<const wire::TokenLogprobs> logprobs,
                     std::string& out);
  // What is held, and empty events up to `counted` tokens where the engine counts more. False: some are left for another call.
  base::Result<bool> finish(std::int64_t counted, std::string& out);

  std::int64_t tokens_out() const { return tokens_out_; }
  bool began() const { return tokens_out_ > 0 || !held_.empty(); }
  // Of all texts so far. REQUIRES: finished, and not called before.
  std::string sha256() { return base::to_hex(hash_.digest()); }

 private:
  void event(std::string_view text, std::optional<wire::TokenLogprobs> logprobs, std::string& out);

  const std::int64_t tokens_max_;
  std::int64_t tokens_out_ = 0;
  std::string held_;
  std::optional<wire::TokenLogprobs> held_logprobs_;  // of the event that is kept for the end
  base::Sha256 hash_;
};

}  // namespace llorch::adapter::output
