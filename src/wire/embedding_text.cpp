#include "wire/embedding_text.h"

#include <boost/json.hpp>
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

bool is_score(std::string_view text) {
  boost::json::error_code ec;
  const boost::json::value value = boost::json::parse({text.data(), text.size()}, ec);
  if (ec || !value.is_number()) return false;
  const double score = value.to_number<double>();
  return score >= 0 && score <= 1;
}

}  // namespace llorch::wire
