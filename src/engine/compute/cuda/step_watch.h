#pragma once
// Counts and times the steps of a CUDA device for as long as it lives; it ends before the device.
#include "engine/compute/cuda/device.h"
#include "engine/plan/step_meter.h"

namespace llorch::engine::compute::cuda {

class StepWatch final : public plan::StepMeter {
 public:
  explicit StepWatch(CudaBackend& backend) : backend_(backend) {
    backend_.count_launches(&launches_);
    backend_.time_steps(true);
  }
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  ~StepWatch() override {
    backend_.count_launches(nullptr);
    backend_.time_steps(false);
  }

  plan::StepMeasures measures() const override {
    const GraphCounters& graphs = backend_.graphs().counters();
    const StepTimes::Sum times = backend_.step_times_so_far();
    return {.steps = launches_.steps,
            .rows = launches_.rows,
            .launches = launches_.total,
            .graphs_made = graphs.made,
            .graphs_replayed = graphs.replayed,
            .graphs_missed = graphs.eager,
            .graphs_dropped = graphs.outdated + graphs.evicted,
            .graphs_refused = graphs.refused,
            .steps_timed = times.steps,
            .seconds = times.seconds};
  }

 private:
  CudaBackend& backend_;
  LaunchCounters launches_;
};

}  // namespace llorch::engine::compute::cuda
