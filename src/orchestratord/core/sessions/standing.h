#pragma once
// What the limits of one tenant say now: copies of its lines in the two tables, for others than the brain to look at.
#include <optional>

#include "orchestratord/sessions/quota.h"
#include "orchestratord/sessions/throttle.h"

namespace llorch::orchestratord::sessions {

struct Standing {
  std::optional<Throttle::Standing> throttle;
  std::optional<QuotaTable::Standing> quota;
};

}  // namespace llorch::orchestratord::sessions
