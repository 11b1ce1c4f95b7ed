// Key/value pages and attention. Included inside the namespace of one instruction set.

struct KvF32 {
  using Element = float;
  static constexpr bool kAsksAhead = true;
  static LLORCH_INLINE F32x16 lanes(const float* p) { return load(p); }
  static LLORCH_INLINE F32x16 lanes_n(const float* p, std::size_t n) { return load_n(p, n); }
  static LLORCH_INLINE void encode(float* p, F32x16 a) { store(p, a); }
};
struct KvF16 {
  using Element = std::uint16_t;
  static constexpr bool kAsksAhead = true;
  static LLORCH_INLINE F32x16 lanes(const std::uint16_t* p) { return load_f16(p); }
  static LLORCH_INLINE F32x16 lanes_n(const std::uint16_t* p, std::size_t n) { return load_f16_n(p, n); }
  static LLORCH_INLINE void encode(std::uint16_t* p, F32x16 a) { store_f16(p, a); }
};
// Of a page that many queries meet: widened once for all of them (widen_page()).
struct KvWidened : KvF32 {
  static constexpr bool kAsksAhead = false;
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

template <int kCount, class Element>
LLORCH_INLINE void prefetch_elements(const Element* p) {
  constexpr int kLine = 64 / sizeof(Element);
  for_groups<0, (kCount + kLine - 1) / kLine>([&](auto line) __attribute__((always_inline)) {
    __builtin_prefetch(p + decltype(line)::value * kLine, 0, 2);
  });
}

// Keys or values of a page, and those that are read after them, which may be the same: where these lie no processor guesses, so
// whoever reads some asks for as many of the next. They are asked for in the order in which they lie, whatever the order of
// reading is: along lines that follow each other a processor runs ahead by itself.
template <class Kv>
struct PageData {
  const typename Kv::Element* now;
  const typename Kv::Element* next;
  LLORCH_INLINE PageData from(std::size_t i) const { return {now + i, next + i}; }
  // Sixteen of them, kCount times, from i on; `read_before` of the page have been read.
  template <int kCount>
  LLORCH_INLINE void read(std::size_t i, std::size_t read_before, F32x16 (&lanes)[kCount]) const {
    for_groups<0, kCount>([&](auto number) __attribute__((always_inline)) {
      constexpr int n = decltype(number)::value;
      lanes[n] = Kv::lanes(now + i + 16 * n);
    });
    if constexpr (Kv::kAsksAhead) prefetch_elements<16 * kCount>(next + read_before);
  }
  // The n < 16 from i on.
  LLORCH_INLINE F32x16 read_n(std::size_t i, std::size_t n) const { return Kv::lanes_n(now + i, n); }
};
// What lies `offset` bytes inside the page of a row's sequence at a position; nobody reads from `end` on.
template <class Kv>
LLORCH_INLINE PageData<Kv> page_data(const KvPages& pages, std::size_t row, std::size_t at, std::size_t end,
                                     std::size_t offset) {
  const auto data = [&](std::size_t position) {
    return reinterpret_cast<const typename Kv::Element*>(page_of(pages, row, position) + offset);
  };
  return {data(at), data(at + kPagePositions < end ? at + kPagePositions : at)};
}
// Pages of a row's sequence, one after the other; `work(page, position it begins with)`.
template <class Kv, class Work>
LLORCH_INLINE void for_pages(const KvPages& pages, std::size_t row, const Visible& seen, const Work& work) {
  for (std::size_t at = 0; at < seen.end; at += kPagePositions) work(page_data<Kv>(pages, row, at, seen.end, 0), at);
}

// Vectors of sixteen that a tile of so many heads has beside each other: its sums stay in registers.
constexpr int tile_vectors(int heads) { return kTileSums / heads < kTileVectors ? kTileSums / heads : kTileVectors; }

// Queries that meet the same keys: heads of one row, or of several.
template <int kQueries>
struct QueryTile {
  const float* q[kQueries];
  const Visible* seen[kQueries];
  Range all;        // the positions that every query sees
  std::size_t end;  // no query sees one from here on
};
template <int kQueries>
LLORCH_INLINE QueryTile<kQueries> heads_of_row(const float* q, std::size_t dims, const Visible& seen) {
  QueryTile<kQueries> tile{.q = {}, .seen = {}, .all = {seen.begin, seen.end}, .end = seen.end};
  for (int i = 0; i < kQueries; ++i) tile.q[i] = q + static_cast<std::size_t>(i) * dims, tile.seen[i] = &seen;
  return tile;
}

// How a dot product becomes a score.
struct Scoring {
  std::size_t dims;
  float scale = 1, softcap = 0;
  std::size_t stride;  // from the scores of a query to those of the next
};

// Scores of queries against 16 * tile_vectors(kQueries) positions of a page that begins with position `at`, from its entry
// `entry` on: dot products, dimensions in increasing order. A key is loaded and widened once for all of them. Where a query sees
// nothing, its score is -inf.
template <class Kv, int kQueries>
LLORCH_INLINE void block_scores(const Scoring& scoring, const QueryTile<kQueries>& tile, const PageData<Kv>& keys,
                                std::size_t at, std::size_t entry, float* scores) {
  constexpr int kBlocks = tile_vectors(kQueries);
  const std::size_t first = at + entry, dims = scoring.dims;
  const F32x16 minus_infinity = set1(-__builtin_inff());
  F32x16 dots[kQueries][kBlocks];
  const float* q[kQueries];
  for (int i = 0; i < kQueries; ++i) q[i] = tile.q[i];
  const auto for_sums = [&](const auto& work) __attribute__((always_inline)) {
    for_groups<0, kQueries * kBlocks>([&](auto n) __attribute__((always_inline)) {
      constexpr int i = decltype(n)::value / kBlocks, b = decltype(n)::value % kBlocks;
      work(dots[i][b], i, scores + static_cast<std::size_t>(i) * scoring.stride + 16 * b, first + 16 * b);
    });
  };
  if (first >= tile.end)
    return for_sums([&](F32x16&, int, float* to, std::size_t)
                        __attribute__((always_inline)) { store(to, minus_infinity); });
  for_sums([](F32x16 & dot, int, float*, std::size_t) __attribute__((always_inline)) { dot = set1(0.0f); });
  for (std::size_t d = 0; d < dims; ++d) {
    F32x16 key[kBlocks];
    keys.read(d * kPagePositions + entry, entry * dims + d * 16 * kBlocks, key);
    for_groups<0, kQueries>([&](auto query) __attribute__((always_inline)) {
      constexpr int i = decltype(query)::value;
      const F32x16 qd = set1(q[i][d]);
      for_groups<0, kBlocks>([&](auto n) __attribute__((always_inline)) {
        dots[i][decltype(n)::value] = fma(qd, key[decltype(n)::value], dots[i][decltype(n)::value]);
      });
    });
  }
  const F32x16 scale = set1(scoring.scale), cap = set1(scoring.softcap);
  for_sums([&](F32x16 & dot, int, float*, std::size_t) __attribute__((always_inline)) { dot = mul(dot, scale); });
  if (scoring.softcap > 0)
    for_sums([&](F32x16 & dot, int, float*, std::size_t)
                 __attribute__((always_inline)) { dot = softcap_lanes(dot, cap); });
  if (first < tile.all.begin || first + 16 * kBlocks > tile.all.end)
    for_sums([&](F32x16 & dot, int i, float*, std::size_t position) __attribute__((always_inline)) {
      dot = mask_positions(dot, position, *tile.seen[i], minus_infinity);
    });
  for_sums([](const F32x16& dot, int, float* to, std::size_t) __attribute__((always_inline)) { store(to, dot); });
}
template <class Kv, int kQueries>
__attribute__((noinline)) void page_scores(const Scoring& scoring, const QueryTile<kQueries>& tile,
                                           const PageData<Kv>& keys, std::size_t at, float* scores) {
  for (std::size_t entry = 0; entry < kPagePositions; entry += 16 * tile_vectors(kQueries))
    block_scores(scoring, tile, keys, at, entry, scores + entry);
}

// scores -> e^(score - max); returns the sum: lane = position mod 16, positions increasing, then the tree, then the sink.
LLORCH_INLINE float exp_scores(float* scores, std::size_t count, const float* sink) {
  F32x16 even = load(scores), odd = even;
  std::size_t n = 16;
  for (; n + 32 <= count; n += 32) even = max(even, load(scores + n)), odd = max(odd, load(scores + n + 16));
  if (n < count) odd = max(odd, load(scores + n));
  float most = tree_max(max(even, odd));
  if (sink != nullptr && *sink > most) most = *sink;
  const F32x16 top = set1(most);
  F32x16 sums = set1(0.0f);
  for (std::size_t i = 0; i < count; i += 16) {
    const F32x16 p = exp_of_negative(sub(load(scores + i), top));
    store(scores + i, p);
    sums = add(sums, p);
  }
  if (sink == nullptr) return tree_sum(sums);
  alignas(64) float sink_share[16];
  store(sink_share, exp_of_negative(sub(set1(*sink), top)));
  return tree_sum(sums) + sink_share[0];
}

// What the queries of a tile add up: p [queries, p_stride] over entries of a page.
struct ValueSums {
  const float* p;
  std::size_t p_stride;
  Range entries;
  float* const* out;  // [queries]
};
// out[q][first, first + 16 * kVectors) += sum over entries of p[q] * value; entries in increasing order; a value is widened once
// for all.
template <class Kv, int kQueries, int kVectors>
LLORCH_INLINE void accumulate_values(const PageData<Kv>& page, std::size_t dims, std::size_t first,
                                     const ValueSums& to) {
  F32x16 sums[kQueries][kVectors];
  const float* p[kQueries];
  for (std::size_t i = 0; i < kQueries; ++i) p[i] = to.p + i * to.p_stride;
  const auto for_sums = [&](const auto& work) __attribute__((always_inline)) {
    for_groups<0, kQueries * kVectors>([&](auto n) __attribute__((always_inline)) {
      constexpr int i = decltype(n)::value / kVectors, v = decltype(n)::value % kVectors;
      work(sums[i][v], to.out[i] + first + 16 * v);
    });
  };
  for_sums([](F32x16 & sum, const float* out) __attribute__((always_inline)) { sum = load(out); });
  for (std::size_t e = to.entries.begin, end = to.entries.end; e < end; ++e) {
    F32x16 value[kVectors];
    page.read(e * dims + first, first * kPagePositions + e * 16 * kVectors, value);
    for_groups<0, kQueries>([&](auto query) __attribute__((always_inline)) {
      constexpr int i = decltype(query)::value;
      const F32x16 pe = set1(p[i][e]);
      for_groups<0, kVectors>([&](auto v) __attribute__((always_inline)) {
        sums[i][decltype(v)::value] = fma(pe, value[decltype(v)::value], sums[i][decltype(v)::value]);
      });
    });
  }
  for_sums([](const F32x16& sum, float* out) __attribute__((always_inline)) { store(out, sum); });
}
template <int kQueries, class Kv>
__attribute__((noinline)) void page_values(const PageData<Kv>& values, std::size_t dims, const ValueSums& to) {
  constexpr int kVectors = tile_vectors(kQueries);
  std::size_t i = 0;
  for (; i + 16 * kVectors <= dims; i += 16 * kVectors) accumulate_values<Kv, kQueries, kVectors>(values, dims, i, to);
  for (; i + 16 <= dims; i += 16) accumulate_values<Kv, kQueries, 1>(values, dims, i, to);
  if (i == dims) return;
  const std::size_t n = dims - i;
  for (std::size_t q = 0; q < kQueries; ++q) {
    F32x16 sums = load_n(to.out[q] + i, n);
    for (std::size_t e = to.entries.begin; e < to.entries.end; ++e)
      sums = fma(set1(to.p[q * to.p_stride + e]), values.read_n(e * dims + i, n), sums);
    store_n(to.out[q] + i, sums, n);
  }
}

// body(GroupNumber<n>, first) over tiles of kHeadTile queries, then of half as many, down to single ones.
template <int kTile = kHeadTile, class Body>
LLORCH_INLINE void for_query_tiles(Range queries, const Body& body) {
  for (; queries.begin + kTile <= queries.end; queries.begin += kTile) body(GroupNumber<kTile>{}, queries.begin);
  if constexpr (kTile > 1) for_query_tiles<kTile / 2>(queries, body);
}

// work(tile, its first query, page) for tiles of queries that meet a page.
template <class Kv, class Work>
LLORCH_INLINE void for_page_tiles(PageData<Kv> page, Range queries, const Work& work) {
  for_query_tiles(queries, [&](auto tile, std::size_t n) {
    work(tile, n, page);
    page.next = page.now;  // asked for once
  });
}

// Rows of one sequence that see the same pages, but for those at their ends. All begin in the page of `base`.
struct RowTile {
  std::size_t first = 0, count = 0;
  Visible seen[kTileQueries];
  std::size_t base = 0, end = 0;  // what any of them sees
  Range all;                      // what every one of them sees; empty: begin >= end
};
LLORCH_INLINE RowTile row_tile(const AttentionArgs& args, std::size_t first, std::size_t end, std::size_t most) {
  const std::uint32_t* sequence = args.pages.sequence_of_row;
  RowTile tile;
  tile.first = first;
  tile.all = {0, SIZE_MAX};
  for (std::size_t row = first; row < end && tile.count < most && sequence[row] == sequence[first]; ++row) {
    const Visible seen = visible_positions(args, row);
    if (tile.count != 0 && seen.base != tile.base) break;
    tile.seen[tile.count++] = seen;
    tile.base = seen.base;
    if (seen.end > tile.end) tile.end = seen.end;
    if (seen.begin > tile.all.begin) tile.all.begin = seen.begin;
    if (seen.end < tile.all.end) tile.all.end = seen.end;
  }
  return tile;
}

// The rows of a tile with some heads of a kv head: query n is head n % heads of row n / heads.
struct Queries {
  const RowTile& rows;
  std::size_t heads, count = 0;  // count <= kTileQueries
  const float* q[kTileQueries];
  float* out[kTileQueries];
  const float* sinks[kTileQueries];  // null: none
  const Visible* seen[kTileQueries];

  Queries(const AttentionArgs& args, const RowTile& tile, Range of_heads)
      : rows(tile), heads(of_heads.end - of_heads.begin) {
    for (std::size_t r = 0; r < rows.count; ++r) {
      for (std::size_t h = of_heads.begin; h < of_heads.end; ++h, ++count) {
        q[count] = args.q + (rows.first + r) * args.q_stride + h * args.layout.key_dim;
        out[count] = args.out + (rows.first + r) * args.out_stride + h * args.layout.value_dim;
        sinks[count] = args.sinks != nullptr ? args.sinks + h : nullptr;
        seen[count] = &rows.seen[r];
      }
    }
  }
  template <int kQueries>
  LLORCH_INLINE QueryTile<kQueries> tile(std::size_t first) const {
    QueryTile<kQueries> tile{.q = {}, .seen = {}, .all = rows.all, .end = rows.end};
    for (std::size_t i = 0; i < kQueries; ++i) tile.q[i] = q[first + i], tile.seen[i] = seen[first + i];
    return tile;
  }
};

// The keys or values of a page to binary32, `dims` for every position.
template <class Kv>
__attribute__((noinline)) void widen_page(const PageData<Kv>& page, std::size_t dims, float* widened) {
  constexpr int kVectors = 4;
  static_assert(kPagePositions % (16 * kVectors) == 0);
  for (std::size_t i = 0; i < kPagePositions * dims; i += 16 * kVectors) {
    F32x16 lanes[kVectors];
    page.read(i, i, lanes);
    for_groups<0, kVectors>([&](auto n) __attribute__((always_inline)) {
      store(widened + i + 16 * decltype(n)::value, lanes[decltype(n)::value]);
    });
  }
}

// As for_page_tiles(). `widened`: where a page that many queries meet is widened to; null: nowhere.
template <class Kv, class Work>
LLORCH_INLINE void for_page_queries(const PageData<Kv>& page, std::size_t dims, float* widened, Range queries,
                                    const Work& work) {
  if constexpr (sizeof(typename Kv::Element) < sizeof(float)) {
    if (widened != nullptr && queries.end - queries.begin > kHeadTile) {
      widen_page(page, dims, widened);
      return for_page_tiles(PageData<KvWidened>{widened, widened}, queries, work);
    }
  }
  for_page_tiles(page, queries, work);
}

template <class Kv>
LLORCH_INLINE void tile_scores(const AttentionArgs& args, const Queries& queries, std::size_t offset) {
  const RowTile& rows = queries.rows;
  const Scoring scoring{
      .dims = args.layout.key_dim, .scale = args.scale, .softcap = args.softcap, .stride = args.scores_stride};
  for (std::size_t at = rows.base; at < rows.end; at += kPagePositions) {
    for_page_queries(page_data<Kv>(args.pages, rows.first, at, rows.end, offset), args.layout.key_dim, args.widened,
                     {0, queries.count}, [&](auto tile, std::size_t n, const auto& keys) {
                       page_scores(scoring, queries.tile<decltype(tile)::value>(n), keys, at,
                                   args.scores + n * args.scores_stride + (at - rows.base));
                     });
  }
}

// The entries of the page at a position that are among `positions`; empty: begin >= end.
LLORCH_INLINE Range page_entries(std::size_t at, Range positions) {
  const std::size_t end = positions.end < at + kPagePositions ? positions.end : at + kPagePositions;
  return {positions.begin > at ? positions.begin - at : 0, end > at ? end - at : 0};
}

template <class Kv>
LLORCH_INLINE void tile_values(const AttentionArgs& args, const Queries& queries, std::size_t offset) {
  const RowTile& rows = queries.rows;
  for (std::size_t at = rows.base; at < rows.end; at += kPagePositions) {
    const PageData<Kv> page = page_data<Kv>(args.pages, rows.first, at, rows.end, offset);
    // What a row sees before and behind what all see; all of it where there is no such thing.
    Range all = page_entries(at, rows.all);
    if (all.begin >= all.end) all = {kPagePositions, kPagePositions};
    const bool whole = all.begin == 0 && all.end == kPagePositions;
    const auto add = [&](Range some, Range entries) {
      if (entries.begin >= entries.end) return;
      for_page_queries(page, args.layout.value_dim, whole ? args.widened : nullptr, some,
                       [&](auto tile, std::size_t n, const auto& values) {
                         page_values<decltype(tile)::value>(
                             values, args.layout.value_dim,
                             {.p = args.scores + n * args.scores_stride + (at - rows.base),
                              .p_stride = args.scores_stride,
                              .entries = entries,
                              .out = queries.out + n});
                       });
    };
    const auto add_each = [&](const auto& part) {
      for (std::size_t r = 0; r < rows.count; ++r)
        add({r * queries.heads, (r + 1) * queries.heads},
            part(page_entries(at, {rows.seen[r].begin, rows.seen[r].end})));
    };
    if (!whole) add_each([&](Range own) { return Range{own.begin, own.end < all.begin ? own.end : all.begin}; });
    add({0, queries.count}, all);
    if (!whole) add_each([&](Range own) { return Range{all.end, own.end}; });
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
inline void attend(const AttentionArgs& args, const RowTile& rows, std::size_t kv_head, Range heads) {
  const KvLayout& layout = args.layout;
  const Queries queries(args, rows, heads);
  const auto scores = [&](std::size_t n) { return args.scores + n * args.scores_stride; };
  tile_scores<Kv>(args, queries, layout.key_offset(kv_head));
  for (std::size_t n = 0; n < queries.count; ++n) {
    for (std::size_t i = 0; i < layout.value_dim; ++i) queries.out[n][i] = 0.0f;
    row_softmax(*queries.seen[n], scores(n), queries.sinks[n]);
  }
  tile_values<Kv>(args, queries, layout.value_offset(kv_head));
  for (std::size_t n = 0; n < queries.count; ++n) {
    const F32x16 total = set1(denominator(*queries.seen[n], scores(n)));
    float* out = queries.out[n];
    for_lanes(
        layout.value_dim, [&](std::size_t i) { store(out + i, div(load(out + i), total)); },
        [&](std::size_t i, std::size_t count) { store_n(out + i, div(load_n(out + i, count), total), count); });
  }
}

inline void attention(const AttentionArgs& args, Range units) {
  const std::size_t group = args.heads / args.layout.kv_heads;
  const std::size_t heads_most = tile_heads(group), rows_most = kTileQueries / heads_most;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t begin = unit / args.layout.kv_heads * args.row_tile, kv_head = unit % args.layout.kv_heads;
    const std::size_t end = args.rows - begin < args.row_tile ? args.rows : begin + args.row_tile;
    for (std::size_t row = begin; row < end;) {
      const RowTile rows = row_tile(args, row, end, rows_most);
      row += rows.count;
      for (std::size_t head = kv_head * group, last = head + group; head < last; head += heads_most) {
        const Range heads{head, head + heads_most < last ? head + heads_most : last};
        if (args.layout.type == KvType::kF32) {
          attend<KvF32>(args, rows, kv_head, heads);
        } else {
          attend<KvF16>(args, rows, kv_head, heads);
        }
      }
    }
  }
}
