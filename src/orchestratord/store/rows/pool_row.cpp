#include "orchestratord/state_store/rows/pool_row.h"

#include "contract/json.h"

namespace llorch::orchestratord::state_store {

std::optional<std::string> orders_column(const contract::PoolOrders& orders) {
  if (orders.unreadable) return orders.unreadable;
  if (!orders.reload && orders.purged.empty()) return std::nullopt;
  return contract::encode(orders);
}

contract::PoolOrders read_orders(bool draining, const std::optional<std::string>& orders) {
  contract::PoolOrders out;
  if (orders) {
    if (auto read = contract::decode<contract::PoolOrders>(*orders)) {
      out = std::move(*read);
    } else {
      out.unreadable = orders;
    }
  }
  out.draining = draining;
  return out;
}

}  // namespace llorch::orchestratord::state_store
