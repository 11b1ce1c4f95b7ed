#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::text {
namespace {

std::vector<std::size_t> borders_of(std::string_view text) {
  std::vector<std::size_t> borders(text.size(), 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::size_t border = borders[i - 1];
    while (border > 0 && text[i] != text[border]) border = borders[border - 1];
    borders[i] = border + (text[i] == text[border] ? 1 : 0);
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stop_strings) {
  for (std::string& text : stop_strings) {
    ASSERT(!text.empty());
    std::vector<std::size_t> borders = borders_of(text);
    patterns_.push_back({std::move(text), std::move(borders)});
  }
}

StopMatcher::Output StopMatcher::push(std::string_view text) {
  if (stopped_) return {"", true};
  std::size_t keep_bytes = 0;  // longest prefix of a stop string that ends the text
  for (const char byte : text) {
    held_ += byte;
    std::size_t stop_bytes = 0;
    keep_bytes = 0;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.fallback[p.matched - 1];
      if (p.text[p.matched] == byte) ++p.matched;
      if (p.matched == p.text.size()) stop_bytes = std::max(stop_bytes, p.matched);
      keep_bytes = std::max(keep_bytes, p.matched);
    }
    if (stop_bytes > 0) {
      stopped_ = true;
      held_.resize(held_.size() - stop_bytes);
      return {std::exchange(held_, {}), true};
    }
  }
  if (text.empty()) return {};
  Output out{held_.substr(0, held_.size() - keep_bytes), false};
  held_.erase(0, out.text.size());
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace llorch::text
