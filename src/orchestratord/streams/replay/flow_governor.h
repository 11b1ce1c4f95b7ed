#pragma once
// Chooses the jobs whose workers pause when all streams together hold more than stream.buffer_bytes_max: those of the tenants
// that hold more than their share, and past three times that those of everybody. Of a tenant the newest go first, and its oldest goes
// on up to twice that limit, so that no tenant waits for another one's job. The oldest job of all never pauses, so that some job
// always ends and frees what it holds. Past twice the limit a job that was paused for long ends. Pure, not thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace llorch::orchestratord::streams {

class FlowGovernor {
 public:
  // `patience_ms`: how long a job stays paused past bytes_hard().
  FlowGovernor(std::int64_t bytes_max, std::int64_t patience_ms) : bytes_max_(bytes_max), patience_ms_(patience_ms) {}

  // `order` grows with the age of the job: the smaller, the older. `tenant` is an index. REQUIRES not added before.
  void add(std::uint64_t order, std::size_t tenant) { running_[order] = {.tenant = tenant}; }
  void remove(std::uint64_t order) {
    running_.erase(order);
    paused_.erase(order);
    if (ending_ == order) ending_.reset();
  }

  // At most one change per call; call it whenever what is held changes and from time to time. `held`: by tenant.
  struct Change {
    std::optional<std::uint64_t> pause;
    std::optional<std::uint64_t> resume;
    std::optional<std::uint64_t> end{};  // one at a time: the next once this one was removed
  };
  Change update(std::span<const std::int64_t> held, std::int64_t now_ms);
  std::size_t paused_count() const { return paused_.size(); }

  // Who has a paused job goes on below it: at the limit itself a stream would flap.
  std::int64_t bytes_low() const { return bytes_max_ - bytes_max_ / 8; }
  // Past it no stream grows but that of the oldest job, and those of tenants within their share.
  std::int64_t bytes_hard() const { return 2 * bytes_max_; }
  // Past it no stream grows but that of the oldest job. Those within their share hold bytes_max together, so few get here: a tenant's
  // share was larger before others came.
  std::int64_t bytes_full() const { return 3 * bytes_max_; }

 private:
  struct Job {
    std::size_t tenant = 0;
    std::int64_t paused_at_ms = 0;
  };
  using Jobs = std::map<std::uint64_t, Job>;  // by order
  // Moves it; answers its order.
  static std::uint64_t take(Jobs& from, Jobs::iterator job, Jobs& to);

  std::vector<std::uint64_t> oldest_by_tenant(std::size_t tenants) const;
  std::optional<std::uint64_t> to_end(std::span<const std::int64_t> held, std::int64_t now_ms) const;

  std::int64_t bytes_max_, patience_ms_;
  Jobs running_, paused_;
  std::optional<std::int64_t> hard_since_ms_;
  std::optional<std::uint64_t> ending_;
};

}  // namespace llorch::orchestratord::streams
