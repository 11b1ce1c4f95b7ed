#pragma once
// Runs a mixer over sequences the way a scheduler would: in chunks, beside a neighbour.
#include <algorithm>
#include <vector>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::testing {

// Every row through a weight, and the bias of another added.
inline std::vector<float> project_exact(const HarnessWeight& w, const HarnessWeight& bias, std::span<const float> x) {
  std::vector<float> out;
  const std::vector<float> b = bias.floats();
  const std::size_t width = w.shape.back();
  for (std::size_t r = 0; r < x.size(); r += width) {
    auto y = reference::matmul_exact(w.dtype, w.stored, w.shape[0], x.subspan(r, width));
    for (std::size_t i = 0; i < b.size(); ++i) y[i] += b[i];
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}
inline std::vector<double> project_reference(const HarnessWeight& w, const HarnessWeight& bias,
                                             std::span<const double> x) {
  const std::vector<float> b = bias.floats(), values = w.floats();
  const std::size_t width = w.shape.back(), rows = w.shape[0];
  std::vector<double> out;
  for (std::size_t r = 0; r < x.size(); r += width)
    for (std::size_t n = 0; n < rows; ++n) {
      double y = b.empty() ? 0 : b[n];
      for (std::size_t k = 0; k < width; ++k) y += values[n * width + k] * x[r + k];
      out.push_back(y);
    }
  return out;
}

// Slot 1 gets rows [0, length) of x in chunks, slot 0 before each of them one row of x from the end; slot 2 nothing.
struct SequencesRun {
  std::vector<float> rows;       // of slot 1
  std::vector<float> neighbour;  // of slot 0, one row per step
  bool rest_untouched = false;   // slot 2's state, and what lies around the layer's part
};
struct StateShape {
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;
};
template <class P>
SequencesRun run_sequences(const P& params, const std::vector<HarnessWeight>& weights, const HarnessOptions& device,
                           const StateShape& shape, std::span<const float> x, std::uint32_t chunk) {
  constexpr std::byte kGuard{0xA5};
  const std::size_t width = params.width, length = x.size() / width, slot_bytes = shape.offset_bytes + shape.bytes + 64;
  Harness harness(params, weights, device);
  EXPECT_FALSE(harness.error()) << harness.error()->message;
  std::vector<std::byte> state(3 * slot_bytes, kGuard);
  for (std::size_t s : {0, 1}) {
    const auto part = state.begin() + static_cast<std::ptrdiff_t>(s * slot_bytes + shape.offset_bytes);
    std::fill(part, part + static_cast<std::ptrdiff_t>(shape.bytes), std::byte{0});
  }
  harness.set_state({.id = 0, .align_bytes = 64, .ptr = state.data(), .size = slot_bytes});
  SequencesRun run;
  std::uint32_t step = 0;
  for (std::size_t at = 0; at < length; at += chunk, ++step) {
    const std::size_t n = std::min<std::size_t>(chunk, length - at);
    const auto other = x.subspan((length - 1 - step) * width, width), mine = x.subspan(at * width, n * width);
    std::vector<float> in(other.begin(), other.end()), out((n + 1) * width);
    in.insert(in.end(), mine.begin(), mine.end());
    const std::vector<std::uint32_t> slots{0, 1}, offsets{0, 1, static_cast<std::uint32_t>(n + 1)};
    plan::ExecutionContext ctx;
    ctx.batch_size = 2, ctx.total_rows = offsets[2], ctx.active_slots = slots, ctx.row_offsets = offsets;
    harness.run(ctx, {in.data()}, out.data());
    const auto border = out.begin() + static_cast<std::ptrdiff_t>(width);
    run.neighbour.insert(run.neighbour.end(), out.begin(), border);
    run.rows.insert(run.rows.end(), border, out.end());
  }
  run.rest_untouched = true;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const std::size_t within = i % slot_bytes;
    const bool used = i < 2 * slot_bytes && within >= shape.offset_bytes && within < shape.offset_bytes + shape.bytes;
    if (!used && state[i] != kGuard) run.rest_untouched = false;
  }
  return run;
}
// x with its rows in the neighbour's order.
inline std::vector<float> reversed_rows(std::span<const float> x, std::size_t width) {
  std::vector<float> out;
  for (std::size_t r = x.size(); r >= width; r -= width)
    out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(r - width),
               x.begin() + static_cast<std::ptrdiff_t>(r));
  return out;
}

}  // namespace llorch::engine::compute::cpu::testing
