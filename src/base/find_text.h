#pragma once
#include <cstring>
#include <string_view>

namespace llorch::base {

// Where `wanted` begins at or behind `from` in `text`, or npos. Linear in both where string_view::find is not: a text may begin like
// the wanted one everywhere.
inline std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from = 0) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace llorch::base
