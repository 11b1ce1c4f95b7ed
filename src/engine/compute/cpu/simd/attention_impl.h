// Key/value pages and attention. Included inside the namespace of one instruction set.

struct KvF32 {
  using Element = float;
  static LLORCH_INLINE F32x16 lanes(const float* p) { return load(p); }
  static LLORCH_INLINE F32x16 lanes_n(const float* p, std::size_t n) { return load_n(p, n); }
  static LLORCH_INLINE void encode(float* p, F32x16 a) { store(p, a); }
};
struct KvF16 {
  using Element = std::uint16_t;
  static LLORCH_INLINE F32x16 lanes(const std::uint16_t* p) { return load_f16(p); }
  static LLORCH_INLINE F32x16 lanes_n(const std::uint16_t* p, std::size_t n) { return load_f16_n(p, n); }
  static LLORCH_INLINE void encode(std::uint16_t* p, F32x16 a) { store_f16(p, a); }
};

LLORCH_INLINE std::byte* page_of(const KvPages& kv, std::size_t row, std::size_t position) {
  return kv.pages[kv.sequence_of_row[row] * kv.pages_stride + position / kPagePositions] + kv.offset_bytes;
}

// Writes count elements, `stride` apart, as the cache stores them.
template <class Kv>
LLORCH_INLINE void scatter_elements(const float* source, std::size_t count, typename Kv::Element* target,
                                    std::size_t stride) {
  for (std::size_t i = 0; i < count; i += 16) {
    const std::size_t n = count - i < 16 ? count - i : 16;
    typename Kv::Element encoded[16];
    Kv::encode(encoded, n == 16 ? load(source + i) : load_n(source + i, n));
    for (std::size_t j = 0; j < n; ++j) target[(i + j) * stride] = encoded[j];
  }
}

template <class Kv>
inline void kv_append_rows(const KvAppendArgs& args, Range rows) {
  using Element = typename Kv::Element;
  const KvLayout& layout = args.layout;
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const std::size_t position = args.pages.positions[row], entry = position % kPagePositions;
    std::byte* page = page_of(args.pages, row, position);
    for (std::size_t head = 0; head < layout.kv_heads; ++head) {
      auto* keys = reinterpret_cast<Element*>(page + layout.key_offset(head));
      auto* values = reinterpret_cast<Element*>(page + layout.value_offset(head));
      scatter_elements<Kv>(args.keys + row * args.key_stride + head * layout.key_dim, layout.key_dim, keys + entry,
                           kPagePositions);
      scatter_elements<Kv>(args.values + row * args.value_stride + head * layout.value_dim, layout.value_dim,
                           values + entry * layout.value_dim, 1);
    }
  }
}
inline void kv_append(const KvAppendArgs& args, Range rows) {
  return args.layout.type == KvType::kF32 ? kv_append_rows<KvF32>(args, rows) : kv_append_rows<KvF16>(args, rows);
}

// The positions one row sees, and where its scores begin.
struct Visible {
  std::size_t begin, end;  // positions
  std::size_t base;        // begin rounded down to a page: scores[p - base]
  std::size_t origin;      // the softmax's sums count lanes from here
};
LLORCH_INLINE Visible visible_positions(const AttentionArgs& args, std::size_t row) {
  if (args.span_begin != nullptr) {  // where a span lies among its neighbours must not show: lanes count from its start
    const std::size_t begin = args.span_begin[row];
    return {begin, args.span_end[row], begin / kPagePositions * kPagePositions, begin};
  }
  const std::size_t end = static_cast<std::size_t>(args.pages.positions[row]) + 1;
  const std::size_t begin = args.chunked                            ? (end - 1) / args.window * args.window
                            : args.window != 0 && end > args.window ? end - args.window
                                                                    : 0;
  const std::size_t base = begin / kPagePositions * kPagePositions;
  return {begin, end, base, base};
}

// Sixteen lanes of which only positions in [seen.begin, seen.end) count; the others become `otherwise`.
LLORCH_INLINE F32x16 mask_positions(F32x16 v, std::size_t position, const Visible& seen, F32x16 otherwise) {
  if (position >= seen.begin && position + 16 <= seen.end) return v;
  const I32x16 lane = lane_numbers();
  const auto relative = [&](std::size_t p) {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(p) - static_cast<std::int64_t>(position));
  };
  v = select(less(lane, set1_i(relative(seen.end))), v, otherwise);
  return select(less(lane, set1_i(relative(seen.begin))), otherwise, v);
}

// Scores of one head against one page: dot products, dimensions in increasing order, four times sixteen positions.
template <class Kv>
LLORCH_INLINE void page_scores(const AttentionArgs& args, const float* q, const typename Kv::Element* keys,
                               std::size_t first, const Visible& seen, float* scores) {
  constexpr int kBlocks = 4;
  F32x16 dots[kBlocks];
  for (F32x16& dot : dots) dot = set1(0.0f);
  for (std::size_t i = 0; i < args.layout.key_dim; ++i) {
    const F32x16 qi = set1(q[i]);
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) dots[b] = fma(qi, Kv::lanes(keys + i * kPagePositions + 16 * b), dots[b]);
  }
  const F32x16 scale = set1(args.scale), cap = set1(args.softcap), minus_infinity = set1(-__builtin_inff());
  for (int b = 0; b < kBlocks; ++b) {
    F32x16 s = mul(dots[b], scale);
    if (args.softcap > 0) s = softcap_lanes(s, cap);
    store(scores + 16 * b, mask_positions(s, first + 16 * static_cast<std::size_t>(b), seen, minus_infinity));
  }
}

// scores -> e^(score - max); returns the sum: lane = position mod 16, positions increasing, then the tree, then the sink.
LLORCH_INLINE float exp_scores(float* scores, std::size_t count, const float* sink) {
  F32x16 largest = load(scores);
  for (std::size_t i = 16; i < count; i += 16) largest = max(largest, load(scores + i));
  float most = tree_max(largest);
  if (sink != nullptr && *sink > most) most = *sink;
  const F32x16 top = set1(most);
  F32x16 sums = set1(0.0f);
  for (std::size_t i = 0; i < count; i += 16) {
    const F32x16 p = exp_lanes(sub(load(scores + i), top));
    store(scores + i, p);
    sums = add(sums, p);
  }
  if (sink == nullptr) return tree_sum(sums);
  alignas(64) float sink_share[16];
  store(sink_share, exp_lanes(sub(set1(*sink), top)));
  return tree_sum(sums) + sink_share[0];
}

// out[0, 16 * kVectors) += sum over entries of p * value, entries in increasing order.
template <class Kv, int kVectors>
LLORCH_INLINE void accumulate_values(const typename Kv::Element* values, std::size_t stride, const float* p,
                                     Range entries, float* out) {
  F32x16 sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = load(out + 16 * v);
  for (std::size_t e = entries.begin; e < entries.end; ++e) {
    const F32x16 pe = set1(p[e]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = fma(pe, Kv::lanes(values + e * stride + 16 * v), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) store(out + 16 * v, sums[v]);
}
template <class Kv>
LLORCH_INLINE void page_values(const typename Kv::Element* values, std::size_t dims, const float* p, Range entries,
                               float* out) {
  std::size_t i = 0;
  for (; i + 64 <= dims; i += 64) accumulate_values<Kv, 4>(values + i, dims, p, entries, out + i);
  for (; i + 16 <= dims; i += 16) accumulate_values<Kv, 1>(values + i, dims, p, entries, out + i);
  if (i == dims) return;
  const std::size_t n = dims - i;
  F32x16 sums = load_n(out + i, n);
  for (std::size_t e = entries.begin; e < entries.end; ++e)
    sums = fma(set1(p[e]), Kv::lanes_n(values + e * dims + i, n), sums);
  store_n(out + i, sums, n);
}

// All query heads of one kv head for one row: every page is read once for its keys and once for its values.
template <class Kv>
inline void attend(const AttentionArgs& args, std::size_t row, std::size_t kv_head) {
  using Element = typename Kv::Element;
  const KvLayout& layout = args.layout;
  const std::size_t group = args.heads / layout.kv_heads, first_head = kv_head * group;
  const Visible seen = visible_positions(args, row);
  const float* q = args.q + row * args.q_stride + first_head * layout.key_dim;
  float* out = args.out + row * args.out_stride + first_head * layout.value_dim;
  for (std::size_t at = seen.base; at < seen.end; at += kPagePositions) {
    const auto* keys = reinterpret_cast<const Element*>(page_of(args.pages, row, at) + layout.key_offset(kv_head));
    for (std::size_t h = 0; h < group; ++h)
      page_scores<Kv>(args, q + h * layout.key_dim, keys, at, seen,
                      args.scores + h * args.scores_stride + (at - seen.base));
  }
  const std::size_t width = group * layout.value_dim;
  for (std::size_t i = 0; i < width; ++i) out[i] = 0.0f;
  const std::size_t pages = (seen.end - seen.base + kPagePositions - 1) / kPagePositions;
  for (std::size_t h = 0; h < group; ++h) {
    float* scores = args.scores + h * args.scores_stride;
    // A span that begins inside sixteen positions may end its last sixteen behind the last page.
    store(scores + pages * kPagePositions, set1(-__builtin_inff()));
    const std::size_t count = (seen.end - seen.origin + 15) / 16 * 16;
    const float* sink = args.sinks != nullptr ? args.sinks + first_head + h : nullptr;
    // The row's own denominator waits behind its scores.
    scores[pages * kPagePositions] = exp_scores(scores + (seen.origin - seen.base), count, sink);
  }
  for (std::size_t at = seen.base; at < seen.end; at += kPagePositions) {
    const auto* values = reinterpret_cast<const Element*>(page_of(args.pages, row, at) + layout.value_offset(kv_head));
    const Range entries{seen.begin > at ? seen.begin - at : 0,
                        seen.end - at < kPagePositions ? seen.end - at : kPagePositions};
    for (std::size_t h = 0; h < group; ++h)
      page_values<Kv>(values, layout.value_dim, args.scores + h * args.scores_stride + (at - seen.base), entries,
                      out + h * layout.value_dim);
  }
  for (std::size_t h = 0; h < group; ++h) {
    const F32x16 total = set1(args.scores[h * args.scores_stride + pages * kPagePositions]);
    float* o = out + h * layout.value_dim;
    for_lanes(
        layout.value_dim, [&](std::size_t i) { store(o + i, div(load(o + i), total)); },
        [&](std::size_t i, std::size_t n) { store_n(o + i, div(load_n(o + i, n), total), n); });
  }
}

inline void attention(const AttentionArgs& args, Range units) {
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t row = unit / args.layout.kv_heads, kv_head = unit % args.layout.kv_heads;
    if (args.layout.type == KvType::kF32) {
      attend<KvF32>(args, row, kv_head);
    } else {
      attend<KvF16>(args, row, kv_head);
    }
  }
}
