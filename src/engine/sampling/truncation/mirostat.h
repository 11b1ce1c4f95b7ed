#pragma once
// Mirostat keeps the surprise of the output near a target by cutting more or less. (Basu et al., "Mirostat: a neural text
// decoding algorithm that directly controls perplexity", ICLR 2021)
#include <cstddef>

#include "engine/sampling/params.h"
#include "engine/sampling/truncation/candidates.h"

namespace llorch::engine::sampling::truncation {

// mu starts at 2 tau and moves with each draw, so it is a function of all draws of the sequence so far: a sequence that
// is replayed from its beginning sees the same values. Surprise = -log2 p, p over all candidates before the cut, as in
// the paper. Not thread-safe.
class Mirostat {
 public:
  // REQUIRES params.mirostat != 0.
  Mirostat(const SamplingParams& params, std::size_t vocab_size);

  // v2: drops -log2 p > mu, but not the first candidate.
  // v1: from the 100 best s = sum t b / sum t^2, t = ln((i+2)/(i+1)), b = ln(p_i / p_(i+1)); e = s - 1;
  //     k = ((e 2^mu) / (1 - V^-e))^(1/s); keeps the first floor(k), at least 1.
  void cut(Candidates& c);
  // The draw after a cut took a candidate with this x. mu -= eta (surprise - tau).
  void drawn(float x);

  float mu() const { return mu_; }

 private:
  void cut_v1(Candidates& c) const;

  int version_;
  float tau_, eta_, mu_;
  float ln_vocab_;
  float ln_total_ = 0;  // of the last cut
};

}  // namespace llorch::engine::sampling::truncation
