#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/assert.h"
#include "base/philox.h"
#include "engine/sampling/exp.h"

namespace llorch::engine::sampling {
namespace {

// A weight below 2^-24 leaves a sum of at least 1 as it is (less than half its last place), and every sum is at least
// 1, the weight of the best candidate. So candidates below x = -17 (e^-17 = 0.69 * 2^-24) can neither be drawn nor
// change a sum: dropping them is exact. Each doubling of the sum moves the bound up by ln 2 > 0.69.
constexpr float kTailX = -17.0f;
constexpr float kTailXPerDoubling = 0.69f;

// Ascending keys are candidates by (x desc, id asc). x is never positive, so its magnitude's bits order it; the
// magnitude also makes -0 and 0 one value.
std::uint64_t key_of(float x, std::uint32_t id) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(std::fabs(x))} << 32 | id;
}
float x_of(std::uint64_t key) { return -std::bit_cast<float>(static_cast<std::uint32_t>(key >> 32)); }
TokenId id_of(std::uint64_t key) { return TokenId{static_cast<std::uint32_t>(key)}; }

// Sorts as far as it is read, in blocks that double: most draws end within the first.
class LazySorted {
 public:
  explicit LazySorted(std::span<std::uint64_t> keys) : keys_(keys) {}

  std::uint64_t operator[](std::size_t i) {
    while (i >= sorted_) sort_next_block();
    return keys_[i];
  }
  std::size_t size() const { return keys_.size(); }

 private:
  static constexpr std::size_t kFirstBlock = 256;

  void sort_next_block() {
    const std::size_t end = std::min(keys_.size(), sorted_ + std::max(sorted_, kFirstBlock));
    const auto at = [&](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end < keys_.size()) std::nth_element(at(sorted_), at(end), keys_.end());
    std::sort(at(sorted_), at(end));
    sorted_ = end;
  }

  std::span<std::uint64_t> keys_;
  std::size_t sorted_ = 0;
};

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (const float v : values) finite &= (std::bit_cast<std::uint32_t>(v) & kExponent) != kExponent;
  return finite;
}

bool in_range(float value, float high) { return value >= 0.0f && value <= high; }  // false for NaN

tl::unexpected<base::Error> out_of_range(std::string_view field, float value, float high) {
  return base::fail(base::ErrorCode::kInvalidParams, fmt::format("{} is {}, the range is 0..{}", field, value, high));
}

}  // namespace

base::Result<> validate(const SamplingParams& params, std::size_t vocab_size) {
  if (!in_range(params.temperature, 2.0f)) return out_of_range("temperature", params.temperature, 2.0f);
  if (!in_range(params.top_p, 1.0f)) return out_of_range("top_p", params.top_p, 1.0f);
  if (!in_range(params.min_p, 1.0f)) return out_of_range("min_p", params.min_p, 1.0f);
  if (!in_range(params.repetition_penalty, 2.0f)) {
    return out_of_range("repetition_penalty", params.repetition_penalty, 2.0f);
  }
  if (params.top_k > vocab_size) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("top_k is {}, the range is 0..{} (the vocabulary)", params.top_k, vocab_size));
  }
  return {};
}

Sampler::Sampler(const SamplingParams& params, std::size_t vocab_size)
    : params_(params), values_(vocab_size), keys_(vocab_size), seen_at_(vocab_size, 0) {
  ASSERT(vocab_size > 0 && validate(params, vocab_size).has_value(), "vocab_size={}", vocab_size);
}

base::Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                                      std::uint32_t position) {
  ASSERT(logits.size() == values_.size(), "logits={} vocab={}", logits.size(), values_.size());
  if (!all_finite(logits)) {
    return base::fail(base::ErrorCode::kInternal,
                      fmt::format("the model gave a logit that is not a finite number at position {}; check the model "
                                  "file's digest, then report it with the model's name",
                                  position));
  }
  std::copy(logits.begin(), logits.end(), values_.begin());
  if (params_.repetition_penalty != 1.0f) apply_repetition_penalty(history);
  const auto best = std::max_element(values_.begin(), values_.end());  // the first of equals
  if (params_.temperature == 0.0f) return TokenId{static_cast<std::uint32_t>(best - values_.begin())};
  return draw(*best, position);
}

void Sampler::apply_repetition_penalty(std::span<const TokenId> history) {
  constexpr float kMax = std::numeric_limits<float>::max();
  ++call_;
  for (const TokenId id : history) {
    ASSERT(index(id) < values_.size(), "id={} vocab={}", index(id), values_.size());
    if (seen_at_[index(id)] == call_) continue;
    seen_at_[index(id)] = call_;
    float& l = values_[index(id)];
    l = l > 0.0f ? l / params_.repetition_penalty : l * params_.repetition_penalty;
    l = std::clamp(l, -kMax, kMax);
  }
}

// Fills keys_ with the candidates that can matter; returns their number.
std::size_t Sampler::collect_candidates(float logit_max) {
  std::size_t count = 0;
  for (std::size_t id = 0; id < values_.size(); ++id) {
    const float x = (values_[id] - logit_max) / params_.temperature;
    keys_[count] = key_of(x, static_cast<std::uint32_t>(id));
    count += x >= kTailX ? 1 : 0;
  }
  if (params_.top_k == 0 || params_.top_k >= count) return count;
  std::nth_element(keys_.begin(), keys_.begin() + params_.top_k, keys_.begin() + static_cast<std::ptrdiff_t>(count));
  return params_.top_k;
}

TokenId Sampler::draw(float logit_max, std::uint32_t position) {
  const std::size_t candidates_count = collect_candidates(logit_max);
  LazySorted candidates(std::span<std::uint64_t>(keys_).first(candidates_count));
  const std::span<float> sums(values_);  // the values live on in the keys
  const bool top_p_on = params_.top_p < 1.0f;
  float sum = 0.0f, tail_x = kTailX, next_doubling = 2.0f;
  std::size_t count = 0, min_p_count = candidates.size();
  for (; count < candidates.size(); ++count) {
    const float x = x_of(candidates[count]);
    if (x < tail_x) break;
    const float weight = exp_s1(x);
    if (weight < params_.min_p && min_p_count > count) {
      min_p_count = count;
      if (!top_p_on) break;
    }
    sum += weight;
    sums[count] = sum;
    for (; sum >= next_doubling; next_doubling *= 2.0f) tail_x += kTailXPerDoubling;
  }
  const auto begin = sums.begin();
  const auto at = [&](std::size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
  if (top_p_on) {
    const float enough = params_.top_p * sum;
    count = static_cast<std::size_t>(std::lower_bound(begin, at(count), enough) - begin) + 1;
  }
  count = std::min(count, min_p_count);

  const float u = base::philox_uniform(params_.seed, {.position = position, .draw = 0, .choice = params_.choice});
  // u <= 1 - 2^-24, so the rounded product stays below the total and some sum exceeds it.
  const float target = u * sums[count - 1];
  const auto chosen = static_cast<std::size_t>(std::upper_bound(begin, at(count), target) - begin);
  ASSERT(chosen < count, "chosen={} count={}", chosen, count);
  return id_of(candidates[chosen]);
}

}  // namespace llorch::engine::sampling
