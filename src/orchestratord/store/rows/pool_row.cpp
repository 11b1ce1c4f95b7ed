#include "orchestratord/store/rows/pool_row.h"

#include "wire/json.h"

namespace llorch::orchestratord::store {

std::optional<std::string> orders_column(const wire::PoolOrders& orders) {
  if (orders.unreadable) return orders.unreadable;
  if (!orders.reload && orders.purged.empty()) return std::nullopt;
  return wire::encode(orders);
}

wire::PoolOrders read_orders(bool draining, const std::optional<std::string>& orders) {
  wire::PoolOrders out;
  if (orders) {
    if (auto read = wire::decode<wire::PoolOrders>(*orders)) {
      out = std::move(*read);
    } else {
      out.unreadable = orders;
    }
  }
  out.draining = draining;
  return out;
}

}  // namespace llorch::orchestratord::store
