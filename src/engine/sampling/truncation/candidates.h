#pragma once
// The tokens that may still be drawn, in the order (x desc, id asc), sorted only as far as somebody reads.
//
// Every cut leaves a contiguous range of that order. x = scaled logit minus the largest one, so x <= 0; the weight of a
// candidate is exp_s1(x). "The walk" adds weights in order, one f32 addition per candidate, from the first of the range;
// it may stop at a candidate that leaves the sum as it is, since every later one would too.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace llorch::engine::sampling::truncation {

class Candidates {
 public:
  // Allocates for `size_max` candidates; nothing else here allocates.
  explicit Candidates(std::size_t size_max);

  // Starts over with the ids whose x = (l - l_max) / divisor is at least x_min. REQUIRES l.size() == size_max, l_max
  // finite and in l, divisor > 0, x_min <= 0.
  struct Scale {
    float l_max = 0, divisor = 1, x_min = 0;
  };
  void collect(std::span<const float> l, const Scale& scale);

  std::size_t count() const { return end_ - begin_; }  // at least 1 after collect
  // Of the i-th candidate. REQUIRES i < count().
  float x(std::size_t i);
  float weight(std::size_t i);
  base::TokenId id(std::size_t i);

  // Keeps the first n without sorting. REQUIRES 1 <= n <= count().
  void keep_first(std::size_t n);
  void drop_first(std::size_t n);  // REQUIRES n < count()
  // How many have x >= x_min; does not sort.
  std::size_t count_from(float x_min) const;
  // From here on weight(i) = exp_s1((x(i) - x(0)) / divisor).
  void rescale(float divisor);

  // The walk's sum of all weights.
  float total();
  // The walk's sum of w(i) * ln w(i) over the candidates that change total(): at most 0.
  float total_wx();
  // The shortest prefix whose sum reaches `enough`. REQUIRES enough <= total().
  std::size_t prefix_reaching(float enough);
  // The first candidate whose running sum exceeds `target`. REQUIRES target < total().
  std::size_t first_exceeding(float target);

 private:
  void sort_to(std::size_t position);
  float scaled_x(std::size_t i);
  void restart_walk();

  std::vector<std::uint64_t> keys_;  // plan::candidate_key; [begin_, sorted_) ascending and below the rest
  std::vector<float> sums_;          // running sums at [begin_, walked_)
  std::size_t begin_ = 0, end_ = 0, sorted_ = 0;
  std::size_t walked_ = 0;
  bool settled_ = false;  // the walk has stopped
  float shift_ = 0, divisor_ = 1;
};

}  // namespace llorch::engine::sampling::truncation
