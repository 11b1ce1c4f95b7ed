#include "worker/embedding/vector_text.h"

#include <cmath>
#include <vector>

#include "base/base64.h"

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

}  // namespace llorch::worker::embedding
