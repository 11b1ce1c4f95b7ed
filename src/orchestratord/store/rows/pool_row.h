#pragma once
// What an operator asked of a pool, as the columns `draining` and `orders` of its row.
#include <optional>
#include <string>

#include "wire/pool_control.h"

namespace llorch::orchestratord::store {

// Absent: nothing but, perhaps, a drain.
std::optional<std::string> desired_state_column(const wire::PoolDesiredState& desired);
// One pool's row that cannot be read is that pool's matter: `unreadable` says so.
wire::PoolDesiredState read_desired_state(bool draining, const std::optional<std::string>& desired);

}  // namespace llorch::orchestratord::store
