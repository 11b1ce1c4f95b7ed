#pragma once
// Runs requests of the corpus on an engine in some company and order, and keeps what shows whether bits changed.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cli/determinism/corpus.h"
#include "engine/inference/engine.h"

namespace llorch::cli::determinism {

// Of one request: what was drawn, and a fingerprint (64 bits of SHA-256) of the logits' bits behind every draw.
struct Trace {
  std::vector<base::TokenId> tokens;
  std::vector<std::uint64_t> logits;
  std::string tokens_sha256() const;  // hex, of the ids as u32 little-endian
};

// The first draw in which two traces differ; absent when `part` is a beginning of `whole`.
struct Departure {
  std::size_t token = 0;
  bool in_token = false;  // else only in the logits' bits
};
std::optional<Departure> departure(const Trace& part, const Trace& whole);

// What happens around the requests. All randomness comes from `seed`; nothing of it may change a trace.
struct Circumstances {
  std::uint64_t seed = 0;
  bool shuffled = false;          // they arrive in another order, and a few steps apart
  std::uint32_t strangers = 0;    // sequences of random tokens that come and are cancelled all the time
  std::uint32_t pause_every = 0;  // steps after which a sequence is paused, so that others take its slot; 0: never
  bool forked = false;            // each is forked once and goes on in the fork, beside its parent
  bool cached = false;            // full pages are kept for later requests, and found by them
  // Tokens are computed ahead of their draw: those of these traces, by request, and now and then others. Empty: none.
  std::span<const Trace> foretold{};
  std::uint32_t steps_max = 0;  // stop in the middle; 0: run to the end
};

struct RunCounts {
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t cached_tokens = 0;  // of prompts, found in the prefix cache
  std::uint64_t proposed = 0;       // tokens computed ahead
  std::uint64_t accepted = 0;       // of them, that were drawn
};

struct RunResult {
  std::vector<Trace> traces;  // [requests]
  RunCounts counts;
};

// Called after each request that is complete.
using RequestDone = std::function<void()>;

// Errors: those of the engine and the sampler.
base::Result<RunResult> run_requests(engine::inference::Engine& engine, std::span<const Request> requests,
                                     const Circumstances& circumstances, const RequestDone& done = {});

}  // namespace llorch::cli::determinism
