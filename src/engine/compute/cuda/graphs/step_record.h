#pragma once
// The launches of a step, held back: what was launched, on which grid, with which bytes of arguments. Two steps whose records
// are equal are the same work, whatever led to it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/compute/cuda/driver.h"

namespace llorch::engine::compute::cuda {

class StepRecord {
 public:
  template <class Kernel>
  void add(const Grid& grid, const typename Kernel::Args& args) {
    using Args = typename Kernel::Args;
    static_assert(alignof(Args) <= kAlignment);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + (sizeof(Args) + kAlignment - 1) / kAlignment * kAlignment);
    std::memcpy(bytes_.data() + at, &args, sizeof args);
    launches_.push_back({.kernel = static_cast<std::uint32_t>(kernels::kernel_id<Kernel>()),
                         .x = grid.x,
                         .y = grid.y,
                         .z = grid.z,
                         .args_at = static_cast<std::uint32_t>(at),
                         .args_bytes = sizeof(Args)});
  }
  void clear() {
    launches_.clear();
    bytes_.clear();
  }
  bool empty() const { return launches_.empty(); }
  std::size_t size() const { return launches_.size(); }
  // Its arguments stay where they are until the record changes.
  Launch launch(std::size_t i) const {
    const Held& held = launches_[i];
    return {.kernel = static_cast<kernels::KernelId>(held.kernel),
            .grid = {held.x, held.y, held.z},
            .args = {bytes_.data() + held.args_at, held.args_bytes}};
  }

  // Of kernels and grids: equal records have equal digests.
  std::uint64_t digest() const;
  // Kernels, grids and the values of all arguments; what lies between an Args's members is nobody's.
  bool operator==(const StepRecord& other) const;

 private:
  struct Held {
    std::uint32_t kernel, x, y, z, args_at, args_bytes;
  };
  static constexpr std::size_t kAlignment = 16;

  std::vector<Held> launches_;
  std::vector<std::byte> bytes_;  // arguments, each at a multiple of kAlignment, zeros between
};

}  // namespace llorch::engine::compute::cuda
