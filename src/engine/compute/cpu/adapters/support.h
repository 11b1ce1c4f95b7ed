#pragma once
// What the adapters share: workspace carving, projections, load-time checks.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/assert.h"
#include "engine/compute/cpu/device.h"
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

inline const CpuStream& stream_of(const contract::ExecutionContext& ctx) {
  return *static_cast<const CpuStream*>(ctx.stream.ptr);
}

inline const CpuWeight* weight_of(const void* weight) { return static_cast<const CpuWeight*>(weight); }
// Of a slot read element by element; null when it is absent.
inline const float* vector_of(const void* weight) { return weight != nullptr ? weight_of(weight)->vector : nullptr; }

// Carves a workspace into 64-byte aligned arrays. Without memory it only adds up: the same code says how much a run
// needs and hands it out, so the two cannot disagree.
class Carver {
 public:
  Carver() = default;
  explicit Carver(contract::Workspace workspace) : workspace_(workspace) {}

  template <class T>
  T* take(std::size_t count) {
    const std::uint64_t at = used_bytes_;
    used_bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    if (workspace_.ptr == nullptr) return nullptr;
    ASSERT(used_bytes_ <= workspace_.bytes, "workspace of {} bytes, {} needed", workspace_.bytes, used_bytes_);
    return reinterpret_cast<T*>(workspace_.ptr + at);
  }
  // Room for `rows` activation rows as int8 blocks; none when no quantised matrix can have this width.
  QuantisedRows take_quantised(std::size_t rows, std::size_t width) {
    if (width % 32 != 0) return {};
    QuantisedRows out;
    out.q = take<std::int8_t>(rows * width);
    out.scales = take<float>(rows * (width / 32));
    out.sums = take<std::int32_t>(rows * (width / 16));
    out.width = width;
    return out;
  }
  std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  contract::Workspace workspace_;
  std::uint64_t used_bytes_ = 0;
};

// The rows from `row` on.
inline QuantisedRows rows_from(const QuantisedRows& all, std::size_t row) {
  if (all.q == nullptr) return all;
  const std::size_t blocks = all.width / 32;
  return {all.q + row * all.width, all.scales + row * blocks, all.sums + row * 2 * blocks, all.width};
}

// y = x W^T for one weight of several that share x.
struct Projection {
  const CpuWeight* weight = nullptr;
  float* y = nullptr;  // [rows, weight rows], row stride y_stride
};
struct ProjectionInput {
  const float* x = nullptr;  // [rows, width], row stride x_stride
  std::size_t x_stride = 0;
  std::size_t rows = 0;
  QuantisedRows quantised;  // scratch, filled here when a weight needs it
  std::size_t y_stride = 0;
};
// Up to four projections in one parallel region.
void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections);

// The kernels' name of an activation.
Activation kernel_activation(contract::Activation act);

// Load-time checks of every weight against its slot: type, rank and the dimensions the params fix.
// `allowed` lists the slots this adapter reads; a weight in another slot is refused, never ignored.
// Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, UNSUPPORTED_OPCODE.
base::Result<> check_weights(const contract::PrepareArgs& args, std::initializer_list<std::size_t> allowed);

// UNSUPPORTED_OPCODE: "multihead_attention with attention sinks ..." unless `supported`.
base::Result<> require(const contract::PrepareArgs& args, bool supported, std::string_view what);

}  // namespace llorch::engine::compute::cpu::adapters
