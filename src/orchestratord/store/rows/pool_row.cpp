#include "orchestratord/store/rows/pool_row.h"

#include "wire/json.h"

namespace llorch::orchestratord::store {

std::optional<std::string> desired_state_column(const wire::PoolDesiredState& desired) {
  if (desired.unreadable) return desired.unreadable;
  if (!desired.reload && desired.purged.empty()) return std::nullopt;
  return wire::encode(desired);
}

wire::PoolDesiredState read_desired_state(bool draining, const std::optional<std::string>& desired) {
  wire::PoolDesiredState out;
  if (desired) {
    if (auto read = wire::decode<wire::PoolDesiredState>(*desired)) {
      out = std::move(*read);
    } else {
      out.unreadable = desired;
    }
  }
  out.draining = draining;
  return out;
}

}  // namespace llorch::orchestratord::store
