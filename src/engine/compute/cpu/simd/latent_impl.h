// Attention over a shared compressed cache. Included inside the namespace of one instruction set, after attention_impl.h.

// Positions that do not count get the score of those that are not there.
LLORCH_INLINE void mask_chosen(float* scores, std::size_t count, const std::uint32_t* chosen) {
  alignas(64) static constexpr std::uint32_t kBits[16] = {1,       1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                                                          1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                                          1 << 12, 1 << 13, 1 << 14, 1 << 15};
  const I32x16 bits = bits_of(load(reinterpret_cast<const float*>(kBits)));
  for (std::size_t p = 0; p < count; p += 16) {
    const auto word = static_cast<std::int32_t>(chosen[p / 32] >> p % 32 & 0xFFFFU);
    const Mask16 counts = less(set1_i(0), bit_and(bits, set1_i(word)));
    store(scores + p, select(counts, load(scores + p), set1(-__builtin_inff())));
  }
}

// Scores, then e^(score - max), of `heads` heads from `head` on; totals of the softmax.
template <class Kv>
LLORCH_INLINE void latent_scores(const LatentAttentionArgs& args, std::size_t row, std::size_t head, std::size_t heads,
                                 const Visible& seen, float* totals) {
  const Scoring scoring{.dims = args.key_dim, .scale = args.scale, .stride = args.scores_stride};
  const float* q = args.q + row * args.q_stride + head * args.key_dim;
  for_pages<Kv>(args.pages, row, seen, [&](const PageData<Kv>& page, std::size_t at) {
    for_page_tiles(page, {0, heads}, [&](auto tile, std::size_t h, const auto& keys) {
      page_scores(scoring, heads_of_row<decltype(tile)::value>(q + h * args.key_dim, args.key_dim, seen), keys, at,
                  args.scores + h * args.scores_stride + at);
    });
  });
  const std::size_t count = (seen.end + 15) / 16 * 16;
  for (std::size_t h = 0; args.chosen != nullptr && h < heads; ++h)
    mask_chosen(args.scores + h * args.scores_stride, count, args.chosen + row * args.chosen_words);
  for (std::size_t h = 0; h < heads; ++h) totals[h] = exp_scores(args.scores + h * args.scores_stride, count, nullptr);
}

// Elements whose sums pass a page together: those of a unit's heads stay in the first-level cache.
inline constexpr std::size_t kLatentBlock = 32;

// What the heads of a tile add up over the positions of a page, for elements beside each other.
struct LatentSums {
  const float* p;  // [heads, p_stride], from the page's first position on
  std::size_t p_stride;
  std::size_t positions;  // of the page that the row sees
  float* sums;            // [heads, kLatentBlock, 16]
};

// sums[h][i] += p[h] * element i of sixteen cached rows; the elements lie kPagePositions apart.
template <class Kv, int kHeads, int kDims, class Masked>
LLORCH_INLINE void add_latent(const typename Kv::Element* values, const float* p, std::size_t p_stride,
                              const Masked& masked, F32x16 (&sums)[kHeads][kDims]) {
  F32x16 v[kDims];
  for_groups<0, kDims>([&](auto i) __attribute__((always_inline)) {
    v[decltype(i)::value] = Kv::lanes(values + decltype(i)::value * kPagePositions);
  });
  for_groups<0, kHeads>([&](auto head) __attribute__((always_inline)) {
    constexpr int h = decltype(head)::value;
    const F32x16 ph = load(p + h * p_stride);
    for_groups<0, kDims>([&](auto dim) __attribute__((always_inline)) {
      constexpr int i = decltype(dim)::value;
      sums[h][i] = masked(fma(ph, v[i], sums[h][i]), sums[h][i]);
    });
  });
}

// Positions lie side by side, so lanes are positions: sixteen sums an element, lane position mod 16, positions increasing.
template <class Kv, int kHeads, int kDims>
LLORCH_INLINE void add_latent_tile(const PageData<Kv>& values, const LatentSums& to) {
  constexpr std::size_t kHeadSums = 16 * kLatentBlock;
  F32x16 sums[kHeads][kDims];
  for_groups<0, kHeads * kDims>([&](auto n) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(n)::value / kDims, i = decltype(n)::value % kDims;
    sums[h][i] = load(to.sums + h * kHeadSums + 16 * i);
  });
  prefetch_elements<kDims* static_cast<int>(kPagePositions)>(values.next);
  std::size_t b = 0;
  for (; b + 16 <= to.positions; b += 16)
    add_latent<Kv>(
        values.now + b, to.p + b, to.p_stride, [](F32x16 sum, F32x16) { return sum; }, sums);
  if (b < to.positions) {
    const Mask16 counts = less(lane_numbers(), set1_i(static_cast<std::int32_t>(to.positions - b)));
    add_latent<Kv>(
        values.now + b, to.p + b, to.p_stride, [&](F32x16 sum, F32x16 before) { return select(counts, sum, before); },
        sums);
  }
  for_groups<0, kHeads * kDims>([&](auto n) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(n)::value / kDims, i = decltype(n)::value % kDims;
    store(to.sums + h * kHeadSums + 16 * i, sums[h][i]);
  });
}

// The same for `dims` elements, at most kLatentBlock.
template <class Kv, int kHeads>
__attribute__((noinline)) void add_latent_page(const PageData<Kv>& values, std::size_t dims, const LatentSums& to) {
  constexpr int kDims = tile_vectors(kHeads);
  const auto from = [&](std::size_t i) { return LatentSums{to.p, to.p_stride, to.positions, to.sums + 16 * i}; };
  std::size_t i = 0;
  for (; i + kDims <= dims; i += kDims) add_latent_tile<Kv, kHeads, kDims>(values.from(i * kPagePositions), from(i));
  for (; i < dims; ++i) add_latent_tile<Kv, kHeads, 1>(values.from(i * kPagePositions), from(i));
}

// out[h][i] = sum of p * element i of the cached row, over the total of h, for elements [dim, dim + dims): a page is read once for
// all heads of the unit.
template <class Kv>
LLORCH_INLINE void latent_values(const LatentAttentionArgs& args, std::size_t row, std::size_t heads, Range dims,
                                 const Visible& seen, const float* totals, float* out) {
  const std::size_t count = dims.end - dims.begin;
  alignas(64) float sums[kLatentHeads * kLatentBlock * 16];
  for (std::size_t i = 0; i < heads * kLatentBlock * 16; i += 16) store(sums + i, set1(0.0f));
  for_pages<Kv>(args.pages, row, seen, [&](const PageData<Kv>& page, std::size_t at) {
    const std::size_t positions = seen.end - at < kPagePositions ? seen.end - at : kPagePositions;
    for_page_tiles(page.from(dims.begin * kPagePositions), {0, heads},
                   [&](auto tile, std::size_t h, const auto& values) {
                     add_latent_page<Kv, decltype(tile)::value>(values, count,
                                                                {.p = args.scores + h * args.scores_stride + at,
                                                                 .p_stride = args.scores_stride,
                                                                 .positions = positions,
                                                                 .sums = sums + h * kLatentBlock * 16});
                   });
  });
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < count; ++i)
      out[h * args.latent_dim + dims.begin + i] = tree_sum(load(sums + (h * kLatentBlock + i) * 16)) / totals[h];
}

template <class Kv>
inline void latent_unit(const LatentAttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t end = static_cast<std::size_t>(args.pages.positions[row]) + 1;
  const std::size_t heads = args.heads - head < args.unit_heads ? args.heads - head : args.unit_heads;
  const Visible seen{.begin = 0, .end = end, .base = 0, .origin = 0};
  float totals[kLatentHeads];
  latent_scores<Kv>(args, row, head, heads, seen, totals);
  float* out = args.out + row * args.out_stride + head * args.latent_dim;
  for (std::size_t dim = 0; dim < args.latent_dim; dim += kLatentBlock) {
    const std::size_t left = args.latent_dim - dim;
    latent_values<Kv>(args, row, heads, {dim, dim + (left < kLatentBlock ? left : kLatentBlock)}, seen, totals, out);
  }
}

inline void latent_attention(const LatentAttentionArgs& args, Range units) {
  const std::size_t per_row = (args.heads + args.unit_heads - 1) / args.unit_heads;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t row = unit / per_row, head = unit % per_row * args.unit_heads;
    if (args.type == KvType::kF32) {
      latent_unit<KvF32>(args, row, head);
    } else {
      latent_unit<KvF16>(args, row, head);
    }
  }
}
