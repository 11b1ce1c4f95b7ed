#pragma once
// Draws an index from each of some rows, bit for bit as engine/sampling does on the host (docs/internals/sampling.md): what is
// chosen by value has a total order, and what is added is added in that order, one number after the other. No atomics.
//
// Four launches, the first and the last when nothing but largest elements is wanted: edits and the best of each chunk, the
// candidates of each chunk in order, the order of all candidates, the draw. They run in the row's own memory.
#include "engine/compute/cuda/kernels/scalar.h"
#include "engine/plan/draw_math.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kDrawChunk = 2048;
inline constexpr std::uint32_t kDrawThreads = 256;
inline constexpr std::uint32_t kAllAllowed = 0xFFFFFFFFu;

// A plan::RowDraw as it lies on the device.
struct DeviceDraw {
  std::uint32_t row = 0;
  std::uint32_t edits_begin = 0, edits_end = 0;
  std::uint32_t mask_begin = kAllAllowed;  // in words
  float temperature = 0;
  std::uint32_t top_k = 0;
  float top_p = 1, min_p = 0;
  std::uint32_t min_keep = 1;
  float uniform = 0;
};

// The largest of some elements, the first of equals, and whether one of them is no number.
struct DrawBest {
  float value;
  std::uint32_t index;
  std::uint32_t not_finite;
};
LLORCH_KERNEL DrawBest better(const DrawBest& a, const DrawBest& b) {
  const bool first = a.value > b.value || (a.value == b.value && a.index < b.index);
  return {first ? a.value : b.value, first ? a.index : b.index, a.not_finite | b.not_finite};
}

struct DrawArgs {
  float* rows = nullptr;              // [., width]
  const DeviceDraw* draws = nullptr;  // [draws]
  const plan::RowEdit* edits = nullptr;
  const std::uint32_t* masks = nullptr;
  DrawBest* bests = nullptr;         // [draws, chunks]
  std::uint64_t* keys = nullptr;     // [draws, width] candidates of a chunk from its first element on, in order
  std::uint32_t* counts = nullptr;   // [draws, chunks] of these
  std::uint32_t* indices = nullptr;  // [draws, width] of all candidates, in order; their weights are in the row
  plan::RowDrawn* drawn = nullptr;   // [draws]
  std::uint32_t width = 0;
  std::uint32_t chunks = 0;
};

// The first of [low, high) of which `before` does not hold; it holds of all that stand ahead of that one.
template <class Before>
LLORCH_KERNEL std::uint32_t first_not(std::uint32_t low, std::uint32_t high, const Before& before) {
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (before(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

LLORCH_KERNEL float* row_of(const DrawArgs& args, const DeviceDraw& draw) {
  return args.rows + std::uint64_t{draw.row} * args.width;
}

// all[0] = the best of all of them.
template <class Block>
LLORCH_KERNEL void join_bests(Block& block, DrawBest* all) {
  for (std::uint32_t half = kDrawThreads / 2; half >= 1; half /= 2) {
    block.each([&](std::uint32_t thread) {
      if (thread < half) all[thread] = better(all[thread], all[thread + half]);
    });
  }
}

// all[0] = the best of row block.y or block.x, from its chunks'.
template <class Block>
LLORCH_KERNEL void best_of_row(Block& block, const DrawArgs& args, std::uint32_t draw, DrawBest* all) {
  block.each([&](std::uint32_t thread) {
    DrawBest best{minus_infinity(), 0xFFFFFFFFu, 0};
    for (std::uint32_t chunk = thread; chunk < args.chunks; chunk += kDrawThreads)
      best = better(best, args.bests[std::uint64_t{draw} * args.chunks + chunk]);
    all[thread] = best;
  });
  join_bests(block, all);
}

LLORCH_KERNEL plan::DrawFault fault_of(const DrawBest& best) {
  if (best.not_finite != 0) return plan::DrawFault::kNotFinite;
  return best.value == minus_infinity() ? plan::DrawFault::kNothingAllowed : plan::DrawFault::kNone;
}

// Applies a draw's edits and its mask. Grid: chunks, draws.
struct DrawEdit {
  using Args = DrawArgs;
  static constexpr std::uint32_t kThreads = kDrawThreads;
  struct Shared {
    DrawBest bests[kThreads];
    std::uint32_t edits_begin, edits_end;  // of this chunk
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const DeviceDraw& draw = args.draws[block.y()];
    float* row = row_of(args, draw);
    const std::uint32_t begin = block.x() * kDrawChunk, end = smaller(args.width, begin + kDrawChunk);
    typename Block::template PerThread<std::uint32_t> not_finite;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = begin + thread; i < end; i += kThreads)
        not_finite[thread] |= plan::is_finite(row[i]) ? 0u : 1u;
      if (thread == 0) {
        shared.edits_begin = first_from(args.edits, draw, begin);
        shared.edits_end = first_from(args.edits, draw, end);
      }
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t e = shared.edits_begin + thread; e < shared.edits_end; e += kThreads) {
        const std::uint32_t index = args.edits[e].index;
        if (e != shared.edits_begin && args.edits[e - 1].index == index) continue;  // whoever has the first does all
        float value = row[index];
        for (std::uint32_t at = e; at < shared.edits_end && args.edits[at].index == index; ++at)
          value = plan::edited(value, args.edits[at]);
        row[index] = value;
      }
    });
    block.each([&](std::uint32_t thread) {
      DrawBest best{minus_infinity(), 0xFFFFFFFFu, not_finite[thread]};
      for (std::uint32_t i = begin + thread; i < end; i += kThreads) {
        if (draw.mask_begin != kAllAllowed && (args.masks[draw.mask_begin + i / 32] >> (i % 32) & 1u) == 0)
          row[i] = minus_infinity();
        best = better(best, {row[i], i, 0});
      }
      shared.bests[thread] = best;
    });
    join_bests(block, shared.bests);
    block.each([&](std::uint32_t thread) {
      if (thread == 0) args.bests[std::uint64_t{block.y()} * args.chunks + block.x()] = shared.bests[0];
    });
  }

 private:
  static LLORCH_KERNEL std::uint32_t first_from(const plan::RowEdit* edits, const DeviceDraw& draw,
                                                std::uint32_t index) {
    return first_not(draw.edits_begin, draw.edits_end, [&](std::uint32_t i) { return edits[i].index < index; });
  }
};

// The candidates of each chunk in order, at most top_k of them: no later one can be among the first top_k of all. Grid:
// chunks, draws.
struct DrawSort {
  using Args = DrawArgs;
  static constexpr std::uint32_t kThreads = kDrawThreads;
  struct Shared {
    std::uint64_t keys[kDrawChunk];
    DrawBest bests[kThreads];
    std::uint32_t counts[2][kThreads];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const DeviceDraw& draw = args.draws[block.y()];
    if (draw.temperature == 0.0f) return;
    best_of_row(block, args, block.y(), shared.bests);
    std::uint32_t count = 0;
    if (fault_of(shared.bests[0]) == plan::DrawFault::kNone) {
      count = collect(block, shared, args, draw);
      std::uint32_t size = 1;
      while (size < count) size *= 2;
      sort(block, shared, count, size);
    }
    const std::uint32_t kept = draw.top_k != 0 ? smaller(count, draw.top_k) : count;
    block.each([&](std::uint32_t thread) {
      std::uint64_t* keys = args.keys + std::uint64_t{block.y()} * args.width + block.x() * kDrawChunk;
      for (std::uint32_t i = thread; i < kept; i += kThreads) keys[i] = shared.keys[i];
      if (thread == 0) args.counts[std::uint64_t{block.y()} * args.chunks + block.x()] = kept;
    });
  }

 private:
  static constexpr std::uint32_t kPerThread = kDrawChunk / kThreads;

  // Into shared.keys, in the order of the row; how many there are.
  template <class Block>
  static LLORCH_KERNEL std::uint32_t collect(Block& block, Shared& shared, const Args& args, const DeviceDraw& draw) {
    const float* row = row_of(args, draw);
    const float largest = shared.bests[0].value;
    const std::uint32_t begin = block.x() * kDrawChunk, end = smaller(args.width, begin + kDrawChunk);
    const auto x_of = [&](std::uint32_t i) { return divide(row[i] - largest, draw.temperature); };
    block.each([&](std::uint32_t thread) {
      std::uint32_t mine = 0;
      const std::uint32_t first = begin + thread * kPerThread;
      for (std::uint32_t i = first; i < smaller(end, first + kPerThread); ++i) mine += x_of(i) >= plan::kDrawTailX;
      shared.counts[0][thread] = mine;
    });
    std::uint32_t from = 0;
    for (std::uint32_t reach = 1; reach < kThreads; reach *= 2, from = 1 - from) {
      block.each([&](std::uint32_t thread) {
        const std::uint32_t before = thread >= reach ? shared.counts[from][thread - reach] : 0;
        shared.counts[1 - from][thread] = shared.counts[from][thread] + before;
      });
    }
    block.each([&](std::uint32_t thread) {
      std::uint32_t at = thread == 0 ? 0 : shared.counts[from][thread - 1];
      const std::uint32_t first = begin + thread * kPerThread;
      for (std::uint32_t i = first; i < smaller(end, first + kPerThread); ++i) {
        const float x = x_of(i);
        if (x >= plan::kDrawTailX) shared.keys[at++] = plan::candidate_key(x, i);
      }
    });
    return shared.counts[from][kThreads - 1];
  }

  // Bitonic; no two keys are the same but those that fill `size`, a power of two, up.
  template <class Block>
  static LLORCH_KERNEL void sort(Block& block, Shared& shared, std::uint32_t count, std::uint32_t size) {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = count + thread; i < size; i += kThreads) shared.keys[i] = ~std::uint64_t{0};
    });
    for (std::uint32_t run = 2; run <= size; run *= 2) {
      for (std::uint32_t gap = run / 2; gap >= 1; gap /= 2) {
        block.each([&](std::uint32_t thread) {
          for (std::uint32_t pair = thread; pair < size / 2; pair += kThreads) {
            const std::uint32_t low = pair / gap * 2 * gap + pair % gap, high = low + gap;
            const std::uint64_t a = shared.keys[low], b = shared.keys[high];
            if ((a > b) == ((low & run) == 0)) shared.keys[low] = b, shared.keys[high] = a;
          }
        });
      }
    }
  }
};

// The place of each candidate in the order of all: its own in its chunk, and how many of every other chunk come before. Weights
// go to the row, whose values nobody needs any more. Grid: chunks, draws.
struct DrawMerge {
  using Args = DrawArgs;
  struct Shared {
    std::uint32_t nothing;
  };
  static constexpr std::uint32_t kThreads = kDrawThreads;

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    const DeviceDraw& draw = args.draws[block.y()];
    if (draw.temperature == 0.0f) return;
    const std::uint32_t* counts = args.counts + std::uint64_t{block.y()} * args.chunks;
    const std::uint64_t* keys = args.keys + std::uint64_t{block.y()} * args.width;
    float* row = row_of(args, draw);
    std::uint32_t* indices = args.indices + std::uint64_t{block.y()} * args.width;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < counts[block.x()]; i += kThreads) {
        const std::uint64_t key = keys[block.x() * kDrawChunk + i];
        std::uint32_t place = i;
        for (std::uint32_t chunk = 0; chunk < args.chunks; ++chunk)
          if (chunk != block.x()) place += below(keys + std::uint64_t{chunk} * kDrawChunk, counts[chunk], key);
        if (draw.top_k != 0 && place >= draw.top_k) continue;
        row[place] = plan::exp_s1(plan::candidate_x(key));
        indices[place] = plan::candidate_index(key);
      }
    });
  }

 private:
  // How many of keys[0, count), ascending, are less than `key`.
  static LLORCH_KERNEL std::uint32_t below(const std::uint64_t* keys, std::uint32_t count, std::uint64_t key) {
    return first_not(0, count, [&](std::uint32_t i) { return keys[i] < key; });
  }
};

// The cuts and the draw, or the largest. Grid: draws.
struct DrawWalk {
  using Args = DrawArgs;
  static constexpr std::uint32_t kThreads = kDrawThreads;
  static constexpr std::uint32_t kTile = 2048;
  struct Shared {
    DrawBest bests[kThreads];
    std::uint32_t numbers[kThreads];
    float tile[kTile];
    float sum;
    std::uint32_t walked;   // candidates that changed the sum, all at the beginning
    std::uint32_t settled;  // no later one does
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const DeviceDraw& draw = args.draws[block.x()];
    best_of_row(block, args, block.x(), shared.bests);
    const plan::DrawFault fault = fault_of(shared.bests[0]);
    if (draw.temperature == 0.0f || fault != plan::DrawFault::kNone) {
      block.each([&](std::uint32_t thread) {
        if (thread == 0) args.drawn[block.x()] = {shared.bests[0].index, fault};
      });
      return;
    }
    float* row = row_of(args, draw);
    const std::uint32_t* indices = args.indices + std::uint64_t{block.x()} * args.width;
    const std::uint32_t collected = collected_count(block, shared, args);
    const std::uint32_t count = draw.top_k != 0 ? smaller(collected, draw.top_k) : collected;
    const std::uint32_t light = first_light(block, shared, row, count, draw);
    walk(block, shared, row, count);
    block.each([&](std::uint32_t thread) {
      if (thread == 0)
        args.drawn[block.x()] = {indices[choose(row, count, light, shared.walked, draw)], plan::DrawFault::kNone};
    });
  }

 private:
  template <class Block>
  static LLORCH_KERNEL std::uint32_t collected_count(Block& block, Shared& shared, const Args& args) {
    block.each([&](std::uint32_t thread) {
      std::uint32_t sum = 0;
      for (std::uint32_t chunk = thread; chunk < args.chunks; chunk += kThreads)
        sum += args.counts[std::uint64_t{block.x()} * args.chunks + chunk];
      shared.numbers[thread] = sum;
    });
    for (std::uint32_t half = kThreads / 2; half >= 1; half /= 2) {
      block.each([&](std::uint32_t thread) {
        if (thread < half) shared.numbers[thread] += shared.numbers[thread + half];
      });
    }
    typename Block::template PerThread<std::uint32_t> all;
    block.each([&](std::uint32_t thread) { all[thread] = shared.numbers[0]; });
    return all[0];
  }

  // The first candidate behind the best one that weighs less than min_p of it; `count` when none does.
  template <class Block>
  static LLORCH_KERNEL std::uint32_t first_light(Block& block, Shared& shared, const float* row, std::uint32_t count,
                                                 const DeviceDraw& draw) {
    if (draw.min_p == 0.0f) return count;
    block.each([&](std::uint32_t thread) {
      const float least = draw.min_p * row[0];
      std::uint32_t first = count;
      for (std::uint32_t i = thread; i < count; i += kThreads)
        if (i != 0 && row[i] < least) first = smaller(first, i);
      shared.numbers[thread] = first;
    });
    for (std::uint32_t half = kThreads / 2; half >= 1; half /= 2) {
      block.each([&](std::uint32_t thread) {
        if (thread < half) shared.numbers[thread] = smaller(shared.numbers[thread], shared.numbers[thread + half]);
      });
    }
    typename Block::template PerThread<std::uint32_t> all;
    block.each([&](std::uint32_t thread) { all[thread] = shared.numbers[0]; });
    return all[0];
  }

  // Weights become running sums, one addition after the other, until one changes nothing.
  template <class Block>
  static LLORCH_KERNEL void walk(Block& block, Shared& shared, float* row, std::uint32_t count) {
    block.each([&](std::uint32_t thread) {
      if (thread == 0) shared.sum = 0.0f, shared.walked = 0, shared.settled = 0;
    });
    for (std::uint32_t first = 0; first < count && shared.settled == 0; first += kTile) {
      const std::uint32_t staged = smaller(count - first, kTile);
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t i = thread; i < staged; i += kThreads) shared.tile[i] = row[first + i];
      });
      block.each([&](std::uint32_t thread) {
        if (thread != 0) return;
        float sum = shared.sum;
        std::uint32_t i = 0;
        for (; i < staged; ++i) {
          const float next = sum + shared.tile[i];
          if (next == sum && first + i != 0) break;
          shared.tile[i] = sum = next;
        }
        shared.sum = sum;
        shared.walked = first + i;
        shared.settled = i < staged ? 1 : 0;
      });
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t i = thread; first + i < shared.walked; i += kThreads) row[first + i] = shared.tile[i];
      });
    }
  }

  // Which candidate, after the cuts. Each leaves some of the first, never fewer than min_keep.
  static LLORCH_KERNEL std::uint32_t choose(const float* sums, std::uint32_t count, std::uint32_t light,
                                            std::uint32_t walked, const DeviceDraw& draw) {
    if (draw.top_p < 1.0f) {
      const float bound = draw.top_p * sums[walked - 1];
      const std::uint32_t reaching = first_not(0, walked, [&](std::uint32_t i) { return sums[i] < bound; }) + 1;
      count = smaller(count, larger(reaching, larger(draw.min_keep, 1)));
    }
    if (draw.min_p > 0.0f) count = smaller(count, larger(smaller(light, count), larger(draw.min_keep, 1)));
    walked = smaller(walked, count);
    const float point = draw.uniform * sums[walked - 1];
    return first_not(0, walked, [&](std::uint32_t i) { return sums[i] <= point; });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
