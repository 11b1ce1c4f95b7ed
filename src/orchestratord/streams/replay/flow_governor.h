#pragma once
// Chooses the jobs whose workers pause when all streams together hold more than stream.buffer_bytes_max: the newest
// first, never the oldest, so that some job always ends and frees its share. Pure, not thread-safe.
#include <cstdint>
#include <optional>
#include <set>

namespace llorch::orchestratord::streams {

class FlowGovernor {
 public:
  explicit FlowGovernor(std::int64_t bytes_max) : bytes_max_(bytes_max) {}

  // `order` grows with the age of the job: the smaller, the older. REQUIRES not added before.
  void add(std::uint64_t order) { running_.insert(order); }
  void remove(std::uint64_t order) {
    running_.erase(order);
    paused_.erase(order);
  }

  // At most one change per call; call it whenever the total changes and from time to time.
  struct Change {
    std::optional<std::uint64_t> pause;
    std::optional<std::uint64_t> resume;
  };
  Change update(std::int64_t bytes_total);
  std::size_t paused_count() const { return paused_.size(); }

 private:
  std::int64_t bytes_max_;
  std::set<std::uint64_t> running_, paused_;
};

}  // namespace llorch::orchestratord::streams
