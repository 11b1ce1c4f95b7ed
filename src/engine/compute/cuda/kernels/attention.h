#pragma once
// softmax(scale * q k^T) v of one row's heads over the positions the row sees.
//
// Positions are taken in pages of 64 and splits of four pages, both by absolute position. A page: scores with dimensions
// increasing, one FMA each; its largest; e^(score - largest); their sum, lane position mod 16, positions increasing, then the
// tree; values with positions increasing from +0. A split joins its pages, and a row joins its splits, in ascending order by
// `joined`. Nothing in this depends on who computes what: splits of a row may go to blocks of their own
// (AttentionParts) or pass through one (AttentionWhole), with the same bits.
#include "engine/compute/cuda/kernels/cache.h"
#include "engine/compute/cuda/kernels/frames.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kSplitPages = 4;
inline constexpr std::uint32_t kSplit = kSplitPages * kPage;
inline constexpr std::uint32_t kHeadsAtOnce = 8;
inline constexpr std::uint32_t kKeyDimMax = 576;
inline constexpr std::uint32_t kValueDimMax = 512;

// Largest score and sum of e^(score - largest) of some positions. Joining (m, l, o) and (m', l', o'):
// M = max(m, m'), L = fma(l', e^(m' - M), l e^(m - M)), O = fma(o', e^(m' - M), o e^(m - M)).
struct Softmax {
  float largest;
  float sum;
};
struct Joining {
  float before, after;  // what the two sides' sums and values are multiplied by
};
LLORCH_KERNEL float larger_score(float whole, float part) { return part > whole ? part : whole; }
LLORCH_KERNEL Joining joining(float whole, float part) {  // their largest
  const float largest = larger_score(whole, part);
  return {exponential(whole - largest), exponential(part - largest)};
}
LLORCH_KERNEL float joined(float whole, float part, const Joining& by) {
  return fma(part, by.after, whole * by.before);
}
LLORCH_KERNEL Joining join(Softmax& whole, const Softmax& part) {
  const Joining by = joining(whole.largest, part.largest);
  whole = {larger_score(whole.largest, part.largest), joined(whole.sum, part.sum, by)};
  return by;
}

// The step's own rows as keys and values. Lists of spans are long: attention over a cache does not carry one.
struct SpanRows {
  const float* keys = nullptr;    // [rows, kv_heads * d_qk], row stride `stride`
  const float* values = nullptr;  // [rows, kv_heads * d_v]
  std::uint64_t stride = 0;
  Frames frames;
  bool operator==(const SpanRows&) const = default;
};

template <class Source>  // KvPages or SpanRows
struct AttentionArgs {
  const float* q = nullptr;  // [rows, heads * d_qk], row stride q_stride
  std::uint64_t q_stride = 0;
  float* out = nullptr;  // [rows, heads * d_v]
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t d_qk = 0;
  std::uint32_t d_v = 0;
  float scale = 1;
  float softcap = 0;
  std::uint32_t window = 0;      // 0 = all
  bool chunked = false;          // from the last multiple of the window on
  const float* sinks = nullptr;  // [heads] or null
  std::uint32_t first_row = 0;   // of the step; what `q` and `out` begin with
  Source from;
  // Parts: [rows][heads][parts_max], largest and sum; their values behind, [rows][heads][parts_max][d_v].
  Softmax* parts = nullptr;
  float* part_values = nullptr;
  std::uint32_t parts_max = 0;
  NarrowedRows narrowed;                      // rows of out, or null. REQUIRES: for int8, a head is whole blocks
  std::uint32_t* arrival_counters = nullptr;  // kArrivalCounters, for F16 rows and for parts
  // [rows of the step, chosen_words] or null: only positions p with bit p % 32 of word p / 32 count.
  const std::uint32_t* chosen = nullptr;
  std::uint32_t chosen_words = 0;
  bool operator==(const AttentionArgs&) const = default;

  LLORCH_KERNEL std::uint32_t head_groups() const {
    return (heads / kv_heads + kHeadsAtOnce - 1) / kHeadsAtOnce;  // of a kv head
  }
};

// Every attention of every layer is compared with the last step's, and sent when it differs (graphs/step_record.h).
static_assert(sizeof(AttentionArgs<KvPages>) <= 256);

// Of the arrival counters: a row's, where all of its heads are there, and then those of heads whose parts are.
inline constexpr std::uint32_t kRowArrivalCounters = kArrivalCounters / 2;

// Positions [begin, end) of the row's sequence or span.
struct Seen {
  std::uint32_t begin, end;
};

// Where keys and values come from; position p is one of the row's sequence or span.
template <plan::DType kKv>
struct PagedKeys {
  using Args = AttentionArgs<KvPages>;
  using Stored = typename Element<kKv>::Stored;
  static LLORCH_KERNEL Seen seen(const Args& args, std::uint32_t row) {
    const std::uint32_t end = args.from.positions[row] + 1;
    if (args.chunked) return {(end - 1) / args.window * args.window, end};
    return {args.window != 0 && end > args.window ? end - args.window : 0, end};
  }
  LLORCH_KERNEL PagedKeys(const Args& args, std::uint32_t row, std::uint32_t page, std::uint32_t kv_head)
      : keys_(reinterpret_cast<const Stored*>(args.from.of(row, page)) + std::uint64_t{kv_head} * args.d_qk * kPage),
        values_(reinterpret_cast<const Stored*>(args.from.of(row, page)) +
                (std::uint64_t{args.kv_heads} * args.d_qk + std::uint64_t{kv_head} * args.d_v) * kPage) {}
  LLORCH_KERNEL float key(const Args&, std::uint32_t dim, std::uint32_t entry) const {
    return Element<kKv>::value(keys_[dim * kPage + entry]);
  }
  LLORCH_KERNEL float value(const Args& args, std::uint32_t dim, std::uint32_t entry) const {
    return Element<kKv>::value(values_[entry * args.d_v + dim]);
  }

 private:
  const Stored *keys_, *values_;
};
// Cache rows [latent | rest]: the key is all of it, the value its latent part.
template <plan::DType kKv>
struct LatentKeys {
  using Args = AttentionArgs<KvPages>;
  using Stored = typename Element<kKv>::Stored;
  static LLORCH_KERNEL Seen seen(const Args& args, std::uint32_t row) { return {0, args.from.positions[row] + 1}; }
  LLORCH_KERNEL LatentKeys(const Args& args, std::uint32_t row, std::uint32_t page, std::uint32_t)
      : keys_(reinterpret_cast<const Stored*>(args.from.of(row, page))) {}
  LLORCH_KERNEL float key(const Args&, std::uint32_t dim, std::uint32_t entry) const {
    return Element<kKv>::value(keys_[dim * kPage + entry]);
  }
  LLORCH_KERNEL float value(const Args& args, std::uint32_t dim, std::uint32_t entry) const {
    return key(args, dim, entry);
  }

 private:
  const Stored* keys_;
};
// The rows of the row's own span; its first row is position 0.
struct SpanKeys {
  using Args = AttentionArgs<SpanRows>;
  static LLORCH_KERNEL Seen seen(const Args& args, std::uint32_t row) {
    const Frame& frame = args.from.frames.of_row(row);
    const std::uint32_t length = frame.row_end - frame.row_begin, own = row - frame.row_begin;
    if (args.window == 0) return {0, length};
    return {own >= args.window ? own - args.window + 1 : 0, smaller(length, own + args.window)};
  }
  LLORCH_KERNEL SpanKeys(const Args& args, std::uint32_t row, std::uint32_t page, std::uint32_t kv_head)
      : first_row_(args.from.frames.of_row(row).row_begin + page * kPage), kv_head_(kv_head) {}
  LLORCH_KERNEL float key(const Args& args, std::uint32_t dim, std::uint32_t entry) const {
    return args.from.keys[(first_row_ + entry) * args.from.stride + std::uint64_t{kv_head_} * args.d_qk + dim];
  }
  LLORCH_KERNEL float value(const Args& args, std::uint32_t dim, std::uint32_t entry) const {
    return args.from.values[(first_row_ + entry) * args.from.stride + std::uint64_t{kv_head_} * args.d_v + dim];
  }

 private:
  std::uint64_t first_row_;
  std::uint32_t kv_head_;
};

inline constexpr std::uint32_t kAttentionThreads = 128;
inline constexpr std::uint32_t kHeadLanes =
    kAttentionThreads / kHeadsAtOnce;  // parts of a head that are joined at a time
static_assert(kHeadLanes == 16, "lanes of the sum over a page");

struct AttentionShared {
  float q[kHeadsAtOnce][kKeyDimMax];
  float p[kHeadsAtOnce][kPage];              // scores, then e^(score - largest of the page)
  float values[kHeadsAtOnce][kValueDimMax];  // of the split so far
  Softmax page[kHeadsAtOnce], split[kHeadsAtOnce], row[kHeadsAtOnce];
  Joining by[kHeadsAtOnce];
  Softmax part[kHeadsAtOnce][kHeadLanes];
  Joining by_part[kHeadsAtOnce][kHeadLanes];
  NarrowShared<kAttentionThreads> narrow;
};

// The heads of one block.
struct HeadRange {
  std::uint32_t first, count, kv_head;
};
template <class Source>
LLORCH_KERNEL HeadRange heads_of(const AttentionArgs<Source>& args, std::uint32_t unit) {
  const std::uint32_t group = args.heads / args.kv_heads, groups = args.head_groups();
  const std::uint32_t kv_head = unit / groups, first = unit % groups * kHeadsAtOnce;
  return {kv_head * group + first, smaller(group - first, kHeadsAtOnce), kv_head};
}

template <class Keys>
struct SplitAttention {
  using Args = typename Keys::Args;
  template <class Block>
  static LLORCH_KERNEL void load_queries(Block& block, AttentionShared& shared, const Args& args,
                                         const HeadRange& heads) {
    const float* q = args.q + block.y() * args.q_stride + std::uint64_t{heads.first} * args.d_qk;
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < heads.count * args.d_qk; i += kAttentionThreads)
        shared.q[i / args.d_qk][i % args.d_qk] = q[i];
    });
  }

  // shared.split and shared.values of split `split`. REQUIRES: the row sees a position of it.
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, AttentionShared& shared, const Args& args, const HeadRange& heads,
                                std::uint32_t row, std::uint32_t split, const Seen& seen) {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kAttentionThreads)
        shared.values[i / args.d_v][i % args.d_v] = 0.0f;
      if (thread < heads.count) shared.split[thread] = {minus_infinity(), 0.0f};
    });
    for (std::uint32_t page = split * kSplitPages; page < (split + 1) * kSplitPages; ++page) {
      const std::uint32_t at = page * kPage;
      if (at + kPage <= seen.begin || at >= seen.end) continue;
      const Keys keys(args, row, page, heads.kv_head);
      const std::uint32_t begin = seen.begin > at ? seen.begin - at : 0, end = smaller(seen.end - at, kPage);
      scores(block, shared, args, heads, keys, row, at, begin, end);
      probabilities(block, shared, heads, begin, end);
      add_values(block, shared, args, heads, keys, begin, end);
    }
  }

 private:
  static LLORCH_KERNEL bool is_chosen(const Args& args, std::uint32_t row, std::uint32_t position) {
    if (args.chosen == nullptr) return true;
    return (args.chosen[std::uint64_t{row} * args.chosen_words + position / 32] >> position % 32 & 1u) != 0;
  }
  template <class Block>
  static LLORCH_KERNEL void scores(Block& block, AttentionShared& shared, const Args& args, const HeadRange& heads,
                                   const Keys& keys, std::uint32_t row, std::uint32_t at, std::uint32_t begin,
                                   std::uint32_t end) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t entry = thread % kPage;
      if (entry < begin || entry >= end) return;
      const bool counts = is_chosen(args, row, at + entry);
      for (std::uint32_t h = thread / kPage; h < heads.count; h += kAttentionThreads / kPage) {
        float dot = 0.0f;
        for (std::uint32_t i = 0; i < args.d_qk; ++i) dot = fma(shared.q[h][i], keys.key(args, i, entry), dot);
        // Not minus infinity: a page may have none that counts, and what it then leaves is multiplied with 0.
        shared.p[h][entry] = counts ? soft_capped(dot * args.scale, args.softcap) : float_of(0xFF7FFFFFu);
      }
    });
  }
  // Sixteen threads to a head.
  template <class Block>
  static LLORCH_KERNEL void probabilities(Block& block, AttentionShared& shared, const HeadRange& heads,
                                          std::uint32_t begin, std::uint32_t end) {
    typename Block::template PerThread<float> sums;
    block.each([&](std::uint32_t thread) {
      if (thread >= heads.count) return;
      float largest = minus_infinity();
      for (std::uint32_t e = begin; e < end; ++e)
        largest = shared.p[thread][e] > largest ? shared.p[thread][e] : largest;
      shared.page[thread].largest = largest;
    });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t h = thread / 16;
      if (h >= heads.count) return;
      for (std::uint32_t e = thread % 16; e < end; e += 16) {
        if (e < begin) continue;
        shared.p[h][e] = exponential(shared.p[h][e] - shared.page[h].largest);
        sums[thread] = sums[thread] + shared.p[h][e];
      }
    });
    block.template sum_tree<16>(sums, [](float& sum) -> float& { return sum; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t h = thread / 16;
      if (h >= heads.count || thread % 16 != 0) return;
      shared.page[h].sum = sums[thread];
      shared.by[h] = join(shared.split[h], shared.page[h]);
    });
  }
  template <class Block>
  static LLORCH_KERNEL void add_values(Block& block, AttentionShared& shared, const Args& args, const HeadRange& heads,
                                       const Keys& keys, std::uint32_t begin, std::uint32_t end) {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kAttentionThreads) {
        const std::uint32_t h = i / args.d_v, dim = i % args.d_v;
        float sum = 0.0f;
        for (std::uint32_t e = begin; e < end; ++e) sum = fma(shared.p[h][e], keys.value(args, dim, e), sum);
        shared.values[h][dim] = joined(shared.values[h][dim], sum, shared.by[h]);
      }
    });
  }
};

// A row's total, sink included, divides its values. The sink joins as a position without a value.
LLORCH_KERNEL Joining with_sink(Softmax& row, const float* sinks, std::uint32_t head) {
  if (sinks == nullptr) return {1.0f, 0.0f};
  return join(row, {sinks[head], 1.0f});
}

// What a block has written of row y of out, its heads, in the forms that are wanted: int8 blocks are a head's own, an F16 row has one
// scale and is made by the last of the row's blocks.
template <class Block, class Source>
LLORCH_KERNEL void leave_heads(Block& block, AttentionShared& shared, const AttentionArgs<Source>& args,
                               const HeadRange& heads) {
  const std::uint64_t row = block.y();
  const float* out = args.out + row * args.heads * args.d_v;
  if (args.narrowed.bytes.q != nullptr)
    block.own([&](std::uint32_t thread) {
      const std::uint32_t first = heads.first * args.d_v / kBlockElements;
      for (std::uint32_t b = thread; b < heads.count * args.d_v / kBlockElements; b += kAttentionThreads)
        quantize_block(out + (first + b) * kBlockElements, args.narrowed.bytes, row, first + b);
    });
  if (args.narrowed.halves.values != nullptr &&
      block.arrives_last(args.arrival_counters + row, args.kv_heads * args.head_groups()))
    narrow_row(block, shared.narrow, out, args.narrowed.halves, row);
}

// All splits of a row in one block. Grid: kv heads * head_groups, rows.
template <class Keys>
struct AttentionWhole {
  using Args = typename Keys::Args;
  using Shared = AttentionShared;
  static constexpr std::uint32_t kThreads = kAttentionThreads;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const HeadRange heads = heads_of(args, block.x());
    const std::uint32_t row = args.first_row + block.y();
    const Seen seen = Keys::seen(args, row);
    float* out = args.out + (std::uint64_t{block.y()} * args.heads + heads.first) * args.d_v;
    SplitAttention<Keys>::load_queries(block, shared, args, heads);
    block.each([&](std::uint32_t thread) {
      if (thread < heads.count) shared.row[thread] = {minus_infinity(), 0.0f};
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads) out[i] = 0.0f;
    });
    for (std::uint32_t split = seen.begin / kSplit; split * kSplit < seen.end; ++split) {
      SplitAttention<Keys>::run(block, shared, args, heads, row, split, seen);
      block.each([&](std::uint32_t thread) {
        if (thread < heads.count) shared.by[thread] = join(shared.row[thread], shared.split[thread]);
      });
      block.each([&](std::uint32_t thread) {
        for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads)
          out[i] = joined(out[i], shared.values[i / args.d_v][i % args.d_v], shared.by[i / args.d_v]);
      });
    }
    block.each([&](std::uint32_t thread) {
      if (thread < heads.count) shared.by[thread] = with_sink(shared.row[thread], args.sinks, heads.first + thread);
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads)
        out[i] = divide(out[i] * shared.by[i / args.d_v].before, shared.row[i / args.d_v].sum);
    });
    leave_heads(block, shared, args, heads);
  }
};

// Splits of a row in blocks of their own; the last of them to arrive joins what they left, in the splits' order. Grid: kv heads *
// head_groups, rows, parts_max; part z is the z-th split that the row sees.
template <class Keys>
struct AttentionParts {
  using Args = typename Keys::Args;
  using Shared = AttentionShared;
  static constexpr std::uint32_t kThreads = kAttentionThreads;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const HeadRange heads = heads_of(args, block.x());
    const std::uint32_t row = args.first_row + block.y();
    const Seen seen = Keys::seen(args, row);
    const std::uint32_t split = seen.begin / kSplit + block.z();
    if (split * kSplit >= seen.end) return;
    SplitAttention<Keys>::load_queries(block, shared, args, heads);
    SplitAttention<Keys>::run(block, shared, args, heads, row, split, seen);
    const std::uint64_t first = (std::uint64_t{block.y()} * args.heads + heads.first) * args.parts_max;
    block.own([&](std::uint32_t thread) {
      const std::uint64_t part = first + block.z();
      if (thread < heads.count) args.parts[part + std::uint64_t{thread} * args.parts_max] = shared.split[thread];
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads)
        args.part_values[(part + std::uint64_t{i / args.d_v} * args.parts_max) * args.d_v + i % args.d_v] =
            shared.values[i / args.d_v][i % args.d_v];
    });
    const std::uint32_t units = args.kv_heads * args.head_groups();
    const std::uint32_t parts = (seen.end - 1) / kSplit - seen.begin / kSplit + 1;
    if (!block.arrives_last(args.arrival_counters + kRowArrivalCounters + block.y() * units + block.x(), parts)) return;
    join_parts(block, shared, args, heads, first, parts);
    leave_heads(block, shared, args, heads);
  }

 private:
  // The parts of the block's heads, kHeadLanes at a time, to out. Part 0 of its first head is `first`.
  template <class Block>
  static LLORCH_KERNEL void join_parts(Block& block, Shared& shared, const Args& args, const HeadRange& heads,
                                       std::uint64_t first, std::uint32_t parts) {
    block.each([&](std::uint32_t thread) {
      if (thread < heads.count) shared.row[thread] = {minus_infinity(), 0.0f};
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads)
        shared.values[i / args.d_v][i % args.d_v] = 0.0f;
    });
    for (std::uint32_t begin = 0; begin < parts; begin += kHeadLanes) {
      const std::uint32_t count = smaller(parts - begin, kHeadLanes);
      block.each([&](std::uint32_t thread) {
        const std::uint32_t h = thread / kHeadLanes, i = thread % kHeadLanes;
        if (h < heads.count && i < count)
          shared.part[h][i] = args.parts[first + std::uint64_t{h} * args.parts_max + begin + i];
      });
      // As `join` finds the row when it comes to part i.
      block.each([&](std::uint32_t thread) {
        const std::uint32_t h = thread / kHeadLanes, i = thread % kHeadLanes;
        if (h >= heads.count || i >= count) return;
        float largest = shared.row[h].largest;
        for (std::uint32_t before = 0; before < i; ++before)
          largest = larger_score(largest, shared.part[h][before].largest);
        shared.by_part[h][i] = joining(largest, shared.part[h][i].largest);
      });
      block.each([&](std::uint32_t thread) {
        if (thread < heads.count)
          for (std::uint32_t i = 0; i < count; ++i) join(shared.row[thread], shared.part[thread][i]);
        for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads) {
          const std::uint32_t h = i / args.d_v, dim = i % args.d_v;
          const float* values = args.part_values + (first + std::uint64_t{h} * args.parts_max + begin) * args.d_v + dim;
          float value = shared.values[h][dim];
          for (std::uint32_t part = 0; part < count; ++part)
            value = joined(value, values[std::uint64_t{part} * args.d_v], shared.by_part[h][part]);
          shared.values[h][dim] = value;
        }
      });
    }
    block.each([&](std::uint32_t thread) {
      if (thread < heads.count) shared.by[thread] = with_sink(shared.row[thread], args.sinks, heads.first + thread);
    });
    block.each([&](std::uint32_t thread) {
      float* out = args.out + (std::uint64_t{block.y()} * args.heads + heads.first) * args.d_v;
      for (std::uint32_t i = thread; i < heads.count * args.d_v; i += kThreads)
        out[i] = divide(shared.values[i / args.d_v][i % args.d_v] * shared.by[i / args.d_v].before,
                        shared.row[i / args.d_v].sum);
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
