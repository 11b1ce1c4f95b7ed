// Scores of a lightning index. Included inside the namespace of one instruction set, after attention_impl.h.

// scores[p] = scale * sum over heads, increasing, of w_h relu(q_h . k_p), for all positions of a row's pages.
template <class Kv>
inline void index_row(const IndexScoresArgs& args, std::size_t row, float* scores) {
  const std::size_t end = static_cast<std::size_t>(args.pages.positions[row]) + 1;
  const Visible seen{.begin = 0, .end = end, .base = 0, .origin = 0};
  const Scoring scoring{.dims = args.key_dim, .stride = kPagePositions};
  const float *q = args.q + row * args.q_stride, *weights = args.weights + row * args.q_stride;
  const F32x16 scale = set1(args.scale), zero = set1(0.0f);
  for_pages<Kv>(args.pages, row, seen, [&](const PageData<Kv>& page, std::size_t at) {
    for_page_tiles(page, {0, args.heads}, [&](auto tile, std::size_t h, const auto& keys) {
      page_scores(scoring, heads_of_row<decltype(tile)::value>(q + h * args.key_dim, args.key_dim, seen), keys, at,
                  args.head_scores + h * kPagePositions);
    });
    for (std::size_t b = 0; b < kPagePositions; b += 16) {
      F32x16 sum = zero;
      for (std::size_t h = 0; h < args.heads; ++h)
        sum = fma(set1(weights[h]), max(zero, load(args.head_scores + h * kPagePositions + b)), sum);
      store(scores + at + b, mul(sum, scale));
    }
  });
}

inline void index_scores(const IndexScoresArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    if (args.type == KvType::kF32) {
      index_row<KvF32>(args, row, args.scores);
    } else {
      index_row<KvF16>(args, row, args.scores);
    }
  }
}
