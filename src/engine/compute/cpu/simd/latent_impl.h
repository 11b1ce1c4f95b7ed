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

// Scores, then e^(score - max), of heads [head, head + kHeads); totals of the softmax.
template <class Kv, int kHeads>
LLORCH_INLINE void latent_scores(const LatentAttentionArgs& args, std::size_t row, std::size_t head,
                                 const Visible& seen, float (&totals)[kHeads]) {
  using Element = typename Kv::Element;
  const AttentionArgs scoring{.layout = {.type = args.type, .kv_heads = 1, .key_dim = args.key_dim, .value_dim = 0},
                              .scale = args.scale,
                              .scores_stride = args.scores_stride};
  const float* q = args.q + row * args.q_stride + head * args.key_dim;
  for (std::size_t at = 0; at < seen.end; at += kPagePositions) {
    const auto page = [&](std::size_t p) { return reinterpret_cast<const Element*>(page_of(args.pages, row, p)); };
    PageData<Kv> keys{page(at), page(at + kPagePositions < seen.end ? at + kPagePositions : at)};
    for_head_tiles(kHeads, [&](auto tile, std::size_t h) {
      page_scores<Kv, decltype(tile)::value>(scoring, q + h * args.key_dim, keys, at, seen,
                                             args.scores + h * args.scores_stride + at);
      keys.next = keys.now;
    });
  }
  const std::size_t count = (seen.end + 15) / 16 * 16;
  for (int h = 0; args.chosen != nullptr && h < kHeads; ++h)
    mask_chosen(args.scores + h * args.scores_stride, count, args.chosen + row * args.chosen_words);
  for (int h = 0; h < kHeads; ++h) totals[h] = exp_scores(args.scores + h * args.scores_stride, count, nullptr);
}

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

// out[h][i] = sum of p * element i of the cached row, for kDims elements from `dim` on. Positions lie side by side, so lanes
// are positions: sixteen sums, lane position mod 16, positions increasing, then the tree. Keys are read once for all heads of
// the call.
template <class Kv, int kHeads, int kDims>
__attribute__((noinline)) void latent_dims(const LatentAttentionArgs& args, std::size_t row, std::size_t dim,
                                           const Visible& seen, const float* totals, float* out) {
  F32x16 sums[kHeads][kDims];
  for_groups<0, kHeads * kDims>([&](auto n) __attribute__((always_inline)) {
    sums[decltype(n)::value / kDims][decltype(n)::value % kDims] = set1(0.0f);
  });
  for (std::size_t at = 0; at < seen.end; at += kPagePositions) {
    const auto* values =
        reinterpret_cast<const typename Kv::Element*>(page_of(args.pages, row, at)) + dim * kPagePositions;
    const float* p = args.scores + at;
    std::size_t b = 0;
    for (; b < kPagePositions && at + b + 16 <= seen.end; b += 16)
      add_latent<Kv>(
          values + b, p + b, args.scores_stride, [](F32x16 sum, F32x16) { return sum; }, sums);
    if (b < kPagePositions && at + b < seen.end)
      add_latent<Kv>(
          values + b, p + b, args.scores_stride,
          [&](F32x16 sum, F32x16 before) { return mask_positions(sum, at + b, seen, before); }, sums);
  }
  for_groups<0, kHeads * kDims>([&](auto n) __attribute__((always_inline)) {
    constexpr std::size_t h = decltype(n)::value / kDims, i = decltype(n)::value % kDims;
    out[h * args.latent_dim + dim + i] = tree_sum(sums[h][i]) / totals[h];
  });
}

template <class Kv, int kHeads>
inline void latent_heads(const LatentAttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t end = static_cast<std::size_t>(args.pages.positions[row]) + 1;
  const Visible seen{.begin = 0, .end = end, .base = 0, .origin = 0};
  float totals[kHeads];
  latent_scores<Kv, kHeads>(args, row, head, seen, totals);
  float* out = args.out + row * args.out_stride + head * args.latent_dim;
  std::size_t dim = 0;
  for (; dim + kLatentDims <= args.latent_dim; dim += kLatentDims)
    latent_dims<Kv, kHeads, kLatentDims>(args, row, dim, seen, totals, out);
  for (; dim < args.latent_dim; ++dim) latent_dims<Kv, kHeads, 1>(args, row, dim, seen, totals, out);
}

template <class Kv>
inline void latent_unit(const LatentAttentionArgs& args, std::size_t row, std::size_t head) {
  if (head + kLatentHeads <= args.heads) return latent_heads<Kv, kLatentHeads>(args, row, head);
  for (; head < args.heads; ++head) latent_heads<Kv, 1>(args, row, head);
}

inline void latent_attention(const LatentAttentionArgs& args, Range units) {
  const std::size_t per_row = (args.heads + kLatentHeads - 1) / kLatentHeads;
  for (std::size_t unit = units.begin; unit < units.end; ++unit) {
    const std::size_t row = unit / per_row, head = unit % per_row * kLatentHeads;
    if (args.type == KvType::kF32) {
      latent_unit<KvF32>(args, row, head);
    } else {
      latent_unit<KvF16>(args, row, head);
    }
  }
}
