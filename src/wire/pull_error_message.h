#pragma once
#include <cstddef>
#include <string>

namespace llorch::wire {

inline constexpr std::size_t kPullErrorBytesMax = 4096;

// `message` as PullStatus::error_message may hold it: cut before a character that is not whole within the bound.
inline std::string fitted_pull_error(std::string message) {
  if (message.size() <= kPullErrorBytesMax) return message;
  std::size_t end = kPullErrorBytesMax;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;
  message.resize(end);
  return message;
}

}  // namespace llorch::wire
