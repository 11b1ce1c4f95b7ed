#include "orchestratord/http/deferred/batch_lines.h"

#include "base/sha256.h"

namespace llorch::orchestratord::http::deferred {

std::optional<std::string> LineSplitter::next(bool last) {
  while (true) {
    const std::size_t end = held_.find('\n', at_);
    if (end == std::string::npos && !(last && at_ < held_.size())) break;
    std::string line = held_.substr(at_, end == std::string::npos ? end : end - at_);
    at_ = end == std::string::npos ? held_.size() : end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return line;
  }
  held_.erase(0, at_);
  at_ = 0;
  return std::nullopt;
}

std::uint64_t seed_of_name(std::string_view name) {
  const base::Sha256Digest digest = base::sha256(name);
  std::uint64_t seed = 0;
  for (std::size_t i = 0; i < sizeof seed; ++i) seed = seed << 8 | static_cast<std::uint8_t>(digest[i]);
  return seed >> 1;
}

}  // namespace llorch::orchestratord::http::deferred
