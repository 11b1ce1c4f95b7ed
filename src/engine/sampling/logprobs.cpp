#include "engine/sampling/logprobs.h"

#include <algorithm>
#include <limits>

#include "base/assert.h"
#include "engine/sampling/math/dense_sums.h"
#include "engine/sampling/math/log.h"

namespace llorch::engine::sampling {

TokenLogprobs token_logprobs(std::span<const float> logits, TokenId chosen, std::uint32_t top_count) {
  ASSERT(index(chosen) < logits.size() && top_count <= kTopLogprobsMax, "chosen={} vocab={} top={}", index(chosen),
         logits.size(), top_count);
  TokenLogprobs out;
  const auto wanted = std::min<std::size_t>(top_count, logits.size());
  // Sorted insertion; `logprob` holds the logit until the end. Ids come in ascending order, so an equal one goes behind.
  std::size_t held = 0;
  float l_max = logits[0];
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float l = logits[id];
    l_max = std::max(l_max, l);
    if (held == wanted && (wanted == 0 || l <= out.top[held - 1].logprob)) continue;
    std::size_t at = held < wanted ? held++ : held - 1;
    for (; at > 0 && out.top[at - 1].logprob < l; --at) out.top[at] = out.top[at - 1];
    out.top[at] = {TokenId{static_cast<std::uint32_t>(id)}, l};
  }
  const float ln_sum = math::ln_s1(math::exp_sum(logits, l_max));
  const auto logprob = [&](float l) { return std::max((l - l_max) - ln_sum, -std::numeric_limits<float>::max()); };
  for (std::size_t i = 0; i < held; ++i) out.top[i].logprob = logprob(out.top[i].logprob);
  out.top_count = static_cast<std::uint32_t>(held);
  out.chosen = {chosen, logprob(logits[index(chosen)])};
  return out;
}

}  // namespace llorch::engine::sampling
