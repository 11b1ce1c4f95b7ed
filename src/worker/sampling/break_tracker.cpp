#include "worker/sampling/break_tracker.h"

#include <algorithm>

namespace llorch::worker::sampling {

BreakTracker::BreakTracker(std::vector<std::string> breakers) : breakers_(std::move(breakers)) {
  for (const std::string& b : breakers_) reach_ = std::max(reach_, b.size() - 1);
}

bool BreakTracker::push(std::string_view token_bytes) {
  if (token_bytes.empty()) {
    text_.clear();
    return true;
  }
  const std::size_t before = text_.size();
  text_ += token_bytes;
  const bool found = std::any_of(breakers_.begin(), breakers_.end(), [&](const std::string& b) {
    // The first start whose end lies within the new bytes.
    const std::size_t from = before + 1 > b.size() ? before + 1 - b.size() : 0;
    return text_.find(b, from) != std::string::npos;
  });
  if (text_.size() > reach_) text_.erase(0, text_.size() - reach_);
  return found;
}

}  // namespace llorch::worker::sampling
