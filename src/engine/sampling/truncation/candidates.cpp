#include "engine/sampling/truncation/candidates.h"

#include <algorithm>

#include "base/assert.h"
#include "engine/plan/draw_math.h"
#include "engine/sampling/math/exp.h"

namespace llorch::engine::sampling::truncation {
namespace {

using plan::candidate_index;
using plan::candidate_key;
using plan::candidate_x;

// Blocks double: most draws end within the first.
constexpr std::size_t kFirstBlock = 256;

}  // namespace

Candidates::Candidates(std::size_t size_max) : keys_(size_max), sums_(size_max) {}

void Candidates::collect(std::span<const float> l, const Scale& scale) {
  ASSERT(l.size() == keys_.size(), "row={} size_max={}", l.size(), keys_.size());
  std::size_t count = 0;
  for (std::size_t id = 0; id < l.size(); ++id) {
    const float x = (l[id] - scale.l_max) / scale.divisor;
    keys_[count] = candidate_key(x, static_cast<std::uint32_t>(id));
    count += x >= scale.x_min ? 1 : 0;
  }
  ASSERT(count > 0);
  begin_ = sorted_ = 0;
  end_ = count;
  shift_ = 0.0f;
  divisor_ = 1.0f;
  restart_walk();
}

void Candidates::restart_walk() {
  walked_ = begin_;
  settled_ = false;
}

void Candidates::sort_to(std::size_t position) {
  const auto at = [&](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
  while (position >= sorted_) {
    const std::size_t block_end = std::min(end_, sorted_ + std::max(sorted_, kFirstBlock));
    if (block_end < end_) std::nth_element(at(sorted_), at(block_end), at(end_));
    std::sort(at(sorted_), at(block_end));
    sorted_ = block_end;
  }
}

float Candidates::x(std::size_t i) {
  sort_to(begin_ + i);
  return candidate_x(keys_[begin_ + i]);
}

float Candidates::scaled_x(std::size_t i) { return (x(i) - shift_) / divisor_; }

float Candidates::weight(std::size_t i) { return math::exp_s1(scaled_x(i)); }

base::TokenId Candidates::id(std::size_t i) {
  sort_to(begin_ + i);
  return base::TokenId{candidate_index(keys_[begin_ + i])};
}

void Candidates::keep_first(std::size_t n) {
  const std::size_t new_end = begin_ + n;
  ASSERT(n >= 1 && new_end <= end_, "n={} count={}", n, count());
  if (new_end > sorted_ && new_end < end_) {
    const auto at = [&](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
    std::nth_element(at(sorted_), at(new_end), at(end_));
  }
  end_ = new_end;
  sorted_ = std::min(sorted_, end_);
  walked_ = std::min(walked_, end_);
}

void Candidates::drop_first(std::size_t n) {
  if (n == 0) return;
  ASSERT(n < count(), "n={} count={}", n, count());
  sort_to(begin_ + n);
  begin_ += n;
  restart_walk();
}

std::size_t Candidates::count_from(float x_min) const {
  const auto kept = std::span(keys_).subspan(begin_, count());
  return static_cast<std::size_t>(
      std::count_if(kept.begin(), kept.end(), [&](std::uint64_t key) { return candidate_x(key) >= x_min; }));
}

void Candidates::rescale(float divisor) {
  shift_ = x(0);
  divisor_ = divisor;
  restart_walk();
}

float Candidates::total() {
  float sum = walked_ > begin_ ? sums_[walked_ - 1] : 0.0f;
  while (walked_ < end_ && !settled_) {
    const float next = sum + weight(walked_ - begin_);
    if (next == sum && walked_ > begin_) {
      settled_ = true;
    } else {
      sums_[walked_++] = sum = next;
    }
  }
  return sum;
}

float Candidates::total_wx() {
  total();
  float sum = 0.0f;
  for (std::size_t i = 0; i < walked_ - begin_; ++i) {
    const float w = weight(i);
    sum += w > 0.0f ? w * scaled_x(i) : 0.0f;
  }
  return sum;
}

std::size_t Candidates::prefix_reaching(float enough) {
  total();
  const auto first = sums_.begin() + static_cast<std::ptrdiff_t>(begin_);
  const auto last = sums_.begin() + static_cast<std::ptrdiff_t>(walked_);
  const auto n = static_cast<std::size_t>(std::lower_bound(first, last, enough) - first) + 1;
  ASSERT(n <= count(), "enough={} total={}", enough, total());
  return n;
}

std::size_t Candidates::first_exceeding(float target) {
  total();
  const auto first = sums_.begin() + static_cast<std::ptrdiff_t>(begin_);
  const auto last = sums_.begin() + static_cast<std::ptrdiff_t>(walked_);
  const auto i = static_cast<std::size_t>(std::upper_bound(first, last, target) - first);
  ASSERT(begin_ + i < walked_, "target={} total={}", target, total());
  return i;
}

}  // namespace llorch::engine::sampling::truncation
