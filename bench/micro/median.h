#pragma once
#include <algorithm>
#include <vector>

namespace llorch::bench {

// The middle one, of an even number the greater of the two. REQUIRES: one at least.
inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace llorch::bench
