#pragma once
// Chooses the jobs whose workers pause when all streams together hold more than stream.buffer_bytes_max: those of the tenants
// that hold more than their share, and past twice that those of everybody. Of a tenant the newest go first, and its oldest goes
// on up to twice that limit, so that no tenant waits for another one's job. The oldest job of all never pauses, so that some job
// always ends and frees what it holds. Pure, not thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace llorch::orchestratord::streams {

class FlowGovernor {
 public:
  explicit FlowGovernor(std::int64_t bytes_max) : bytes_max_(bytes_max) {}

  // `order` grows with the age of the job: the smaller, the older. `tenant` is an index. REQUIRES not added before.
  void add(std::uint64_t order, std::size_t tenant) { running_[order] = tenant; }
  void remove(std::uint64_t order) {
    running_.erase(order);
    paused_.erase(order);
  }

  // At most one change per call; call it whenever what is held changes and from time to time. `held`: by tenant.
  struct Change {
    std::optional<std::uint64_t> pause;
    std::optional<std::uint64_t> resume;
  };
  Change update(std::span<const std::int64_t> held);
  std::size_t paused_count() const { return paused_.size(); }

  // Who has a paused job goes on below it: at the limit itself a stream would flap.
  std::int64_t bytes_low() const { return bytes_max_ - bytes_max_ / 8; }
  // Past it no stream grows but that of the oldest job. Those that have ended stay within their tenants' shares, so all together
  // hold no more than bytes_max above it, and what the oldest job adds.
  std::int64_t bytes_hard() const { return 2 * bytes_max_; }

 private:
  using Jobs = std::map<std::uint64_t, std::size_t>;  // tenants by order
  // Moves it; answers its order.
  static std::uint64_t take(Jobs& from, Jobs::iterator job, Jobs& to);

  std::vector<std::uint64_t> oldest_by_tenant(std::size_t tenants) const;

  std::int64_t bytes_max_;
  Jobs running_, paused_;
};

}  // namespace llorch::orchestratord::streams
