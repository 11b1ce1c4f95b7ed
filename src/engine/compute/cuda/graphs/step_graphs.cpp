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

void StepGraphs::limit(const GraphLimits& limits) {
  limits_ = limits;
  forget_all();
}

std::size_t StepGraphs::kept_count() const {
  std::size_t count = 0;
  for (const Place& place : places_) count += place.size();
  return count;
}

void StepGraphs::forget_all() {
  with_graph_.clear();
  places_.clear();
  graphs_bytes_ = 0;
}

void StepGraphs::send() noexcept {
  if (record_.empty()) return;
  drop_outdated();
  Stretch& stretch = stretch_of_record();
  ++place_;
  stretch.last_used = ++clock_;
  if (stretch.sent++ == 0) stretch.came = clock_;
  if (stretch.graph == nullptr && !stretch.refused && stretch.sent > kEagerSteps) make_graph(stretch);
  if (stretch.graph != nullptr) {
    driver_.launch(*stretch.graph);
    with_graph_.splice(with_graph_.end(), with_graph_, stretch.place);
    ++counters_.replayed;
    record_.clear();
    return;
  }
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
  counters_.outdated += with_graph_.size();
  forget_all();
}

// The remembered stretch that equals the record; a new one where there is none, in the place of the one unused for longest.
StepGraphs::Stretch& StepGraphs::stretch_of_record() {
  if (places_.size() <= place_) places_.resize(place_ + 1);
  Place& place = places_[place_];
  const std::uint64_t digest = record_.digest();
  for (const std::unique_ptr<Stretch>& stretch : place)
    if (stretch->digest == digest && stretch->record == record_) return *stretch;
  if (place.size() < limits_.steps_max) place.push_back(std::make_unique<Stretch>());
  // A new one was never used.
  Stretch& stretch = **std::ranges::min_element(place, {}, [](const auto& one) { return one->last_used; });
  if (stretch.graph != nullptr) drop_graph(stretch);
  StepRecord memory = std::move(stretch.record);  // its room serves again
  stretch = {};
  stretch.record = std::move(memory);
  stretch.record = record_;
  stretch.digest = digest;
  return stretch;
}

bool StepGraphs::make_room(std::uint64_t bytes, const Stretch& newcomer) {
  while (graphs_bytes_ + bytes > limits_.bytes_max) {
    if (with_graph_.empty() || with_graph_.front()->last_used >= newcomer.came) return false;
    drop_graph(*with_graph_.front());
  }
  return true;
}

void StepGraphs::make_graph(Stretch& stretch) {
  const std::uint64_t bytes = graph_bytes(stretch.record.size());
  if (!make_room(bytes, stretch)) {
    stretch.sent = 1;  // it may come again later, and is then newer
    stretch.came = clock_;
    return;
  }
  std::vector<Launch> launches(stretch.record.size());
  for (std::size_t i = 0; i < launches.size(); ++i) launches[i] = stretch.record.launch(i);
  stretch.graph = driver_.make_graph(launches);
  if (stretch.graph != nullptr) {
    stretch.place = with_graph_.insert(with_graph_.end(), &stretch);
    graphs_bytes_ += bytes;
    ++counters_.made;
    return;
  }
  stretch.refused = true;
  if (++counters_.refused > 1) return;
  base::log_event(base::LogLevel::kWarn, "engine.graph_refused", {},
                  "The device could not make a graph of a step; its kernels are launched one by one.",
                  {{"launches", launches.size()}});
}

// It makes room, and becomes a graph again as it became one.
void StepGraphs::drop_graph(Stretch& stretch) {
  with_graph_.erase(stretch.place);
  graphs_bytes_ -= graph_bytes(stretch.record.size());
  stretch.graph.reset();
  stretch.sent = 0;
  ++counters_.evicted;
}

}  // namespace llorch::engine::compute::cuda
