#include "worker/embedding/vector_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/assert.h"
#include "base/base64.h"
#include "engine/models/portable_math.h"

namespace llorch::worker::embedding {

base::Result<std::string> vector_text(std::span<const float> row, std::optional<std::int64_t> dimensions) {
  if (dimensions) row = row.first(static_cast<std::size_t>(*dimensions));
  double squares = 0;
  for (const float x : row) squares += double{x} * x;
  if (!std::isfinite(squares))
    return base::fail(base::ErrorCode::kInternal, "the model gave a vector with an element that is not finite");
  const double length = squares == 0 ? 1 : std::sqrt(squares);
  std::vector<float> unit;
  unit.reserve(row.size());
  for (const float x : row) unit.push_back(static_cast<float>(x / length));
  return base::base64_encode({reinterpret_cast<const char*>(unit.data()), unit.size() * sizeof(float)});
}

base::Result<std::string> score_text(std::span<const float> row) {
  ASSERT(row.size() == 1 || row.size() == 2, "a score of {} logits", row.size());
  const double logit = row.size() == 1 ? row[0] : double{row[0]} - row[1];
  if (!std::isfinite(logit)) return base::fail(base::ErrorCode::kInternal, "the model gave a score that is not finite");
  const double e = engine::models::portable_exp(-std::min(std::abs(logit), 100.0));  // beyond, 0 or 1 is next
  return fmt::format("{}", static_cast<float>((logit < 0 ? e : 1.0) / (1.0 + e)));
}

}  // namespace llorch::worker::embedding
