#pragma once
// What the adapters share: workspace carving, grids, projections, load-time checks.
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/assert.h"
#include "engine/compute/cuda/device.h"
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

inline const CudaStream& stream_of(const contract::ExecutionContext& ctx) {
  return *static_cast<const CudaStream*>(ctx.stream.ptr);
}

inline const CudaWeight* weight_of(const void* weight) { return static_cast<const CudaWeight*>(weight); }
// Of a slot read element by element; null when it is absent.
inline const float* vector_of(const void* weight) { return weight != nullptr ? weight_of(weight)->vector : nullptr; }

constexpr std::size_t slot(auto value) { return static_cast<std::size_t>(value); }

// Blocks of `of` that cover `count`.
constexpr std::uint32_t blocks_of(std::uint64_t count, std::uint32_t of) {
  return static_cast<std::uint32_t>((count + of - 1) / of);
}

// Carves a workspace into 64-byte aligned arrays. Without memory it only adds up: the same code says how much a run
// needs and hands it out, so the two cannot disagree.
class Carver {
 public:
  Carver() = default;
  explicit Carver(const contract::Workspace& workspace) : workspace_(workspace) {}

  template <class T>
  T* take(std::uint64_t count) {
    const std::uint64_t at = used_bytes_;
    used_bytes_ += (count * sizeof(T) + 63) / 64 * 64;
    if (workspace_.ptr == nullptr) return nullptr;
    ASSERT(used_bytes_ <= workspace_.bytes, "workspace of {} bytes, {} needed", workspace_.bytes, used_bytes_);
    return reinterpret_cast<T*>(workspace_.ptr + at);
  }
  // Room for `rows` activation rows as int8 blocks; none when no quantised matrix can have this width.
  kernels::QuantisedRows take_quantised(std::uint64_t rows, std::uint32_t width) {
    if (width % kernels::kBlockElements != 0) return {};
    kernels::QuantisedRows out;
    out.q = take<std::int8_t>(rows * width);
    out.scales = take<float>(rows * (width / kernels::kBlockElements));
    out.width = width;
    return out;
  }
  std::uint64_t used_bytes() const { return used_bytes_; }
  // What nobody has taken.
  contract::Workspace rest() const { return {workspace_.ptr + used_bytes_, workspace_.bytes - used_bytes_}; }

 private:
  contract::Workspace workspace_;
  std::uint64_t used_bytes_ = 0;
};

// y = x W^T + bias for one weight of several that share x.
struct Projection {
  const CudaWeight* weight = nullptr;
  float* y = nullptr;           // [rows, weight rows], row stride y_stride
  const float* bias = nullptr;  // [matrices, weight rows] or null
};
struct ProjectionInput {
  const float* x = nullptr;  // [rows / rows_per_x, width], row stride x_stride
  std::uint64_t x_stride = 0;
  std::uint32_t rows = 0;
  kernels::QuantisedRows quantised;  // scratch, filled here when a weight needs it
  bool is_quantised = false;         // it is filled already
  std::uint64_t y_stride = 0;
  // Stacks: matrix z takes x + z * x_stack_stride to y + z * y_stack_stride; or row r meets matrix matrix_of_row[r].
  std::uint32_t matrices = 1;
  std::uint64_t x_stack_stride = 0;
  std::uint64_t y_stack_stride = 0;
  const std::uint32_t* matrix_of_row = nullptr;
  std::uint32_t rows_per_x = 1;
};
void project(const CudaStream& stream, const ProjectionInput& input, std::span<const Projection> projections);

// Rows of `part` blocks of 32; what project() does for quantised weights.
void quantise(const CudaStream& stream, const ProjectionInput& input);

// Calls visitor.template operator()<DType>() with a matrix type.
template <class Visitor>
void visit_matrix_type(contract::DType dtype, const Visitor& visitor) {
  using enum contract::DType;
  switch (dtype) {
    case kF32: return visitor.template operator()<kF32>();
    case kF16: return visitor.template operator()<kF16>();
    case kBF16: return visitor.template operator()<kBF16>();
    case kQ8_0: return visitor.template operator()<kQ8_0>();
    case kQ4_0: return visitor.template operator()<kQ4_0>();
    case kQ4_1: return visitor.template operator()<kQ4_1>();
    case kQ5_0: return visitor.template operator()<kQ5_0>();
    case kQ5_1: return visitor.template operator()<kQ5_1>();
    case kQ2_K: return visitor.template operator()<kQ2_K>();
    case kQ3_K: return visitor.template operator()<kQ3_K>();
    case kQ4_K: return visitor.template operator()<kQ4_K>();
    case kQ5_K: return visitor.template operator()<kQ5_K>();
    case kQ6_K: return visitor.template operator()<kQ6_K>();
    case kIQ4_NL: return visitor.template operator()<kIQ4_NL>();
    case kIQ4_XS: return visitor.template operator()<kIQ4_XS>();
    case kMXFP4: return visitor.template operator()<kMXFP4>();
    case kI32: break;  // check_tensor() said no
  }
  ASSERT(false, "type {}", static_cast<int>(dtype));
}

// The spans of a step from span `first` on, as many as a launch takes. Grids and image rows as far as the step has them.
kernels::Frames frames_from(const contract::ExecutionContext& ctx, std::uint32_t first);
// Calls work(frames) until all spans of the step had their turn.
template <class Work>
void for_frames(const contract::ExecutionContext& ctx, const Work& work) {
  for (std::uint32_t first = 0; first < ctx.batch_size; first += kernels::Frames::kFramesMax)
    work(frames_from(ctx, first));
}
inline std::uint32_t rows_of(const kernels::Frames& frames) {
  return frames.frame[frames.count - 1].row_end - frames.frame[0].row_begin;
}

// As compute/adapter_checks.h, for the CUDA device. Every prepare() also asks for limits a grid can express.
base::Result<> check_weights(const contract::PrepareArgs& args, std::initializer_list<std::size_t> allowed);
base::Result<> require(const contract::PrepareArgs& args, bool supported, std::string_view what);

}  // namespace llorch::engine::compute::cuda::adapters
