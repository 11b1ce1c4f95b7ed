#pragma once
// Patches to rows, and rows of images into a batch. Steps as numerics.md has them under `add_interpolated`.
#include "engine/compute/cuda/kernels/frames.h"
#include "engine/compute/cuda/kernels/rows.h"

namespace llorch::engine::compute::cuda::kernels {

// x += bilinear interpolation of `table` at the patch's place in its frame. Patches follow each other by blocks of
// merge x merge. Grid: columns / kThreads, rows of the frames.
struct AddPositionsArgs {
  float* x = nullptr;            // [rows, width]
  const float* table = nullptr;  // [side * side, width]
  std::uint32_t width = 0;
  std::uint32_t side = 0;
  std::uint32_t merge = 0;
  Frames frames;
  bool operator==(const AddPositionsArgs&) const = default;
};
struct AddPositions {
  using Args = AddPositionsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint32_t row = args.frames.frame[0].row_begin + block.y();
      const Frame& frame = args.frames.of_row(row);
      const std::uint32_t patch = row - frame.row_begin, area = args.merge * args.merge;
      const std::uint32_t within = patch % area, across = frame.width / args.merge;
      const Place y = place(patch / area / across * args.merge + within / args.merge, frame.height, args.side);
      const Place x = place(patch / area % across * args.merge + within % args.merge, frame.width, args.side);
      const float y_rest = 1.0f - y.beyond, x_rest = 1.0f - x.beyond;
      const auto at = [&](std::uint32_t r, std::uint32_t c) {
        return args.table[(std::uint64_t{r} * args.side + c) * args.width + i];
      };
      float sum = (y_rest * x_rest) * at(y.low, x.low);
      sum = fma(y_rest * x.beyond, at(y.low, x.high), sum);
      sum = fma(y.beyond * x_rest, at(y.high, x.low), sum);
      sum = fma(y.beyond * x.beyond, at(y.high, x.high), sum);
      float& out = args.x[std::uint64_t{row} * args.width + i];
      out = out + sum;
    });
  }

 private:
  // Where entry i of n stands among `side` entries when the first and last of both coincide; whole steps are exact.
  struct Place {
    std::uint32_t low, high;
    float beyond;  // share of `high`
  };
  static LLORCH_KERNEL Place place(std::uint32_t i, std::uint32_t n, std::uint32_t side) {
    if (n == 1) return {0, 0, 0.0f};
    const std::uint64_t steps = std::uint64_t{i} * (side - 1);
    const auto low = static_cast<std::uint32_t>(steps / (n - 1));
    const float beyond = divide(static_cast<float>(steps % (n - 1)), static_cast<float>(n - 1));
    return {low, smaller(low + 1, side - 1), beyond};
  }
};

// What the slots hold of images: f32 [image rows][parts][width] at state + slot * state_stride.
struct ImageState {
  std::byte* state = nullptr;
  std::uint64_t state_stride = 0;
  std::uint32_t parts = 0;
  std::uint32_t part = 0;
  std::uint32_t width = 0;
  bool operator==(const ImageState&) const = default;

  LLORCH_KERNEL float* row(std::uint32_t slot, std::uint32_t image_row) const {
    return reinterpret_cast<float*>(state + slot * state_stride) + (std::uint64_t{image_row} * parts + part) * width;
  }
};

// Merged rows of the frames to their slots. Grid: columns / kThreads, merged rows.
struct KeepRowsArgs {
  const float* x = nullptr;   // [merged rows, width]
  std::uint32_t patches = 0;  // per merged row
  ImageState image;
  Frames frames;
  bool operator==(const KeepRowsArgs&) const = default;
};
struct KeepRows {
  using Args = KeepRowsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.image.width) return;
      const std::uint32_t merged = args.frames.frame[0].row_begin / args.patches + block.y();
      const Frame& frame = args.frames.of_row(merged * args.patches);
      const std::uint32_t image_row = frame.image_begin + merged - frame.row_begin / args.patches;
      args.image.row(frame.slot, image_row)[i] = args.x[std::uint64_t{merged} * args.image.width + i];
    });
  }
};

// The k-th row of a span with an image row id takes (or adds) row image_begin + k of its slot, while that is below image_end;
// all others pass through. Grid: rows of the spans.
struct ScatterArgs {
  const float* x = nullptr;  // [rows, width]
  float* y = nullptr;        // may be x
  const std::uint32_t* row_ids = nullptr;
  std::uint32_t image_row_ids[2] = {};
  bool adds = false;
  ImageState image;
  Frames spans;
  bool operator==(const ScatterArgs&) const = default;
};
struct Scatter {
  using Args = ScatterArgs;
  static constexpr std::uint32_t kThreads = 128;
  struct Shared {
    std::uint32_t counts[kThreads];
    std::uint32_t before;
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t row = args.spans.frame[0].row_begin + block.x();
    const Frame& span = args.spans.of_row(row);
    block.each([&](std::uint32_t thread) {
      std::uint32_t count = 0;
      for (std::uint32_t r = span.row_begin + thread; r < row; r += kThreads) count += is_image(args, r) ? 1 : 0;
      shared.counts[thread] = count;
    });
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      shared.before = 0;
      for (std::uint32_t i = 0; i < kThreads; ++i) shared.before += shared.counts[i];
    });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t image_row = span.image_begin + shared.before;
      const bool takes = is_image(args, row) && image_row < span.image_end;
      const float* image = takes ? args.image.row(span.slot, image_row) : nullptr;
      const std::uint64_t at = std::uint64_t{row} * args.image.width;
      for (std::uint32_t i = thread; i < args.image.width; i += kThreads)
        args.y[at + i] = !takes ? args.x[at + i] : args.adds ? fma(1.0f, image[i], args.x[at + i]) : image[i];
    });
  }

 private:
  static LLORCH_KERNEL bool is_image(const Args& args, std::uint32_t row) {
    const std::uint32_t id = args.row_ids[row];
    return id != plan::kNoRowId && (id == args.image_row_ids[0] || id == args.image_row_ids[1]);
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
