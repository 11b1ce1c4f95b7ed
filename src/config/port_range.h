#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llorch::config {

// TCP ports, both ends included.
struct PortRange {
  std::uint16_t first = 0, last = 0;
};

// Of FIRST-LAST. Absent: it is none, or has port 0.
inline std::optional<PortRange> parse_port_range(std::string_view text) {
  PortRange out;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, out.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto last = std::from_chars(first.ptr + 1, end, out.last);
  if (last.ec != std::errc() || last.ptr != end || out.first == 0 || out.last < out.first) return std::nullopt;
  return out;
}

}  // namespace llorch::config
