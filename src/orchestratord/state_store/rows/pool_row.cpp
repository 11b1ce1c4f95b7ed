#include "orchestratord/state_store/rows/pool_row.h"

#include "orchestratord/state_store/rows/job_row.h"

namespace llorch::orchestratord::state_store {

std::optional<std::string> orders_column(const contract::PoolOrders& orders) {
  if (!orders.reload && orders.purged.empty()) return std::nullopt;
  return contract::encode(orders);
}

base::Result<contract::PoolOrders> read_orders(bool draining, const std::optional<std::string>& orders) {
  contract::PoolOrders out;
  if (orders) {
    auto read = contract::decode<contract::PoolOrders>(*orders);
    if (!read) return base::fail(bad_row("orders"));
    out = std::move(*read);
  }
  out.draining = draining;
  return out;
}

}  // namespace llorch::orchestratord::state_store
