#pragma once
// Kernels that take rows one by one: norms, activations, sums, copies.
#include "engine/compute/cuda/kernels/matmul/activations.h"
#include "engine/plan/params.h"

namespace llorch::engine::compute::cuda::kernels {

// Shared memory of a sum over a row: the row passes through `stage`, so that sixteen threads add what all have fetched.
struct LaneSum {
  static constexpr std::uint32_t kStaged = 4096;  // a multiple of 16
  float stage[kStaged];
  float total;
};

// sum.total = the sum over i < count of value(i) as numerics.md has it: sixteen sums, lane i mod 16, i increasing,
// sums[lane] = add(sums[lane], value), then the tree.
template <class Block, class Value, class Add>
LLORCH_KERNEL void lane_sum(Block& block, LaneSum& sum, std::uint32_t count, const Value& value, const Add& add) {
  typename Block::template PerThread<float> lanes;
  for (std::uint32_t first = 0; first < count; first += LaneSum::kStaged) {
    const std::uint32_t staged = smaller(count - first, LaneSum::kStaged);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < staged; i += Block::kThreads) sum.stage[i] = value(first + i);
    });
    block.each([&](std::uint32_t thread) {
      if (thread >= 16) return;
      for (std::uint32_t i = thread; i < staged; i += 16) lanes[thread] = add(lanes[thread], sum.stage[i]);
    });
  }
  block.template sum_tree<16>(lanes, [](float& lane) -> float& { return lane; });
  block.each([&](std::uint32_t thread) {
    if (thread == 0) sum.total = lanes[0];
  });
}

struct AddSquare {
  LLORCH_KERNEL float operator()(float sum, float x) const { return fma(x, x, sum); }
};
struct AddPlain {
  LLORCH_KERNEL float operator()(float sum, float x) const { return sum + x; }
};

// Norms run over `width` elements; a row has `grid.x` of them, inner_stride apart.
struct NormArgs {
  const float* x = nullptr;       // row stride x_stride
  const float* weight = nullptr;  // [width] of the first norm of a row, weight_stride to the next one's
  const float* bias = nullptr;    // [width]; LayerNorm only, or null
  float* y = nullptr;             // row stride y_stride; may be x
  std::uint64_t x_stride = 0;
  std::uint64_t y_stride = 0;
  std::uint32_t inner_stride = 0;
  std::uint32_t weight_stride = 0;
  std::uint32_t width = 0;
  float eps = 0;
  float weight_offset = 0;
  NarrowedRows narrowed;  // of y. REQUIRES: a row is one norm
  bool operator==(const NormArgs&) const = default;
};

inline constexpr std::uint32_t kNormThreads = 256;
struct NormShared {
  LaneSum sum;
  NarrowShared<kNormThreads> narrow;
};

// Grid: norms of a row, rows.
struct RmsNorm {
  using Args = NormArgs;
  using Shared = NormShared;
  static constexpr std::uint32_t kThreads = kNormThreads;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint64_t inner = std::uint64_t{block.x()} * args.inner_stride;
    const float* x = args.x + block.y() * args.x_stride + inner;
    const float* weight = args.weight + std::uint64_t{block.x()} * args.weight_stride;
    float* y = args.y + block.y() * args.y_stride + inner;
    lane_sum(
        block, shared.sum, args.width, [&](std::uint32_t i) { return x[i]; }, AddSquare());
    block.each([&](std::uint32_t thread) {
      const float mean = divide(shared.sum.total, static_cast<float>(args.width));
      const float r = divide(1.0f, square_root(mean + args.eps));
      for (std::uint32_t i = thread; i < args.width; i += kThreads)
        y[i] = (x[i] * r) * (weight[i] + args.weight_offset);
    });
    leave_row(block, shared.narrow, y, args.narrowed, block.y());
  }
};

// Grid: norms of a row, rows.
struct LayerNorm {
  using Args = NormArgs;
  using Shared = NormShared;
  static constexpr std::uint32_t kThreads = kNormThreads;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint64_t inner = std::uint64_t{block.x()} * args.inner_stride;
    const float* x = args.x + block.y() * args.x_stride + inner;
    const float* weight = args.weight + std::uint64_t{block.x()} * args.weight_stride;
    float* y = args.y + block.y() * args.y_stride + inner;
    const auto count = static_cast<float>(args.width);
    typename Block::template PerThread<float> means;
    lane_sum(
        block, shared.sum, args.width, [&](std::uint32_t i) { return x[i]; }, AddPlain());
    block.each([&](std::uint32_t thread) { means[thread] = divide(shared.sum.total, count); });
    lane_sum(
        block, shared.sum, args.width, [&](std::uint32_t i) { return x[i] - means[i % kThreads]; }, AddSquare());
    block.each([&](std::uint32_t thread) {
      const float r = divide(1.0f, square_root(divide(shared.sum.total, count) + args.eps));
      for (std::uint32_t i = thread; i < args.width; i += kThreads)
        y[i] = fma((x[i] - means[thread]) * r, weight[i], args.bias != nullptr ? args.bias[i] : 0.0f);
    });
    leave_row(block, shared.narrow, y, args.narrowed, block.y());
  }
};

LLORCH_KERNEL float activated(plan::Activation act, float gate) {
  switch (act) {
    case plan::Activation::kGeluTanh:
      return divide(gate, 1.0f + exponential(0.0f - gate * fma(gate * gate, 0x1.2444f2p-4f, 0x1.988454p+0f)));
    case plan::Activation::kGeluErf: return (0.5f * gate) * (1.0f + error_function(gate * 0x1.6a09e6p-1f));
    case plan::Activation::kRelu2: return gate > 0.0f ? gate * gate : (gate != gate ? gate : 0.0f);
    default: return divide(gate, 1.0f + exponential(0.0f - gate));  // silu
  }
}

// y = act(gate) * up, or act(gate) without up. Grid: columns / kThreads, rows.
struct SwigluArgs {
  const float* gate = nullptr;  // row stride x_stride
  const float* up = nullptr;    // row stride x_stride, or null
  float* y = nullptr;           // row stride y_stride; may be gate or up
  std::uint64_t x_stride = 0;
  std::uint64_t y_stride = 0;
  std::uint32_t width = 0;
  plan::Activation act = plan::Activation::kSilu;
  float alpha = 0;
  float limit = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
  NarrowedRows narrowed;  // what SwigluBytes and SwigluHalves leave
  bool operator==(const SwigluArgs&) const = default;
};
// e^m - 1 - m is a series near 0, where the difference would cancel.
LLORCH_KERNEL float xielu(const SwigluArgs& args, float x) {
  const float linear = args.beta * x;
  if (x > 0.0f) return fma(args.alpha * x, x, linear);
  const float m = x < args.eps ? x : args.eps;
  float series = fma(m, 0x1.a01a02p-16f, 0x1.a01a02p-13f);
  series = fma(m, series, 0x1.6c16c2p-10f);
  series = fma(m, series, 0x1.111112p-7f);
  series = fma(m, series, 0x1.555556p-5f);
  series = fma(m, series, 0x1.555556p-3f);
  series = fma(m, series, 0.5f);
  const float value = m > -0.5f ? fma(m * m, series, m - x) : (exponential(m) - 1.0f) - x;
  return fma(args.alpha_negative, value, linear);
}
LLORCH_KERNEL float swiglu(const SwigluArgs& args, std::uint32_t row, std::uint32_t i) {
  const float gate = args.gate[row * args.x_stride + i];
  if (args.act == plan::Activation::kXielu) return xielu(args, gate);
  if (args.up == nullptr) return activated(args.act, gate);
  const float up = args.up[row * args.x_stride + i];
  const bool limited = args.act == plan::Activation::kSwigluOai || args.act == plan::Activation::kSiluClamped;
  if (!limited) return activated(args.act, gate) * up;
  const float g = args.limit < gate ? args.limit : gate;
  const float low = up < -args.limit ? -args.limit : up, u = args.limit < low ? args.limit : low;
  if (args.act == plan::Activation::kSiluClamped) return activated(plan::Activation::kSilu, g) * u;
  return (u + 1.0f) * divide(g, 1.0f + exponential(0.0f - args.alpha * g));
}
struct Swiglu {
  using Args = SwigluArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i < args.width) args.y[block.y() * args.y_stride + i] = swiglu(args, block.y(), i);
    });
  }
};
// As int8 blocks alone, y is not written. Grid: columns / kThreads, rows.
struct SwigluBytes {
  using Args = SwigluArgs;
  static constexpr std::uint32_t kThreads = 256;
  struct Shared {
    float y[kThreads];
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t first = block.x() * kThreads;
    block.each([&](std::uint32_t thread) {
      if (first + thread < args.width) shared.y[thread] = swiglu(args, block.y(), first + thread);
    });
    block.own([&](std::uint32_t thread) {
      const std::uint32_t at = thread * kBlockElements;
      if (at < kThreads && first + at < args.width)
        quantize_block(shared.y + at, args.narrowed.bytes, block.y(), (first + at) / kBlockElements);
    });
  }
};
// As F16, whose scale is the whole row's. Grid: rows.
struct SwigluHalves {
  using Args = SwigluArgs;
  static constexpr std::uint32_t kThreads = 1024;
  using Shared = NarrowShared<kThreads>;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    float* y = args.y + block.x() * args.y_stride;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.width; i += kThreads) y[i] = swiglu(args, block.x(), i);
    });
    narrow_row(block, shared, y, args.narrowed.halves, block.x());
  }
};

// y *= sigmoid(gate), one number for every `each` elements of a row. Grid: columns / kThreads, rows.
struct GateArgs {
  float* y = nullptr;           // [rows, width], row stride y_stride
  const float* gate = nullptr;  // [rows, width / each], row stride gate_stride
  std::uint64_t y_stride = 0;
  std::uint64_t gate_stride = 0;
  std::uint32_t width = 0;
  std::uint32_t each = 1;
  bool operator==(const GateArgs&) const = default;
};
struct Gate {
  using Args = GateArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint64_t row = block.y();
      float& y = args.y[row * args.y_stride + i];
      y = sigmoid(args.gate[row * args.gate_stride + i / args.each]) * y;
    });
  }
};

// y = (a + scale * b) * sum_scale. Grid: elements / kThreads.
struct ResidualAddArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* y = nullptr;  // may be a
  std::uint64_t count = 0;
  float scale = 1;
  float sum_scale = 1;
  bool operator==(const ResidualAddArgs&) const = default;
};
struct ResidualAdd {
  using Args = ResidualAddArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint64_t i = std::uint64_t{block.x()} * kThreads + thread;
      if (i < args.count) args.y[i] = fma(args.scale, args.b[i], args.a[i]) * args.sum_scale;
    });
  }
};

// y = softcap * tanh((scale * y) / softcap), or scale * y without softcap. Grid: elements / kThreads.
struct ScaleSoftcapArgs {
  float* y = nullptr;
  std::uint64_t count = 0;
  float scale = 1;
  float softcap = 0;
  bool operator==(const ScaleSoftcapArgs&) const = default;
};
struct ScaleSoftcap {
  using Args = ScaleSoftcapArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint64_t i = std::uint64_t{block.x()} * kThreads + thread;
      if (i < args.count) args.y[i] = soft_capped(args.y[i] * args.scale, args.softcap);
    });
  }
};

// y[i] = x[rows[i]]. The list travels with the launch: no copy to wait for, no buffer whose life must be watched. Grid:
// columns / kThreads, rows listed.
struct CopyRowsArgs {
  static constexpr std::uint32_t kRowsMax = 512;
  const float* x = nullptr;  // [., width]
  float* y = nullptr;        // [rows listed, width]
  std::uint32_t width = 0;
  std::uint32_t rows[kRowsMax];
  bool operator==(const CopyRowsArgs&) const = default;
};
struct CopyRows {
  using Args = CopyRowsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i < args.width)
        args.y[std::uint64_t{block.y()} * args.width + i] =
            args.x[std::uint64_t{args.rows[block.y()]} * args.width + i];
    });
  }
};

// y[i] = the mean of the rows begin[i] .. end[i] - 1 of x, added in order. Grid: columns / kThreads, rows listed.
struct PoolRowsArgs {
  static constexpr std::uint32_t kRowsMax = 256;
  const float* x = nullptr;  // [., width]
  float* y = nullptr;        // [rows listed, width]
  std::uint32_t width = 0;
  std::uint32_t begin[kRowsMax];
  std::uint32_t end[kRowsMax];
  bool operator==(const PoolRowsArgs&) const = default;
};
struct PoolRows {
  using Args = PoolRowsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint32_t begin = args.begin[block.y()], end = args.end[block.y()];
      float sum = args.x[std::uint64_t{begin} * args.width + i];
      for (std::uint32_t row = begin + 1; row < end; ++row) sum = sum + args.x[std::uint64_t{row} * args.width + i];
      args.y[std::uint64_t{block.y()} * args.width + i] = divide(sum, static_cast<float>(end - begin));
    });
  }
};

// y = x + types[type of the row] + positions[first + position of the row], each where there is a table; rows without a list are of type 0.
// y may be x. Grid: columns / kThreads, rows.
struct EmbedPositionsArgs {
  const float* x = nullptr;          // [rows, width]
  float* y = nullptr;                // [rows, width]
  const float* types = nullptr;      // [., width] or null
  const float* positions = nullptr;  // [., width] or null
  std::uint32_t first_position = 0;  // the table's row for position 0
  const std::uint32_t* type_of_row = nullptr;
  const std::uint32_t* position_of_row = nullptr;
  std::uint32_t width = 0;
  bool operator==(const EmbedPositionsArgs&) const = default;
};
struct EmbedPositions {
  using Args = EmbedPositionsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread, row = block.y();
      if (i >= args.width) return;
      float sum = args.x[std::uint64_t{row} * args.width + i];
      const std::uint64_t type = args.type_of_row != nullptr ? args.type_of_row[row] : 0;
      if (args.types != nullptr) sum = sum + args.types[type * args.width + i];
      const std::uint64_t position = std::uint64_t{args.first_position} + args.position_of_row[row];
      if (args.positions != nullptr) sum = sum + args.positions[position * args.width + i];
      args.y[std::uint64_t{row} * args.width + i] = sum;
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
