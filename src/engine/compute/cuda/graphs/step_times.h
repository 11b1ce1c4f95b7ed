#pragma once
// What steps take on the device. Marks lie in the stream that computes and are read many steps later, when they have long been passed:
// measuring enqueues no work, on this stream or another, and nobody waits for it in a step.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/compute/cuda/driver.h"

namespace llorch::engine::compute::cuda {

class StepTimes {
 public:
  struct Sum {
    std::uint64_t steps = 0;
    double seconds = 0;
  };
  explicit StepTimes(Driver& driver) : driver_(driver) {
    for (Marks& marks : pending_) marks = {driver.make_timed_event(), driver.make_timed_event()};
  }

  // Around what a step enqueues. A step that has begun is not begun again.
  void begin() {
    if (std::exchange(begun_, true)) return;
    if (ended_ - read_ == pending_.size()) read_oldest();
    driver_.record(*pending_[ended_ % pending_.size()].begin);
  }
  // Of a step that has begun.
  void end() {
    begun_ = false;
    driver_.record(*pending_[ended_++ % pending_.size()].end);
  }
  // Of the steps that have been read since take() was last called: without waiting for the newest few.
  const Sum& so_far() const { return sum_; }
  // Of the steps since the last call. Waits for the last of them.
  Sum take() {
    while (read_ != ended_) read_oldest();
    return std::exchange(sum_, {});
  }

 private:
  struct Marks {
    std::unique_ptr<Event> begin, end;
  };
  void read_oldest() {
    const Marks& marks = pending_[read_++ % pending_.size()];
    driver_.wait(*marks.begin);
    driver_.wait(*marks.end);
    ++sum_.steps;
    sum_.seconds += driver_.seconds_between(*marks.begin, *marks.end);
  }

  Driver& driver_;
  std::array<Marks, 8> pending_;
  bool begun_ = false;
  std::uint64_t ended_ = 0, read_ = 0;
  Sum sum_;
};

}  // namespace llorch::engine::compute::cuda
