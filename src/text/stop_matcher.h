#pragma once
// Finds stop strings in a stream of text and holds back what may still become one.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::text {

// The first match to end wins; of those that end on one byte, the longest. So the result is a function of the text and
// never of how it was cut into pieces. O(1) amortised per byte and stop string (Knuth, Morris, Pratt, 1977).
// Not thread-safe.
class StopMatcher {
 public:
  // REQUIRES no empty string.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  struct Output {
    std::string text;  // what is certain not to belong to a stop string
    bool stopped = false;
  };
  // After a stop everything is swallowed.
  Output push(std::string_view text);
  // What is still held back; empty after a stop.
  std::string finish();

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: longest proper border of the first i+1 bytes
    std::size_t matched = 0;            // longest prefix that ends the input so far
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace llorch::text
