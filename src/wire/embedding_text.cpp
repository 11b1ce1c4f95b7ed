#include "wire/embedding_text.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/base64.h"

namespace llorch::wire {

bool is_vector(std::string_view text) {
  const auto bytes = base::base64_decode(text);
  if (!bytes || bytes->empty() || bytes->size() % sizeof(float) != 0) return false;
  for (std::size_t at = 0; at < bytes->size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes->data() + at, sizeof value);
    if (!std::isfinite(value)) return false;
  }
  return true;
}

std::optional<double> read_score(std::string_view text) {
  double score = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, score);
  if (error != std::errc() || end != last || !(score >= 0 && score <= 1)) return std::nullopt;
  // JSON has fewer numbers than from_chars: no ".5", no "00".
  boost::json::error_code ec;
  const boost::json::value value = boost::json::parse({text.data(), text.size()}, ec);
  return !ec && value.is_number() ? std::optional(score) : std::nullopt;
}

}  // namespace llorch::wire
