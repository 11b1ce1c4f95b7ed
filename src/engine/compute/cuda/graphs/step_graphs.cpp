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
  places_.clear();
}

std::size_t StepGraphs::kept_count() const {
  std::size_t count = 0;
  for (const std::vector<Stretch>& place : places_) count += place.size();
  return count;
}

void StepGraphs::send() noexcept {
  if (record_.empty()) return;
  drop_outdated();
  Stretch& stretch = stretch_of_record();
  ++place_;
  stretch.last_used = ++clock_;
  if (stretch.graph == nullptr && !stretch.refused && stretch.sent >= kEagerSteps) make_graph(stretch);
  if (stretch.graph != nullptr) {
    driver_.launch(*stretch.graph);
    ++counters_.replayed;
    record_.clear();
    return;
  }
  ++stretch.sent;
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
  if (epoch_of_places_ == epoch_) return;
  epoch_of_places_ = epoch_;
  for (const std::vector<Stretch>& place : places_)
    counters_.outdated += static_cast<std::uint64_t>(
        std::ranges::count_if(place, [](const Stretch& stretch) { return stretch.graph != nullptr; }));
  places_.clear();
}

// The remembered stretch that equals the record; a new one where there is none, in the place of the one unused for longest.
StepGraphs::Stretch& StepGraphs::stretch_of_record() {
  if (places_.size() <= place_) places_.resize(place_ + 1);
  std::vector<Stretch>& place = places_[place_];
  const std::uint64_t digest = record_.digest();
  for (Stretch& stretch : place)
    if (stretch.digest == digest && stretch.record == record_) return stretch;
  if (place.size() < steps_max_) {
    place.emplace_back();
  } else {
    std::ranges::iter_swap(std::ranges::min_element(place, {}, &Stretch::last_used), place.end() - 1);
  }
  Stretch& stretch = place.back();
  if (stretch.graph != nullptr) ++counters_.evicted;
  StepRecord memory = std::move(stretch.record);  // its room serves again
  stretch = {};
  stretch.record = std::move(memory);
  stretch.record = record_;
  stretch.digest = digest;
  return stretch;
}

void StepGraphs::make_graph(Stretch& stretch) {
  std::vector<Launch> launches(stretch.record.size());
  for (std::size_t i = 0; i < launches.size(); ++i) launches[i] = stretch.record.launch(i);
  stretch.graph = driver_.make_graph(launches);
  if (stretch.graph != nullptr) {
    ++counters_.made;
    return;
  }
  stretch.refused = true;
  if (++counters_.refused > 1) return;
  base::log_event(base::LogLevel::kWarn, "engine.graph_refused", {},
                  "the device could not make a graph of a step; its kernels are launched one by one",
                  {{"launches", launches.size()}});
}

}  // namespace llorch::engine::compute::cuda
