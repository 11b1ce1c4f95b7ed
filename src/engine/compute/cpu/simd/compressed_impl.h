// Entries that rows of a window become, and attention to rows and entries. Included inside the namespace of one instruction set, after
// attention_impl.h and ssm_impl.h.

// What is known of a window in sixteen channels: largest logit, sum of weights, weighed sum. A sum of 0: nothing yet.
struct WindowSums {
  F32x16 largest, sum, weighed;
};
LLORCH_INLINE void add_to_window(WindowSums& w, F32x16 gate, F32x16 value) {
  const F32x16 zero = set1(0.0f);
  const Mask16 holds = less(zero, w.sum);
  const F32x16 largest = select(holds, max(w.largest, gate), gate);
  const F32x16 kept = select(holds, exp_lanes(sub(w.largest, largest)), zero), weight = exp_lanes(sub(gate, largest));
  w.sum = fma(w.sum, kept, weight);
  w.weighed = fma(w.weighed, kept, mul(weight, value));
  w.largest = largest;
}
LLORCH_INLINE WindowSums load_window(const float* state, std::size_t dim, std::size_t c, std::size_t n) {
  return {load_some(state + c, n), load_some(state + dim + c, n), load_some(state + 2 * dim + c, n)};
}
LLORCH_INLINE void store_window(const WindowSums& w, float* state, std::size_t dim, std::size_t c, std::size_t n) {
  store_some(state + c, w.largest, n);
  store_some(state + dim + c, w.sum, n);
  store_some(state + 2 * dim + c, w.weighed, n);
}

inline void compress_span(const CompressScanArgs& args, std::size_t span, std::size_t c, std::size_t n) {
  const std::size_t own = args.overlaps ? args.dim : 0, columns = own + args.dim;
  const WindowSums nothing{set1(0.0f), set1(0.0f), set1(0.0f)};
  float* state = state_of(args.state, args.spans, span);
  WindowSums now = load_window(state, args.dim, c, n), next = nothing;
  if (args.overlaps) next = load_window(state + 3 * args.dim, args.dim, c, n);
  for (std::size_t row = args.spans.row_offsets[span]; row < args.spans.row_offsets[span + 1]; ++row) {
    const std::size_t place = args.positions[row] % args.rate;
    const float *kv = args.kv + row * args.stride + c, *gate = args.gate + row * args.stride + c;
    const float* bias = args.bias + place * columns + c;
    const auto logits = [&](std::size_t from) { return add(load_some(gate + from, n), load_some(bias + from, n)); };
    add_to_window(now, logits(own), load_some(kv + own, n));
    if (args.overlaps) add_to_window(next, logits(0), load_some(kv, n));
    float* y = args.y + row * args.y_stride + c;
    if (place + 1 != args.rate) {
      store_some(y, set1(0.0f), n);
      continue;
    }
    store_some(y, div(now.weighed, now.sum), n);
    now = next;
    next = nothing;
  }
  store_window(now, state, args.dim, c, n);
  if (args.overlaps) store_window(next, state + 3 * args.dim, args.dim, c, n);
}

inline void compress_scan(const CompressScanArgs& args, Range blocks) {
  for (std::size_t block = blocks.begin; block < blocks.end; ++block) {
    const std::size_t c = 16 * block, n = args.dim - c < 16 ? args.dim - c : 16;
    for (std::size_t span = 0; span < args.spans.count; ++span) compress_span(args, span, c, n);
  }
}

// Where the row of a position lies, and entry number e.
template <class Kv>
LLORCH_INLINE typename Kv::Element* row_of(const CompressedCache& cache, std::size_t row, std::size_t position) {
  auto* part = reinterpret_cast<typename Kv::Element*>(page_of(cache.pages, row, position));
  return part + position % kPagePositions * cache.head_dim;
}
template <class Kv>
LLORCH_INLINE typename Kv::Element* entry_of(const CompressedCache& cache, std::size_t row, std::size_t e,
                                             std::size_t offset, std::size_t dim) {
  const std::size_t last = (e + 1) * cache.rate - 1;  // the position that ends its window
  auto* part = reinterpret_cast<typename Kv::Element*>(page_of(cache.pages, row, last));
  return part + offset + last % kPagePositions / cache.rate * dim;
}

template <class Kv>
inline void append_compressed(const CompressedAppendArgs& args, Range rows) {
  const CompressedCache& cache = args.cache;
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const std::size_t position = cache.pages.positions[row];
    scatter_elements<Kv>(args.kv + row * args.kv_stride, cache.head_dim, row_of<Kv>(cache, row, position), 1);
    if (cache.rate == 0 || (position + 1) % cache.rate != 0) continue;
    const std::size_t e = position / cache.rate;
    const float* entry = args.entries + row * (cache.head_dim + cache.index_dim);
    scatter_elements<Kv>(entry, cache.head_dim, entry_of<Kv>(cache, row, e, cache.entry_offset, cache.head_dim), 1);
    if (cache.index_dim != 0)
      scatter_elements<Kv>(entry + cache.head_dim, cache.index_dim,
                           entry_of<Kv>(cache, row, e, cache.index_offset, cache.index_dim), 1);
  }
}
inline void compressed_append(const CompressedAppendArgs& args, Range rows) {
  return args.cache.type == KvType::kF32 ? append_compressed<KvF32>(args, rows) : append_compressed<KvF16>(args, rows);
}

// dots[h] = q_h . key for kHeads heads, which are `dim` apart.
template <class Kv, int kHeads>
LLORCH_INLINE void row_dots(const float* q, const typename Kv::Element* key, std::size_t dim, float* dots,
                            std::size_t dots_stride) {
  F32x16 sums[kHeads];
  for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) { sums[decltype(h)::value] = set1(0.0f); });
  for_lanes(
      dim,
      [&](std::size_t i) {
        const F32x16 k = Kv::lanes(key + i);
        for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) {
          sums[decltype(h)::value] = fma(load(q + decltype(h)::value * dim + i), k, sums[decltype(h)::value]);
        });
      },
      [&](std::size_t i, std::size_t n) {
        const F32x16 k = Kv::lanes_n(key + i, n);
        for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) {
          const F32x16 product = fma(load_n(q + decltype(h)::value * dim + i, n), k, sums[decltype(h)::value]);
          sums[decltype(h)::value] = keep_lanes(product, n, sums[decltype(h)::value]);
        });
      });
  for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) {
    dots[decltype(h)::value * dots_stride] = tree_sum(sums[decltype(h)::value]);
  });
}

template <class Kv>
inline void score_entries(const CompressedScoresArgs& args, std::size_t row) {
  const CompressedCache& cache = args.cache;
  const std::size_t count = (cache.pages.positions[row] + std::size_t{1}) / cache.rate;
  const float *q = args.q + row * args.q_stride, *weights = args.weights + row * args.weights_stride;
  for (std::size_t e = 0; e < count; ++e) {
    const auto* key = entry_of<Kv>(cache, row, e, cache.index_offset, cache.index_dim);
    float sum = 0.0f;
    for (std::size_t h = 0; h < args.heads; ++h) {
      float dot;
      row_dots<Kv, 1>(q + h * cache.index_dim, key, cache.index_dim, &dot, 1);
      sum = __builtin_fmaf(weights[h], dot > 0.0f ? dot : 0.0f, sum);
    }
    args.scores[e] = sum * args.scale;
  }
}
inline void compressed_scores(const CompressedScoresArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    if (args.cache.type == KvType::kF32) {
      score_entries<KvF32>(args, row);
    } else {
      score_entries<KvF16>(args, row);
    }
  }
}

// What a row attends to, in order; how many.
template <class Kv>
inline std::size_t attended_keys(const CompressedAttentionArgs& args, std::size_t row) {
  const CompressedCache& cache = args.cache;
  const std::size_t end = cache.pages.positions[row] + std::size_t{1};
  std::size_t count = 0;
  for (std::size_t p = end > args.window ? end - args.window : 0; p < end; ++p)
    args.keys[count++] = row_of<Kv>(cache, row, p);
  const std::size_t entries = cache.rate == 0 ? 0 : end / cache.rate;
  const std::uint32_t* chosen = args.chosen != nullptr ? args.chosen + row * args.chosen_words : nullptr;
  for (std::size_t e = 0; e < entries; ++e)
    if (chosen == nullptr || (chosen[e / 32] >> e % 32 & 1U) != 0)
      args.keys[count++] = entry_of<Kv>(cache, row, e, cache.entry_offset, cache.head_dim);
  return count;
}

// out[h] = sum of p_h * key / total_h, keys in order, for kHeads heads.
template <class Kv, int kHeads>
inline void sum_keys(const CompressedAttentionArgs& args, std::size_t count, const float (&totals)[kHeads],
                     float* out) {
  using Element = typename Kv::Element;
  const auto apply = [&](std::size_t i, std::size_t n) __attribute__((always_inline)) {
    F32x16 sums[kHeads];
    for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) { sums[decltype(h)::value] = set1(0.0f); });
    for (std::size_t l = 0; l < count; ++l) {
      const auto* key = static_cast<const Element*>(args.keys[l]) + i;
      const F32x16 k = n == 16 ? Kv::lanes(key) : Kv::lanes_n(key, n);
      for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) {
        const F32x16 p = set1(args.scores[decltype(h)::value * args.scores_stride + l]);
        sums[decltype(h)::value] = fma(p, k, sums[decltype(h)::value]);
      });
    }
    for_groups<0, kHeads>([&](auto h) __attribute__((always_inline)) {
      store_some(out + decltype(h)::value * args.cache.head_dim + i,
                 div(sums[decltype(h)::value], set1(totals[decltype(h)::value])), n);
    });
  };
  for_lanes(
      args.cache.head_dim, [&](std::size_t i) { apply(i, 16); }, [&](std::size_t i, std::size_t n) { apply(i, n); });
}

template <class Kv, int kHeads>
inline void attend_keys(const CompressedAttentionArgs& args, std::size_t row, std::size_t head, std::size_t count) {
  const std::size_t dim = args.cache.head_dim, at = (row * args.heads + head) * dim, rounded = (count + 15) / 16 * 16;
  for (std::size_t l = 0; l < count; ++l)
    row_dots<Kv, kHeads>(args.q + at, static_cast<const typename Kv::Element*>(args.keys[l]), dim, args.scores + l,
                         args.scores_stride);
  float totals[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    float* scores = args.scores + h * args.scores_stride;
    for (std::size_t l = 0; l < count; ++l) scores[l] *= args.scale;
    for (std::size_t l = count; l < rounded; ++l) scores[l] = -__builtin_inff();
    totals[h] = exp_scores(scores, rounded, args.sinks + head + h);
  }
  sum_keys<Kv, kHeads>(args, count, totals, args.out + at);
}

template <class Kv>
inline void compressed_unit(const CompressedAttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t count = attended_keys<Kv>(args, row);
  if (head + kCompressedHeads <= args.heads) return attend_keys<Kv, kCompressedHeads>(args, row, head, count);
  for (; head < args.heads; ++head) attend_keys<Kv, 1>(args, row, head, count);
}

inline void compressed_attention(const CompressedAttentionArgs& args, Range units) {
  const std::size_t per_row = (args.heads + kCompressedHeads - 1) / kCompressedHeads;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t row = unit / per_row, head = unit % per_row * kCompressedHeads;
    if (args.cache.type == KvType::kF32) {
      compressed_unit<KvF32>(args, row, head);
    } else {
      compressed_unit<KvF16>(args, row, head);
    }
  }
}
