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
  if (args.span_begin !=
      nullptr) {  // where a span lies among its neighbours must not show: lanes count from what the row sees
    std::size_t begin = args.span_begin[row], end = args.span_end[row];
    const std::size_t own = args.pages.positions[row];
    if (args.window != 0 && own - begin >= args.window) begin = own - args.window + 1;
    if (args.window != 0 && end - own > args.window) end = own + args.window;
    return {begin, end, begin / kPagePositions * kPagePositions, begin};
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

// Keys or values of a page, and those that are read after them: where these lie no processor guesses, so each line of them is
// asked for when its like is read. `next` may be `now`.
template <class Kv>
struct PageData {
  const typename Kv::Element* now;
  const typename Kv::Element* next;
  LLORCH_INLINE PageData from(std::size_t i) const { return {now + i, next + i}; }
};
// Pages of a row's sequence, one after the other; `work(page, position it begins with)`.
template <class Kv, class Work>
LLORCH_INLINE void for_pages(const KvPages& pages, std::size_t row, const Visible& seen, const Work& work) {
  const auto page = [&](std::size_t p) {
    return reinterpret_cast<const typename Kv::Element*>(page_of(pages, row, p));
  };
  for (std::size_t at = 0; at < seen.end; at += kPagePositions)
    work(PageData<Kv>{page(at), page(at + kPagePositions < seen.end ? at + kPagePositions : at)}, at);
}

template <int kCount, class Element>
LLORCH_INLINE void prefetch_elements(const Element* p) {
  constexpr int kLine = 64 / sizeof(Element);
  for_groups<0, (kCount + kLine - 1) / kLine>([&](auto line) __attribute__((always_inline)) {
    __builtin_prefetch(p + decltype(line)::value * kLine);
  });
}

// Vectors of sixteen that a tile of so many heads has beside each other: its sums stay in registers.
constexpr int tile_vectors(int heads) { return kTileSums / heads < kTileVectors ? kTileSums / heads : kTileVectors; }

// Scores of kHeads heads against 16 * tile_vectors(kHeads) positions of a page: dot products, dimensions in increasing order. A
// key is loaded and widened once for all of them. Row h of q and scores is head h.
template <class Kv, int kHeads>
LLORCH_INLINE void block_scores(const AttentionArgs& args, const float* q, const PageData<Kv>& page, std::size_t first,
                                const Visible& seen, float* scores) {
  constexpr int kBlocks = tile_vectors(kHeads);
  F32x16 dots[kHeads][kBlocks];
  for_groups<0, kHeads * kBlocks>([&](auto n) __attribute__((always_inline)) {
    dots[decltype(n)::value / kBlocks][decltype(n)::value % kBlocks] = set1(0.0f);
  });
  const std::size_t dims = args.layout.key_dim;
  for (std::size_t i = 0; i < dims; ++i) {
    F32x16 key[kBlocks];
    for_groups<0, kBlocks>([&](auto n) __attribute__((always_inline)) {
      key[decltype(n)::value] = Kv::lanes(page.now + i * kPagePositions + 16 * decltype(n)::value);
    });
    prefetch_elements<16 * kBlocks>(page.next + i * kPagePositions);
    for_groups<0, kHeads>([&](auto head) __attribute__((always_inline)) {
      constexpr int h = decltype(head)::value;
      const F32x16 qi = set1(q[h * dims + i]);
      for_groups<0, kBlocks>([&](auto n) __attribute__((always_inline)) {
        dots[h][decltype(n)::value] = fma(qi, key[decltype(n)::value], dots[h][decltype(n)::value]);
      });
    });
  }
  const F32x16 scale = set1(args.scale), cap = set1(args.softcap), minus_infinity = set1(-__builtin_inff());
  for_groups<0, kHeads * kBlocks>([&](auto number) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(number)::value / kBlocks, n = decltype(number)::value % kBlocks;
    F32x16 s = mul(dots[h][n], scale);
    if (args.softcap > 0) s = softcap_lanes(s, cap);
    store(scores + h * args.scores_stride + 16 * n, mask_positions(s, first + 16 * n, seen, minus_infinity));
  });
}
template <class Kv, int kHeads>
__attribute__((noinline)) void page_scores(const AttentionArgs& args, const float* q, const PageData<Kv>& keys,
                                           std::size_t first, const Visible& seen, float* scores) {
  for (std::size_t n = 0; n < kPagePositions; n += 16 * tile_vectors(kHeads))
    block_scores<Kv, kHeads>(args, q, keys.from(n), first + n, seen, scores + n);
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

// What the heads of a tile add up: p [heads, p_stride] over entries of a page, out [heads, out_stride].
struct ValueSums {
  const float* p;
  std::size_t p_stride;
  Range entries;
  float* out;
  std::size_t out_stride;
};
// out[h][0, 16 * kVectors) += sum over entries of p[h] * value, entries in increasing order; a value is widened once for all.
template <class Kv, int kHeads, int kVectors>
LLORCH_INLINE void accumulate_values(const PageData<Kv>& page, std::size_t stride, const ValueSums& to) {
  F32x16 sums[kHeads][kVectors];
  for_groups<0, kHeads * kVectors>([&](auto n) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(n)::value / kVectors, v = decltype(n)::value % kVectors;
    sums[h][v] = load(to.out + h * to.out_stride + 16 * v);
  });
  for (std::size_t e = to.entries.begin; e < to.entries.end; ++e) {
    F32x16 value[kVectors];
    for_groups<0, kVectors>([&](auto v) __attribute__((always_inline)) {
      value[decltype(v)::value] = Kv::lanes(page.now + e * stride + 16 * decltype(v)::value);
    });
    prefetch_elements<16 * kVectors>(page.next + e * stride);
    for_groups<0, kHeads>([&](auto head) __attribute__((always_inline)) {
      constexpr int h = decltype(head)::value;
      const F32x16 pe = set1(to.p[h * to.p_stride + e]);
      for_groups<0, kVectors>([&](auto v) __attribute__((always_inline)) {
        sums[h][decltype(v)::value] = fma(pe, value[decltype(v)::value], sums[h][decltype(v)::value]);
      });
    });
  }
  for_groups<0, kHeads * kVectors>([&](auto n) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(n)::value / kVectors, v = decltype(n)::value % kVectors;
    store(to.out + h * to.out_stride + 16 * v, sums[h][v]);
  });
}
template <class Kv, int kHeads>
__attribute__((noinline)) void page_values(const PageData<Kv>& values, std::size_t dims, const ValueSums& to) {
  constexpr int kVectors = tile_vectors(kHeads);
  constexpr std::size_t kWide = 16 * kVectors;
  const auto from = [&](std::size_t i) { return ValueSums{to.p, to.p_stride, to.entries, to.out + i, to.out_stride}; };
  std::size_t i = 0;
  for (; i + kWide <= dims; i += kWide) accumulate_values<Kv, kHeads, kVectors>(values.from(i), dims, from(i));
  for (; i + 16 <= dims; i += 16) accumulate_values<Kv, kHeads, 1>(values.from(i), dims, from(i));
  if (i == dims) return;
  const std::size_t n = dims - i;
  for (std::size_t h = 0; h < kHeads; ++h) {
    float* out = to.out + h * to.out_stride + i;
    F32x16 sums = load_n(out, n);
    for (std::size_t e = to.entries.begin; e < to.entries.end; ++e)
      sums = fma(set1(to.p[h * to.p_stride + e]), Kv::lanes_n(values.now + e * dims + i, n), sums);
    store_n(out, sums, n);
  }
}

// body(GroupNumber<n>, first head) over tiles of kHeadTile heads, then of half as many, down to single ones.
template <int kTile = kHeadTile, class Body>
LLORCH_INLINE void for_head_tiles(std::size_t heads, const Body& body, std::size_t h = 0) {
  for (; h + kTile <= heads; h += kTile) body(GroupNumber<kTile>{}, h);
  if constexpr (kTile > 1) for_head_tiles<kTile / 2>(heads, body, h);
}

// Rows of one sequence that meet the same pages, for all query heads of one kv head: a page is brought into the first-level
// cache once for its keys and once for its values.
struct RowTile {
  std::size_t first, count;  // count <= kAttentionRows
  Visible seen[kAttentionRows];
  std::size_t base, end;  // what any of them sees
  bool sees(std::size_t r, std::size_t page) const { return page >= seen[r].base && page < seen[r].end; }
};
LLORCH_INLINE RowTile row_tile(const AttentionArgs& args, std::size_t first, std::size_t end) {
  const std::uint32_t* sequence = args.pages.sequence_of_row;
  RowTile tile{.first = first, .count = 0, .seen = {}, .base = SIZE_MAX, .end = 0};
  for (std::size_t row = first; row < end && tile.count < kAttentionRows && sequence[row] == sequence[first]; ++row) {
    const Visible seen = visible_positions(args, row);
    tile.seen[tile.count++] = seen;
    if (seen.base < tile.base) tile.base = seen.base;
    if (seen.end > tile.end) tile.end = seen.end;
  }
  return tile;
}

// The scores of row r of a tile for the heads of a kv head: [heads / kv_heads, scores_stride], page by page from seen[r].base.
LLORCH_INLINE float* scores_of(const AttentionArgs& args, std::size_t r) {
  return args.scores + r * (args.heads / args.layout.kv_heads) * args.scores_stride;
}

template <class Kv>
LLORCH_INLINE PageData<Kv> page_data(const KvPages& pages, const RowTile& tile, std::size_t at, std::size_t offset) {
  const std::size_t next = at + kPagePositions < tile.end ? at + kPagePositions : at;
  const auto data = [&](std::size_t position) {
    return reinterpret_cast<const typename Kv::Element*>(page_of(pages, tile.first, position) + offset);
  };
  return {data(at), data(next)};
}

template <class Kv>
LLORCH_INLINE void tile_scores(const AttentionArgs& args, const RowTile& tile, std::size_t kv_head) {
  const KvLayout& layout = args.layout;
  const std::size_t group = args.heads / layout.kv_heads;
  for (std::size_t at = tile.base; at < tile.end; at += kPagePositions) {
    PageData<Kv> keys = page_data<Kv>(args.pages, tile, at, layout.key_offset(kv_head));
    for (std::size_t r = 0; r < tile.count; ++r) {
      if (!tile.sees(r, at)) continue;
      const float* q = args.q + (tile.first + r) * args.q_stride + kv_head * group * layout.key_dim;
      float* scores = scores_of(args, r) + (at - tile.seen[r].base);
      for_head_tiles(group, [&](auto heads, std::size_t h) {
        page_scores<Kv, decltype(heads)::value>(args, q + h * layout.key_dim, keys, at, tile.seen[r],
                                                scores + h * args.scores_stride);
        keys.next = keys.now;  // asked for once
      });
    }
  }
}

template <class Kv>
LLORCH_INLINE void tile_values(const AttentionArgs& args, const RowTile& tile, std::size_t kv_head) {
  const KvLayout& layout = args.layout;
  const std::size_t group = args.heads / layout.kv_heads;
  for (std::size_t at = tile.base; at < tile.end; at += kPagePositions) {
    PageData<Kv> values = page_data<Kv>(args.pages, tile, at, layout.value_offset(kv_head));
    for (std::size_t r = 0; r < tile.count; ++r) {
      if (!tile.sees(r, at)) continue;
      const Visible& seen = tile.seen[r];
      const Range entries{seen.begin > at ? seen.begin - at : 0,
                          seen.end - at < kPagePositions ? seen.end - at : kPagePositions};
      const float* p = scores_of(args, r) + (at - seen.base);
      float* out = args.out + (tile.first + r) * args.out_stride + kv_head * group * layout.value_dim;
      for_head_tiles(group, [&](auto heads, std::size_t h) {
        page_values<Kv, decltype(heads)::value>(values, layout.value_dim,
                                                {.p = p + h * args.scores_stride,
                                                 .p_stride = args.scores_stride,
                                                 .entries = entries,
                                                 .out = out + h * layout.value_dim,
                                                 .out_stride = layout.value_dim});
        values.next = values.now;
      });
    }
  }
}

// Scores of one row and head to e^(score - max); the row's own denominator waits behind its scores.
inline void row_softmax(const Visible& seen, float* scores, const float* sink) {
  const std::size_t pages = (seen.end - seen.base + kPagePositions - 1) / kPagePositions;
  // A span that begins inside sixteen positions may end its last sixteen behind the last page.
  store(scores + pages * kPagePositions, set1(-__builtin_inff()));
  const std::size_t count = (seen.end - seen.origin + 15) / 16 * 16;
  scores[pages * kPagePositions] = exp_scores(scores + (seen.origin - seen.base), count, sink);
}
LLORCH_INLINE float denominator(const Visible& seen, const float* scores) {
  return scores[(seen.end - seen.base + kPagePositions - 1) / kPagePositions * kPagePositions];
}

template <class Kv>
inline void attend(const AttentionArgs& args, const RowTile& tile, std::size_t kv_head) {
  const KvLayout& layout = args.layout;
  const std::size_t group = args.heads / layout.kv_heads, first_head = kv_head * group;
  tile_scores<Kv>(args, tile, kv_head);
  for (std::size_t r = 0; r < tile.count; ++r) {
    float* out = args.out + (tile.first + r) * args.out_stride + first_head * layout.value_dim;
    for (std::size_t i = 0; i < group * layout.value_dim; ++i) out[i] = 0.0f;
    for (std::size_t h = 0; h < group; ++h)
      row_softmax(tile.seen[r], scores_of(args, r) + h * args.scores_stride,
                  args.sinks != nullptr ? args.sinks + first_head + h : nullptr);
  }
  tile_values<Kv>(args, tile, kv_head);
  for (std::size_t r = 0; r < tile.count; ++r) {
    for (std::size_t h = 0; h < group; ++h) {
      const F32x16 total = set1(denominator(tile.seen[r], scores_of(args, r) + h * args.scores_stride));
      float* o = args.out + (tile.first + r) * args.out_stride + (first_head + h) * layout.value_dim;
      for_lanes(
          layout.value_dim, [&](std::size_t i) { store(o + i, div(load(o + i), total)); },
          [&](std::size_t i, std::size_t n) { store_n(o + i, div(load_n(o + i, n), total), n); });
    }
  }
}

inline void attention(const AttentionArgs& args, Range units) {
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t begin = unit / args.layout.kv_heads * args.row_tile, kv_head = unit % args.layout.kv_heads;
    const std::size_t end = args.rows - begin < args.row_tile ? args.rows : begin + args.row_tile;
    for (std::size_t row = begin; row < end;) {
      const RowTile tile = row_tile(args, row, end);
      row += tile.count;
      if (args.layout.type == KvType::kF32) {
        attend<KvF32>(args, tile, kv_head);
      } else {
        attend<KvF16>(args, tile, kv_head);
      }
    }
  }
}
