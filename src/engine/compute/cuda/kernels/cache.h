#pragma once
// Where keys and values lie, and what happens to a row's heads before they are compared: norm, rotation, append.
//
// Pages hold 64 positions, absolute-position aligned (engine/plan/state.h). Inside a layer's part of a page keys are
// dimension-major, [kv head][dimension][64], so that neighbouring threads take neighbouring positions; values are
// [kv head][64][dimension].
#include "engine/compute/cuda/kernels/rows.h"
#include "engine/plan/state.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kPage = plan::kPageTokens;

struct KvPages {
  std::byte* const* pages = nullptr;  // page i of sequence s: pages[s * pages_stride + i]
  std::uint64_t pages_stride = 0;
  std::uint64_t offset_bytes = 0;                  // where this layer's part begins inside a page
  const std::uint32_t* sequence_of_row = nullptr;  // [rows]
  const std::uint32_t* positions = nullptr;        // [rows]
  bool operator==(const KvPages&) const = default;

  LLORCH_KERNEL std::byte* of(std::uint32_t row, std::uint32_t page) const {
    return pages[sequence_of_row[row] * pages_stride + page] + offset_bytes;
  }
};

// Angles of the pairs of a head, row by row.
struct Rotation {
  static constexpr std::uint32_t kAxes = 3;
  plan::RopeLayout layout = plan::RopeLayout::kNone;  // vision2d pairs as half does
  plan::MropeKind mrope = plan::MropeKind::kNone;
  std::uint32_t dims = 0;  // rotated elements of a head
  std::uint32_t sections[kAxes] = {};
  const std::uint32_t* positions = nullptr;  // [rows]; with `axes` [3][rows]
  std::uint64_t axis_stride = 0;
  bool axes = false;
  const float* inv_freq = nullptr;       // [dims / 2]
  const float* inv_freq_long = nullptr;  // of sequences that is_long names; null when there are no long ones
  float factor = 1;
  float factor_long = 1;
  const std::uint8_t* is_long = nullptr;           // [sequences]
  const std::uint32_t* sequence_of_row = nullptr;  // [rows]
  bool operator==(const Rotation&) const = default;

  LLORCH_KERNEL std::uint32_t axis_of(std::uint32_t pair) const {
    if (layout == plan::RopeLayout::kVision2d) return pair < dims / 4 ? 1 : 2;
    if (mrope == plan::MropeKind::kChunked) return pair < sections[0] ? 0 : pair < sections[0] + sections[1] ? 1 : 2;
    return pair % 3 != 0 && pair < 3 * sections[pair % 3] ? pair % 3 : 0;
  }
  // Turns pair `pair` of the head x.
  LLORCH_KERNEL void turn(float* x, std::uint32_t row, std::uint32_t pair) const {
    const bool far = inv_freq_long != nullptr && is_long[sequence_of_row[row]] != 0;
    const std::uint32_t position = axes ? positions[axis_of(pair) * axis_stride + row] : positions[row];
    float s = 0, c = 0;
    sine_cosine(static_cast<float>(position) * (far ? inv_freq_long : inv_freq)[pair], s, c);
    const float attenuation = far ? factor_long : factor;
    s = s * attenuation, c = c * attenuation;
    const bool interleaved = layout == plan::RopeLayout::kInterleaved;
    float& a = x[interleaved ? 2 * pair : pair];
    float& b = x[interleaved ? 2 * pair + 1 : pair + dims / 2];
    const float a0 = a, b0 = b;
    a = fma(a0, c, b0 * -s);
    b = fma(b0, c, a0 * s);
  }
};

inline constexpr std::uint32_t kHeadDimMax = 1024;

// Projected rows [q heads | k heads | v heads]: q and k normed and rotated, or rotated and normed, q and v scaled, then k and v
// appended to the pages, or left in place when there are none. Grid: heads + 2 kv_heads, rows.
struct FinishHeadsArgs {
  float* rows = nullptr;  // row stride `stride`
  std::uint64_t stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t d_qk = 0;
  std::uint32_t d_v = 0;
  const float* q_norm = nullptr;  // [d_qk] or null, with k_norm
  const float* k_norm = nullptr;
  bool norms_rotated = false;  // once they have turned
  bool norms_to_one = false;   // without weights
  bool norms_values = false;   // too, always without
  float value_scale = 0;       // 0 = none
  // q *= 1 + temperature * ln(1 + floor((position + temperature_offset) / temperature_length)); length 0 = off
  float temperature = 0;
  std::uint32_t temperature_length = 0;
  std::uint32_t temperature_offset = 0;
  const std::uint32_t* positions = nullptr;  // [rows], for the temperature
  float eps = 0;
  float norm_offset = 0;
  Rotation rotation;
  KvPages cache;  // pages null: none
  bool operator==(const FinishHeadsArgs&) const = default;
};
template <plan::DType kKv>
struct FinishHeads {
  using Args = FinishHeadsArgs;
  static constexpr std::uint32_t kThreads = 128;
  struct Shared {
    float head[kHeadDimMax];
    LaneSum sum;
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t unit = block.x(), row = block.y();
    const bool is_q = unit < args.heads, is_v = unit >= args.heads + args.kv_heads;
    const std::uint32_t dims = is_v ? args.d_v : args.d_qk;
    float* x = args.rows + row * args.stride +
               (is_v ? std::uint64_t{args.heads + args.kv_heads} * args.d_qk +
                           std::uint64_t{unit - args.heads - args.kv_heads} * args.d_v
                     : std::uint64_t{unit} * args.d_qk);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < dims; i += kThreads) shared.head[i] = x[i];
    });
    if (!is_v) {
      const float* weight = is_q ? args.q_norm : args.k_norm;
      const bool norms = weight != nullptr || args.norms_to_one;
      if (norms && !args.norms_rotated) norm(block, shared, args, weight, dims);
      rotate(block, shared, args, row);
      if (norms && args.norms_rotated) norm(block, shared, args, weight, dims);
    }
    if (is_v && args.norms_values) norm(block, shared, args, nullptr, dims);
    const float scale = scale_of(args, row, is_q, is_v);
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < dims; i += kThreads)
        if (is_q || args.cache.pages == nullptr) {
          x[i] = shared.head[i] * scale;
        } else {
          append(args, unit, row, i, shared.head[i] * scale);
        }
    });
  }

 private:
  static LLORCH_KERNEL float scale_of(const Args& args, std::uint32_t row, bool is_q, bool is_v) {
    if (is_v) return args.value_scale != 0.0f ? args.value_scale : 1.0f;
    if (!is_q || args.temperature_length == 0) return 1.0f;
    const std::uint32_t times = (args.positions[row] + args.temperature_offset) / args.temperature_length;
    return fma(args.temperature, log_1p(static_cast<float>(times)), 1.0f);
  }
  template <class Block>
  static LLORCH_KERNEL void norm(Block& block, Shared& shared, const Args& args, const float* weight,
                                 std::uint32_t dims) {
    lane_sum(
        block, shared.sum, dims, [&](std::uint32_t i) { return shared.head[i]; }, AddSquare());
    block.each([&](std::uint32_t thread) {
      const float mean = divide(shared.sum.total, static_cast<float>(dims));
      const float r = divide(1.0f, square_root(mean + args.eps));
      for (std::uint32_t i = thread; i < dims; i += kThreads)
        shared.head[i] = (shared.head[i] * r) * (weight != nullptr ? weight[i] + args.norm_offset : 1.0f);
    });
  }
  template <class Block>
  static LLORCH_KERNEL void rotate(Block& block, Shared& shared, const Args& args, std::uint32_t row) {
    if (args.rotation.layout == plan::RopeLayout::kNone) return;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t pair = thread; pair < args.rotation.dims / 2; pair += kThreads)
        args.rotation.turn(shared.head, row, pair);
    });
  }
  static LLORCH_KERNEL void append(const Args& args, std::uint32_t unit, std::uint32_t row, std::uint32_t i,
                                   float value) {
    using Stored = typename Element<kKv>::Stored;
    const std::uint32_t position = args.cache.positions[row], entry = position % kPage;
    auto* part = reinterpret_cast<Stored*>(args.cache.of(row, position / kPage));
    const std::uint32_t head = (unit - args.heads) % args.kv_heads;
    const bool is_v = unit >= args.heads + args.kv_heads;
    const std::uint64_t at = is_v
                                 ? (std::uint64_t{args.kv_heads} * args.d_qk + std::uint64_t{head} * args.d_v) * kPage +
                                       std::uint64_t{entry} * args.d_v + i
                                 : (std::uint64_t{head} * args.d_qk + i) * kPage + entry;
    part[at] = Element<kKv>::stored(value);
  }
};

// Compressed rows [c | k_pe] of latent attention: c normed, k_pe rotated, both appended as one key. Grid: rows.
struct FinishLatentArgs {
  float* rows = nullptr;  // [., latent_dim + rotation.dims], row stride `stride`
  std::uint64_t stride = 0;
  std::uint32_t latent_dim = 0;
  std::uint32_t rest_dim = 0;
  const float* norm = nullptr;  // [latent_dim]
  float eps = 0;
  Rotation rotation;
  KvPages cache;
  bool operator==(const FinishLatentArgs&) const = default;
};
template <plan::DType kKv>
struct FinishLatent {
  using Args = FinishLatentArgs;
  static constexpr std::uint32_t kThreads = 256;
  struct Shared {
    float rest[kHeadDimMax];
    LaneSum sum;
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t row = block.x();
    float* x = args.rows + row * args.stride;
    lane_sum(
        block, shared.sum, args.latent_dim, [&](std::uint32_t i) { return x[i]; }, AddSquare());
    block.each([&](std::uint32_t thread) {
      const float mean = divide(shared.sum.total, static_cast<float>(args.latent_dim));
      const float r = divide(1.0f, square_root(mean + args.eps));
      for (std::uint32_t i = thread; i < args.latent_dim; i += kThreads)
        append(args, row, i, (x[i] * r) * (args.norm[i] + 0.0f));
      for (std::uint32_t i = thread; i < args.rest_dim; i += kThreads) shared.rest[i] = x[args.latent_dim + i];
    });
    if (args.rotation.layout != plan::RopeLayout::kNone)
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t pair = thread; pair < args.rotation.dims / 2; pair += kThreads)
          args.rotation.turn(shared.rest, row, pair);
      });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.rest_dim; i += kThreads)
        append(args, row, args.latent_dim + i, shared.rest[i]);
    });
  }

 private:
  static LLORCH_KERNEL void append(const Args& args, std::uint32_t row, std::uint32_t i, float value) {
    using Stored = typename Element<kKv>::Stored;
    const std::uint32_t position = args.cache.positions[row];
    auto* part = reinterpret_cast<Stored*>(args.cache.of(row, position / kPage));
    part[std::uint64_t{i} * kPage + position % kPage] = Element<kKv>::stored(value);
  }
};

// Query heads [q_nope | q_pe]: q_pe rotated into the tail of the head's latent query. Grid: heads, rows.
struct LatentQueryArgs {
  const float* q = nullptr;  // row stride q_stride, heads d_nope + rest_dim wide
  std::uint64_t q_stride = 0;
  std::uint32_t d_nope = 0;
  std::uint32_t rest_dim = 0;
  std::uint32_t latent_dim = 0;
  std::uint32_t heads = 0;
  std::uint32_t first_row = 0;  // of the step; what `q` and `latent` begin with
  float* latent = nullptr;      // [rows, heads, latent_dim + rest_dim]
  Rotation rotation;
  bool operator==(const LatentQueryArgs&) const = default;
};
struct LatentQuery {
  using Args = LatentQueryArgs;
  static constexpr std::uint32_t kThreads = 64;
  struct Shared {
    float rest[kHeadDimMax];
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const float* q =
        args.q + block.y() * args.q_stride + std::uint64_t{block.x()} * (args.d_nope + args.rest_dim) + args.d_nope;
    float* tail = args.latent +
                  (std::uint64_t{block.y()} * args.heads + block.x()) * (args.latent_dim + args.rest_dim) +
                  args.latent_dim;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.rest_dim; i += kThreads) shared.rest[i] = q[i];
    });
    if (args.rotation.layout != plan::RopeLayout::kNone)
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t pair = thread; pair < args.rotation.dims / 2; pair += kThreads)
          args.rotation.turn(shared.rest, args.first_row + block.y(), pair);
      });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.rest_dim; i += kThreads) tail[i] = shared.rest[i];
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
