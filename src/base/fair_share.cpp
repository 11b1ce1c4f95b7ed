#include "base/fair_share.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace llorch::base {

std::int64_t fair_share(std::span<const std::int64_t> held, std::int64_t most) {
  std::vector<std::int64_t> rising(held.begin(), held.end());
  std::ranges::sort(rising);
  std::int64_t left = most;
  for (std::size_t i = 0; i < rising.size(); ++i) {
    const std::int64_t share = left / static_cast<std::int64_t>(rising.size() - i);
    if (rising[i] > share) return share;
    left -= rising[i];
  }
  return std::numeric_limits<std::int64_t>::max();
}

}  // namespace llorch::base
