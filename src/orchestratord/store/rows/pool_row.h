#pragma once
// What an operator asked of a pool, as the columns `draining` and `orders` of its row.
#include <optional>
#include <string>

#include "wire/pool_control.h"

namespace llorch::orchestratord::store {

// Absent: nothing but, perhaps, a drain.
std::optional<std::string> orders_column(const wire::PoolOrders& orders);
// One pool's row that cannot be read is that pool's matter: `unreadable` says so.
wire::PoolOrders read_orders(bool draining, const std::optional<std::string>& orders);

}  // namespace llorch::orchestratord::store
