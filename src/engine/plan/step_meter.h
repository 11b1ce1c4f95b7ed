#pragma once
// What the steps of a device are made of, for whoever watches it run. Nothing is counted unless somebody asked for it.
#include <cstdint>

namespace llorch::engine::plan {

// Since the device was opened.
struct StepMeasures {
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;      // of those steps; a row is one token of one sequence
  std::uint64_t launches = 0;  // of kernels, in a graph or by themselves
  std::uint64_t graphs_made = 0;
  std::uint64_t graphs_replayed = 0;  // stretches of steps sent as a graph; of one device a step is one stretch
  std::uint64_t graphs_missed = 0;    // that could have been one, and were sent kernel by kernel
  std::uint64_t graphs_dropped = 0;   // outdated, or to make room
  std::uint64_t graphs_refused = 0;   // that the machine could not make
  std::uint64_t steps_timed = 0;      // the newest few are not in yet: nobody waits for a time
  double seconds = 0;                 // of these on the device
};

// Thread rule: the backend's, between steps.
class StepMeter {
 public:
  virtual ~StepMeter() = default;
  virtual StepMeasures measures() const = 0;
};

}  // namespace llorch::engine::plan
