// Attention over a shared compressed cache. Included inside the namespace of one instruction set, after attention_impl.h.

// Scores, then e^(score - max), of heads [head, head + kHeads); totals of the softmax.
template <class Kv, int kHeads>
LLORCH_INLINE void latent_scores(const LatentAttentionArgs& args, std::size_t row, std::size_t head,
                                 const Visible& seen, float (&totals)[kHeads]) {
  using Element = typename Kv::Element;
  const AttentionArgs scoring{.layout = {.type = args.type, .kv_heads = 1, .key_dim = args.key_dim, .value_dim = 0},
                              .scale = args.scale};
  const float* q = args.q + row * args.q_stride + head * args.key_dim;
  for (std::size_t at = 0; at < seen.end; at += kPagePositions) {
    const auto* keys = reinterpret_cast<const Element*>(page_of(args.pages, row, at));
    for (int h = 0; h < kHeads; ++h)
      page_scores<Kv>(scoring, q + h * args.key_dim, keys, at, seen, args.scores + h * args.scores_stride + at);
  }
  const std::size_t count = (seen.end + 15) / 16 * 16;
  for (int h = 0; h < kHeads; ++h) totals[h] = exp_scores(args.scores + h * args.scores_stride, count, nullptr);
}

// out[h][i] = sum of p * element i of the cached row. Positions lie side by side, so lanes are positions: sixteen sums,
// lane position mod 16, positions increasing, then the tree. Keys are read once for all heads of the call.
template <class Kv, int kHeads>
LLORCH_INLINE void latent_values(const LatentAttentionArgs& args, std::size_t row, std::size_t head,
                                 const Visible& seen, const float (&totals)[kHeads]) {
  using Element = typename Kv::Element;
  float* out = args.out + row * args.out_stride + head * args.latent_dim;
  for (std::size_t i = 0; i < args.latent_dim; ++i) {
    F32x16 sums[kHeads];
    for (F32x16& sum : sums) sum = set1(0.0f);
    for (std::size_t at = 0; at < seen.end; at += kPagePositions) {
      const auto* values = reinterpret_cast<const Element*>(page_of(args.pages, row, at)) + i * kPagePositions;
      for (std::size_t b = 0; b < kPagePositions && at + b < seen.end; b += 16) {
        const F32x16 v = Kv::lanes(values + b);
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) {
          const F32x16 p = load(args.scores + h * args.scores_stride + at + b);
          sums[h] = mask_positions(fma(p, v, sums[h]), at + b, seen, sums[h]);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) out[h * args.latent_dim + i] = tree_sum(sums[h]) / totals[h];
  }
}

template <class Kv, int kHeads>
inline void latent_heads(const LatentAttentionArgs& args, std::size_t row, std::size_t head) {
  const std::size_t end = static_cast<std::size_t>(args.pages.positions[row]) + 1;
  const Visible seen{.begin = 0, .end = end, .base = 0, .origin = 0};
  float totals[kHeads];
  latent_scores<Kv, kHeads>(args, row, head, seen, totals);
  latent_values<Kv, kHeads>(args, row, head, seen, totals);
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
