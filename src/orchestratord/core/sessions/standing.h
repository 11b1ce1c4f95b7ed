#pragma once
// The limits of one tenant as they stand: copies of its entries in the two tables, for threads other than the core's.
#include <optional>

#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/core/sessions/throttle.h"

namespace llorch::orchestratord::core::sessions {

struct Standing {
  std::optional<Throttle::Standing> throttle;
  std::optional<QuotaTable::Standing> quota;
};

}  // namespace llorch::orchestratord::core::sessions
