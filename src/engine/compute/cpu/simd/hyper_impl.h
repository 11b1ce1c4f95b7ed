// Hyper-connections: residual streams that branches read from and give to. Included inside the namespace of one instruction set.

// scale * mixes + base of `n` of a row's mixes from `first` on.
LLORCH_INLINE F32x16 scaled_mixes(const HyperArgs& args, std::size_t row, std::size_t first, std::size_t n,
                                  float scale) {
  return fma(load_some(args.mixes + row * args.mix_rows + first, n), set1(scale), load_some(args.base + first, n));
}

// y = start * branch, or 0, then + w_j * stream j, j increasing.
inline void weigh_streams(const HyperArgs& args, std::size_t row, const float* w, F32x16 start, const float* branch,
                          float* y) {
  const float* x = args.x + row * args.x_stride;
  const auto apply = [&](std::size_t i, std::size_t n) __attribute__((always_inline)) {
    F32x16 sum = branch != nullptr ? mul(start, load_some(branch + i, n)) : set1(0.0f);
    for (std::size_t j = 0; j < args.streams; ++j)
      sum = fma(set1(w[j]), load_some(x + j * args.stream_stride + i, n), sum);
    store_some(y + i, sum, n);
  };
  for_lanes(
      args.width, [&](std::size_t i) { apply(i, 16); }, [&](std::size_t i, std::size_t n) { apply(i, n); });
}

inline void hyper_collapse(const HyperArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    alignas(64) float pre[16];
    const F32x16 mixes = scaled_mixes(args, row, 0, args.streams, args.scale[0]);
    store(pre, add(sigmoid_lanes(mixes), set1(args.floor_eps)));
    weigh_streams(args, row, pre, set1(0.0f), nullptr, args.y + row * args.width);
  }
}

// mix [streams, streams]: a softmax per row, then columns and rows by their sums in turn. The first n lanes of a row count.
inline void balance(const HyperArgs& args, std::size_t row, F32x16 (&mix)[kStreamsMax]) {
  const std::size_t n = args.streams;
  const F32x16 eps = set1(args.floor_eps), zero = set1(0.0f), nothing = set1(-__builtin_inff());
  const auto divide_columns = [&]() __attribute__((always_inline)) {
    F32x16 sums = zero;
    for (std::size_t j = 0; j < n; ++j) sums = add(sums, mix[j]);
    for (std::size_t j = 0; j < n; ++j) mix[j] = div(mix[j], add(sums, eps));
  };
  for (std::size_t j = 0; j < n; ++j) {
    const F32x16 logits = keep_lanes(scaled_mixes(args, row, (2 + j) * n, n, args.scale[2]), n, nothing);
    const F32x16 e = exp_lanes(sub(logits, set1(tree_max(logits))));
    mix[j] = keep_lanes(add(div(e, set1(tree_sum(e))), eps), n, zero);
  }
  divide_columns();
  for (std::size_t i = 1; i < args.iterations; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      mix[j] = div(mix[j], set1(tree_sum(keep_lanes(mix[j], n, zero)) + args.floor_eps));
    divide_columns();
  }
}

inline void hyper_add(const HyperArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    alignas(64) float post[16], mix[kStreamsMax][16], column[kStreamsMax];
    F32x16 balanced[kStreamsMax];
    store(post, mul(set1(2.0f), sigmoid_lanes(scaled_mixes(args, row, args.streams, args.streams, args.scale[1]))));
    balance(args, row, balanced);
    for (std::size_t j = 0; j < args.streams; ++j) store(mix[j], balanced[j]);
    for (std::size_t k = 0; k < args.streams; ++k) {
      for (std::size_t j = 0; j < args.streams; ++j) column[j] = mix[j][k];
      weigh_streams(args, row, column, set1(post[k]), args.branch + row * args.width,
                    args.y + (row * args.streams + k) * args.width);
    }
  }
}
