#pragma once
// Which steps are replayed as graphs (docs/adr/0023). A step's launches are held back and compared with those of earlier steps,
// bytes of arguments included. A step that has been sent launch by launch kEagerSteps times becomes a graph, and from then
// on an equal step is one launch. So a graph is only ever the very launches it stands for: it cannot be stale, and what a step
// may vary in (rows, grids, addresses) needs no list.
//
// Where several GPUs share a model a step is cut by the sums it takes with the others, and each stretch between two of them is
// to itself what the step of one GPU is (docs/adr/0025). It is compared with stretches in the same place of other steps only.
//
// The layout epoch says when addresses may have come to mean something else: with it all that was kept goes.
// Thread rule: the backend's.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/compute/cuda/graphs/step_record.h"

namespace llorch::engine::compute::cuda {

// Since the backend was made.
struct GraphCounters {
  std::uint64_t made = 0;
  std::uint64_t replayed = 0;  // stretches sent as a graph; without sums a step is one stretch
  std::uint64_t eager = 0;     // held stretches sent launch by launch
  std::uint64_t outdated = 0;  // graphs that ended with their layout
  std::uint64_t evicted = 0;   // graphs that made room for others
  std::uint64_t refused = 0;   // graphs that the machine could not make
  bool operator==(const GraphCounters&) const = default;
};

class StepGraphs {
 public:
  // Steps sent launch by launch before an equal one is worth a graph: one that never comes again costs nothing, and every
  // kernel has run before it is captured.
  static constexpr std::uint32_t kEagerSteps = 2;
  // Steps remembered, or stretches of each place in a step: the same nodes in all. A step is some hundred of them and takes
  // memory of the driver's own reserve.
  static constexpr std::size_t kStepsMax = 32;

  explicit StepGraphs(Driver& driver) : driver_(driver) {}

  // Steps to remember from here on; 0 = none is held. What was kept goes.
  void limit(std::size_t steps_max);
  bool is_on() const { return steps_max_ != 0; }
  void new_epoch() { ++epoch_; }

  // The next stretch sent is a step's first.
  void begin_step() { place_ = 0; }
  // The record being filled.
  StepRecord& record() { return record_; }
  // Sends the record as the step's next stretch, as a graph where there is one or shall be one, and empties it.
  void send() noexcept;
  // Sends it launch by launch and remembers nothing: the step is not what it seemed.
  void send_plainly() noexcept;

  const GraphCounters& counters() const { return counters_; }
  std::size_t kept_count() const;  // stretches

 private:
  struct Stretch {
    std::uint64_t digest = 0;
    StepRecord record;
    std::unique_ptr<Graph> graph;
    std::uint32_t sent = 0;       // launch by launch
    std::uint64_t last_used = 0;  // by the count of sent records
    bool refused = false;
  };
  void drop_outdated();
  Stretch& stretch_of_record();
  void make_graph(Stretch& stretch);

  Driver& driver_;
  std::size_t steps_max_ = kStepsMax;
  std::uint64_t epoch_ = 0;
  std::uint64_t epoch_of_places_ = 0;
  std::uint64_t clock_ = 0;
  StepRecord record_;
  std::size_t place_ = 0;                     // of the record in its step
  std::vector<std::vector<Stretch>> places_;  // what is remembered of each
  GraphCounters counters_;
};

}  // namespace llorch::engine::compute::cuda
