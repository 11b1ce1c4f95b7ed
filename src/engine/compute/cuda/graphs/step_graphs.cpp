#include "engine/compute/cuda/graphs/step_graphs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>

#include "base/log.h"

namespace llorch::engine::compute::cuda {
namespace {

using kernels::AllKernels;

using SameFn = bool (*)(const void*, const void*);

template <class Args>
bool same_values(const void* a, const void* b) {
  if (std::memcmp(a, b, sizeof(Args)) == 0) return true;
  // An Args without == has members only.
  if constexpr (std::equality_comparable<Args>) return *static_cast<const Args*>(a) == *static_cast<const Args*>(b);
  return false;
}

const std::array<SameFn, AllKernels::kCount>& same_args() {
  static const auto table =
      AllKernels::table<SameFn>([]<class Kernel>() -> SameFn { return same_values<typename Kernel::Args>; });
  return table;
}

}  // namespace

std::uint64_t StepRecord::digest() const {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  std::uint64_t digest = launches_.size();
  for (const Held& held : launches_)
    for (const std::uint32_t word : {held.kernel, held.x, held.y, held.z})
      digest = std::rotl((digest ^ word) * kOdd, 29);
  return digest;
}

bool StepRecord::operator==(const StepRecord& other) const {
  return std::ranges::equal(launches_, other.launches_, [&](const Held& a, const Held& b) {
    return a.kernel == b.kernel && a.x == b.x && a.y == b.y && a.z == b.z &&
           same_args()[a.kernel](bytes_.data() + a.args_at, other.bytes_.data() + b.args_at);
  });
}

void StepGraphs::limit(std::size_t steps_max) {
  steps_max_ = steps_max;
  steps_.clear();
}

void StepGraphs::send() noexcept {
  if (record_.empty()) return;
  drop_outdated();
  Step& step = step_of_record();
  step.last_used = ++clock_;
  if (step.graph == nullptr && !step.refused && step.sent >= kEagerSteps) make_graph(step);
  if (step.graph != nullptr) {
    driver_.launch(*step.graph);
    ++counters_.replayed;
    record_.clear();
    return;
  }
  ++step.sent;
  send_plainly();
}

void StepGraphs::send_plainly() noexcept {
  if (record_.empty()) return;
  for (std::size_t i = 0; i < record_.size(); ++i) {
    const Launch launch = record_.launch(i);
    driver_.launch(launch.kernel, launch.grid, launch.args.data());
  }
  ++counters_.eager;
  record_.clear();
}

void StepGraphs::drop_outdated() {
  if (epoch_of_steps_ == epoch_) return;
  epoch_of_steps_ = epoch_;
  counters_.outdated +=
      static_cast<std::uint64_t>(std::ranges::count_if(steps_, [](const Step& step) { return step.graph != nullptr; }));
  steps_.clear();
}

// The remembered step that equals the record; a new one where there is none, in the place of the one unused for longest.
StepGraphs::Step& StepGraphs::step_of_record() {
  const std::uint64_t digest = record_.digest();
  for (Step& step : steps_)
    if (step.digest == digest && step.record == record_) return step;
  if (steps_.size() < steps_max_) {
    steps_.emplace_back();
  } else {
    std::ranges::iter_swap(std::ranges::min_element(steps_, {}, &Step::last_used), steps_.end() - 1);
  }
  Step& step = steps_.back();
  if (step.graph != nullptr) ++counters_.evicted;
  StepRecord memory = std::move(step.record);  // its room serves again
  step = {};
  step.record = std::move(memory);
  step.record = record_;
  step.digest = digest;
  return step;
}

void StepGraphs::make_graph(Step& step) {
  std::vector<Launch> launches(step.record.size());
  for (std::size_t i = 0; i < launches.size(); ++i) launches[i] = step.record.launch(i);
  step.graph = driver_.make_graph(launches);
  if (step.graph != nullptr) {
    ++counters_.made;
    return;
  }
  step.refused = true;
  ++counters_.refused;
  base::log_event(base::LogLevel::kWarn, "engine.graph_refused", {},
                  "the device could not make a graph of a step; its kernels are launched one by one",
                  {{"launches", launches.size()}});
}

}  // namespace llorch::engine::compute::cuda
