#pragma once
// Entries that windows of rows become, and attention to the last rows and to entries (engine/plan/params.h).
#include "engine/compute/cuda/kernels/attention.h"
#include "engine/compute/cuda/kernels/sequences.h"

namespace llorch::engine::compute::cuda::kernels {

// The mean of rows of a window weighed by e^(gate + bias), channel by channel, along a sequence; the last row of a window leaves it, others
// 0. State: [window at hand, next one][m, s, a][dim] (engine/plan/state.h). Grid: channels / kThreads, rows.
struct CompressScanArgs {
  Sequences sequences;
  const std::uint32_t* positions = nullptr;  // [rows]
  const float* kv = nullptr;    // [rows, dim], or [rows, next | own] where windows overlap, row stride `stride`
  const float* gate = nullptr;  // as kv
  const float* bias = nullptr;  // [rate], rows as of kv
  float* y = nullptr;           // [rows, dim], row stride y_stride
  std::uint64_t stride = 0;
  std::uint64_t y_stride = 0;
  std::uint32_t dim = 0;
  std::uint32_t rate = 0;
  bool overlaps = false;
  bool operator==(const CompressScanArgs&) const = default;
};
struct CompressScan {
  using Args = CompressScanArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 128;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    if (!args.sequences.begins(block.y())) return;
    block.each([&](std::uint32_t thread) {
      const std::uint32_t channel = block.x() * kThreads + thread;
      if (channel < args.dim) run_channel(args, block.y(), channel);
    });
  }

 private:
  struct Window {
    float largest, sum, weighed;  // a sum of 0: nothing yet
  };
  static LLORCH_KERNEL void add(Window& w, float gate, float value) {
    const bool holds = w.sum > 0.0f;
    const float largest = holds && w.largest > gate ? w.largest : gate;
    const float kept = holds ? exponential(w.largest - largest) : 0.0f, weight = exponential(gate - largest);
    w = {largest, fma(w.sum, kept, weight), fma(w.weighed, kept, weight * value)};
  }
  static LLORCH_KERNEL Window load(const float* state, std::uint32_t dim) {
    return {state[0], state[dim], state[2 * std::uint64_t{dim}]};
  }
  static LLORCH_KERNEL void store(float* state, std::uint32_t dim, const Window& w) {
    state[0] = w.largest, state[dim] = w.sum, state[2 * std::uint64_t{dim}] = w.weighed;
  }
  static LLORCH_KERNEL void run_channel(const Args& args, std::uint32_t first, std::uint32_t channel) {
    float* state = args.sequences.state_of(first) + channel;
    float* state_next = state + 3 * std::uint64_t{args.dim};
    const std::uint32_t own = args.overlaps ? args.dim : 0;
    Window now = load(state, args.dim), next{0.0f, 0.0f, 0.0f};
    if (args.overlaps) next = load(state_next, args.dim);
    for (std::uint32_t row = first; args.sequences.goes_on(row, first); ++row) {
      const std::uint32_t place = args.positions[row] % args.rate;
      const float *kv = args.kv + row * args.stride + channel, *gate = args.gate + row * args.stride + channel;
      const float* bias = args.bias + std::uint64_t{place} * (own + args.dim) + channel;
      add(now, gate[own] + bias[own], kv[own]);
      if (args.overlaps) add(next, gate[0] + bias[0], kv[0]);
      const bool ends = place + 1 == args.rate;
      args.y[row * args.y_stride + channel] = ends ? divide(now.weighed, now.sum) : 0.0f;
      if (!ends) continue;
      now = next;
      next = {0.0f, 0.0f, 0.0f};
    }
    store(state, args.dim, now);
    if (args.overlaps) store(state_next, args.dim, next);
  }
};

// Heads of rows normed, and their last elements rotated, in place. Grid: heads, rows.
struct FinishTailsArgs {
  float* x = nullptr;  // [rows, heads * dim], row stride `stride`
  std::uint64_t stride = 0;
  std::uint32_t dim = 0;
  const float* norm = nullptr;  // [dim]; null: no weight
  bool norms = false;
  bool back = false;       // the other way round
  std::uint32_t rate = 1;  // rotated by the first position of the row's window
  std::uint32_t tail = 0;  // elements that rotate
  float eps = 0;
  float factor = 1;
  plan::RopeLayout layout = plan::RopeLayout::kInterleaved;
  const std::uint32_t* positions = nullptr;  // [rows]
  const float* inv_freq = nullptr;           // [tail / 2]
  bool operator==(const FinishTailsArgs&) const = default;
};
struct FinishTails {
  using Args = FinishTailsArgs;
  static constexpr std::uint32_t kThreads = 128;
  struct Shared {
    LaneSum sum;
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    float* x = args.x + block.y() * args.stride + std::uint64_t{block.x()} * args.dim;
    if (args.norms) {
      lane_sum(
          block, shared.sum, args.dim, [&](std::uint32_t i) { return x[i]; }, AddSquare());
      block.each([&](std::uint32_t thread) {
        const float mean = divide(shared.sum.total, static_cast<float>(args.dim));
        const float r = divide(1.0f, square_root(mean + args.eps));
        for (std::uint32_t i = thread; i < args.dim; i += kThreads)
          x[i] = (x[i] * r) * (args.norm != nullptr ? args.norm[i] + 0.0f : 1.0f);
      });
    }
    block.each([&](std::uint32_t thread) {
      float* tail = x + (args.dim - args.tail);
      for (std::uint32_t pair = thread; pair < args.tail / 2; pair += kThreads) turn(args, tail, block.y(), pair);
    });
  }

 private:
  static LLORCH_KERNEL void turn(const Args& args, float* x, std::uint32_t row, std::uint32_t pair) {
    const std::uint32_t position = args.positions[row] / args.rate * args.rate;
    float s = 0, c = 0;
    sine_cosine(static_cast<float>(position) * args.inv_freq[pair], s, c);
    s = s * args.factor, c = c * args.factor;
    if (args.back) s = -s;
    const bool interleaved = args.layout == plan::RopeLayout::kInterleaved;
    float& a = x[interleaved ? 2 * pair : pair];
    float& b = x[interleaved ? 2 * pair + 1 : pair + args.tail / 2];
    const float a0 = a, b0 = b;
    a = fma(a0, c, b0 * -s);
    b = fma(b0, c, a0 * s);
  }
};

// Rows and entries in pages (engine/plan/state.h, CompressedKvLayout).
struct CompressedCache {
  KvPages pages;
  std::uint64_t entry_offset = 0;  // of elements
  std::uint64_t index_offset = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t index_dim = 0;
  std::uint32_t rate = 0;  // 0 = no entries
  bool operator==(const CompressedCache&) const = default;

  template <class Stored>
  LLORCH_KERNEL Stored* row(std::uint32_t step_row, std::uint32_t position) const {
    return reinterpret_cast<Stored*>(pages.of(step_row, position / kPage)) + std::uint64_t{position % kPage} * head_dim;
  }
  template <class Stored>
  LLORCH_KERNEL Stored* entry(std::uint32_t step_row, std::uint32_t e, std::uint64_t offset, std::uint32_t dim) const {
    const std::uint32_t last = (e + 1) * rate - 1;  // the position that ends its window
    return reinterpret_cast<Stored*>(pages.of(step_row, last / kPage)) + offset +
           std::uint64_t{last % kPage / rate} * dim;
  }
};

// A row for each position, and an entry for each that ends a window. Grid: rows.
struct CompressedAppendArgs {
  CompressedCache cache;
  const float* kv = nullptr;       // [rows, head_dim], row stride kv_stride
  const float* entries = nullptr;  // [rows, head_dim | index_dim]
  std::uint64_t kv_stride = 0;
  bool operator==(const CompressedAppendArgs&) const = default;
};
template <plan::DType kKv>
struct CompressedAppend {
  using Args = CompressedAppendArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 128;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    using Stored = typename Element<kKv>::Stored;
    const CompressedCache& cache = args.cache;
    const std::uint32_t row = block.x(), position = cache.pages.positions[row];
    const bool ends = cache.rate != 0 && (position + 1) % cache.rate == 0;
    block.each([&](std::uint32_t thread) {
      Stored* to = cache.row<Stored>(row, position);
      for (std::uint32_t i = thread; i < cache.head_dim; i += kThreads)
        to[i] = Element<kKv>::stored(args.kv[row * args.kv_stride + i]);
      if (!ends) return;
      const std::uint32_t e = position / cache.rate;
      const float* entry = args.entries + std::uint64_t{row} * (cache.head_dim + cache.index_dim);
      Stored* own = cache.entry<Stored>(row, e, cache.entry_offset, cache.head_dim);
      for (std::uint32_t i = thread; i < cache.head_dim; i += kThreads) own[i] = Element<kKv>::stored(entry[i]);
      Stored* index = cache.entry<Stored>(row, e, cache.index_offset, cache.index_dim);
      for (std::uint32_t i = thread; i < cache.index_dim; i += kThreads)
        index[i] = Element<kKv>::stored(entry[cache.head_dim + i]);
    });
  }
};

// scores[e] = scale * sum over heads, increasing, of w_h relu(q_h . k_e). Grid: entries / kThreads, rows.
struct CompressedScoresArgs {
  CompressedCache cache;
  const float* q = nullptr;        // [rows, heads * index_dim]
  const float* weights = nullptr;  // [rows, heads], row stride weights_stride
  float* scores = nullptr;         // [rows, scores_stride]
  std::uint64_t weights_stride = 0;
  std::uint64_t scores_stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t first_row = 0;  // of the step; what scores begin with
  float scale = 1;
  bool operator==(const CompressedScoresArgs&) const = default;
};
template <plan::DType kKv>
struct CompressedScores {
  using Args = CompressedScoresArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 64;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    using Stored = typename Element<kKv>::Stored;
    const CompressedCache& cache = args.cache;
    const std::uint32_t row = args.first_row + block.y(), dims = cache.index_dim;
    const std::uint32_t seen = (cache.pages.positions[row] + 1) / cache.rate;
    const float* q = args.q + std::uint64_t{row} * args.heads * dims;
    block.each([&](std::uint32_t thread) {
      const std::uint32_t e = block.x() * kThreads + thread;
      if (e >= seen) return;
      const Stored* key = cache.entry<Stored>(row, e, cache.index_offset, dims);
      float sum = 0.0f;
      for (std::uint32_t h = 0; h < args.heads; ++h) {
        float dot = 0.0f;
        for (std::uint32_t i = 0; i < dims; ++i) dot = fma(q[h * dims + i], Element<kKv>::value(key[i]), dot);
        sum = fma(args.weights[row * args.weights_stride + h], dot > 0.0f ? dot : 0.0f, sum);
      }
      args.scores[block.y() * args.scores_stride + e] = sum * args.scale;
    });
  }
};

// softmax(scale * q . k) k of one head over the last `window` rows, in order, and then the entries a row sees, of which those with bit e % 32
// of word e / 32 count. Keys are taken in tiles of kThreads; a product has dimensions increasing, and tiles are joined in order by
// `join`, the sink last. Grid: heads, rows.
struct CompressedAttendArgs {
  CompressedCache cache;
  const float* q = nullptr;               // [rows, heads * head_dim]
  float* out = nullptr;                   // as q
  const float* sinks = nullptr;           // [heads]
  const std::uint32_t* chosen = nullptr;  // [rows, chosen_words], or null: all
  std::uint32_t chosen_words = 0;
  std::uint32_t heads = 0;
  std::uint32_t window = 0;
  float scale = 1;
  bool operator==(const CompressedAttendArgs&) const = default;
};
template <plan::DType kKv>
struct CompressedAttend {
  using Args = CompressedAttendArgs;
  using Stored = typename Element<kKv>::Stored;
  static constexpr std::uint32_t kThreads = 128;
  struct Shared {
    float q[kValueDimMax];
    float values[kValueDimMax];
    float p[kThreads];
    const Stored* keys[kThreads];
    Softmax tile, all;
    Joining by;
    std::uint32_t any;
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const CompressedCache& cache = args.cache;
    const std::uint32_t head = block.x(), row = block.y(), end = cache.pages.positions[row] + 1;
    const std::uint64_t at = (std::uint64_t{row} * args.heads + head) * cache.head_dim;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < cache.head_dim; i += kThreads)
        shared.q[i] = args.q[at + i], shared.values[i] = 0.0f;
      if (thread == 0) shared.all = {minus_infinity(), 0.0f};
    });
    const std::uint32_t begin = end > args.window ? end - args.window : 0;
    for (std::uint32_t first = begin; first < end; first += kThreads)
      add_tile(block, shared, args, smaller(end - first, kThreads),
               [&](std::uint32_t i) { return static_cast<const Stored*>(cache.row<Stored>(row, first + i)); });
    const std::uint32_t entries = cache.rate != 0 ? end / cache.rate : 0;
    for (std::uint32_t first = 0; first < entries; first += kThreads)
      add_tile(block, shared, args, smaller(entries - first, kThreads), [&](std::uint32_t i) -> const Stored* {
        const std::uint32_t e = first + i;
        if (args.chosen != nullptr &&
            (args.chosen[std::uint64_t{row} * args.chosen_words + e / 32] >> e % 32 & 1u) == 0)
          return nullptr;
        return cache.entry<Stored>(row, e, cache.entry_offset, cache.head_dim);
      });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) shared.by = join(shared.all, {args.sinks[head], 1.0f});
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < cache.head_dim; i += kThreads)
        args.out[at + i] = divide(shared.values[i] * shared.by.before, shared.all.sum);
    });
  }

 private:
  // Keys 0 .. count of a tile; null ones do not count.
  template <class Block, class KeyOf>
  static LLORCH_KERNEL void add_tile(Block& block, Shared& shared, const Args& args, std::uint32_t count,
                                     const KeyOf& key_of) {
    const std::uint32_t dim = args.cache.head_dim;
    block.each([&](std::uint32_t thread) {
      const Stored* key = thread < count ? key_of(thread) : nullptr;
      shared.keys[thread] = key;
      if (key == nullptr) return;
      float dot = 0.0f;
      for (std::uint32_t i = 0; i < dim; ++i) dot = fma(shared.q[i], Element<kKv>::value(key[i]), dot);
      shared.p[thread] = dot * args.scale;
    });
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      float largest = minus_infinity();
      shared.any = 0;
      for (std::uint32_t i = 0; i < count; ++i)
        if (shared.keys[i] != nullptr) shared.any = 1, largest = shared.p[i] > largest ? shared.p[i] : largest;
      shared.tile.largest = largest;
    });
    if (shared.any == 0) return;
    block.each([&](std::uint32_t thread) {
      if (shared.keys[thread] != nullptr) shared.p[thread] = exponential(shared.p[thread] - shared.tile.largest);
    });
    block.each([&](std::uint32_t thread) {
      if (thread != 0) return;
      float sum = 0.0f;
      for (std::uint32_t i = 0; i < count; ++i)
        if (shared.keys[i] != nullptr) sum = sum + shared.p[i];
      shared.tile.sum = sum;
      shared.by = join(shared.all, shared.tile);
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < dim; i += kThreads) {
        float sum = 0.0f;
        for (std::uint32_t l = 0; l < count; ++l)
          if (shared.keys[l] != nullptr) sum = fma(shared.p[l], Element<kKv>::value(shared.keys[l][i]), sum);
        shared.values[i] = joined(shared.values[i], sum, shared.by);
      }
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
