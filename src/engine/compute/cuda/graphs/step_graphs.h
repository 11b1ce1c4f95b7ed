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
//
// Graphs take device memory that no ledger sees, so what they are taken to take is bounded too. Where there is no room, the graph
// unused for longest goes, but only if it was last used before the newcomer first came: of stretches that come in turn and do not
// all fit some stay graphs, and none is made again and again.
// Thread rule: the backend's.
#include <cstddef>
#include <cstdint>
#include <list>
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
  std::uint64_t evicted = 0;   // graphs that made room, for other graphs or other stretches
  std::uint64_t refused = 0;   // graphs that the machine could not make
  bool operator==(const GraphCounters&) const = default;
};

// Device memory that a graph of so many launches is taken to take: 10 KiB a kernel, which is what others found
// (NVIDIA/cccl#3768), and as much again as an allocation of the driver may round up to. No GPU has been asked.
constexpr std::uint64_t graph_bytes(std::size_t launches) { return (64u << 10) + launches * (10u << 10); }

struct GraphLimits {
  // Steps remembered, or stretches of each place in a step; 0 = none is held.
  std::size_t steps_max = 32;
  // Of all graphs that are there, by graph_bytes(): half of what the driver is left for its own needs (runtime/driver.cpp). 32 steps
  // of 416 launches on one GPU take 132 MiB; cut by 64 sums a step takes 8 MiB, and 31 of them fit.
  std::uint64_t bytes_max = 256u << 20;
};

class StepGraphs {
 public:
  // Steps sent launch by launch before an equal one is worth a graph: one that never comes again costs nothing, and every
  // kernel has run before it is captured.
  static constexpr std::uint32_t kEagerSteps = 2;

  explicit StepGraphs(Driver& driver) : driver_(driver) {}

  // From here on. What was kept goes.
  void limit(const GraphLimits& limits);
  bool is_on() const { return limits_.steps_max != 0; }
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
  std::size_t kept_count() const;                                  // stretches
  std::size_t graphs_count() const { return with_graph_.size(); }  // of them
  std::uint64_t graphs_bytes() const { return graphs_bytes_; }     // by graph_bytes()

 private:
  struct Stretch {
    std::uint64_t digest = 0;
    StepRecord record;
    std::unique_ptr<Graph> graph;
    std::list<Stretch*>::iterator place;  // in with_graph_, while there is a graph
    std::uint32_t sent = 0;               // since it came, or last gave way
    std::uint64_t came = 0;               // both by the count of sent records
    std::uint64_t last_used = 0;
    bool refused = false;
  };
  void forget_all();
  void drop_outdated();
  Stretch& stretch_of_record();
  bool make_room(std::uint64_t bytes, const Stretch& newcomer);
  void make_graph(Stretch& stretch);
  void drop_graph(Stretch& stretch);

  Driver& driver_;
  GraphLimits limits_;
  std::uint64_t epoch_ = 0;
  std::uint64_t epoch_of_places_ = 0;
  std::uint64_t clock_ = 0;
  StepRecord record_;
  std::size_t place_ = 0;  // of the record in its step
  using Place = std::vector<std::unique_ptr<Stretch>>;
  std::vector<Place> places_;       // what is remembered of each
  std::list<Stretch*> with_graph_;  // the one unused for longest first
  std::uint64_t graphs_bytes_ = 0;
  GraphCounters counters_;
};

}  // namespace llorch::engine::compute::cuda
