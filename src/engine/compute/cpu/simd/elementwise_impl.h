// Norms, rotation and elementwise kernels. Included inside the namespace of one instruction set.

// Calls body(i, n): sixteen elements from i, or the n < 16 that are left.
template <class Full, class Tail>
LLORCH_INLINE void for_lanes(std::size_t count, const Full& full, const Tail& tail) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) full(i);
  if (i < count) tail(i, count - i);
}

inline void rms_norm(const RmsNormArgs& args, Range rows) {
  const F32x16 offset = set1(args.weight_offset);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    F32x16 sums = set1(0.0f);
    for_lanes(
        args.width,
        [&](std::size_t i) {
          const F32x16 v = load(x + i);
          sums = fma(v, v, sums);
        },
        [&](std::size_t i, std::size_t n) {
          const F32x16 v = load_n(x + i, n);
          sums = fma(v, v, sums);
        });
    const float mean = tree_sum(sums) / static_cast<float>(args.width);
    const F32x16 r = set1(1.0f / __builtin_sqrtf(mean + args.eps));
    for_lanes(
        args.width, [&](std::size_t i) { store(y + i, mul(mul(load(x + i), r), add(load(args.weight + i), offset))); },
        [&](std::size_t i, std::size_t n) {
          store_n(y + i, mul(mul(load_n(x + i, n), r), add(load_n(args.weight + i, n), offset)), n);
        });
  }
}

// The first n lanes of v, `otherwise` in the others.
LLORCH_INLINE F32x16 keep_lanes(F32x16 v, std::size_t n, F32x16 otherwise) {
  return select(less(lane_numbers(), set1_i(static_cast<std::int32_t>(n))), v, otherwise);
}

inline void layer_norm(const LayerNormArgs& args, Range rows) {
  const F32x16 zero = set1(0.0f);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    F32x16 sums = zero, squares = zero;
    for_lanes(
        args.width, [&](std::size_t i) { sums = add(sums, load(x + i)); },
        [&](std::size_t i, std::size_t n) { sums = add(sums, load_n(x + i, n)); });
    const float width = static_cast<float>(args.width);
    const F32x16 mean = set1(tree_sum(sums) / width);
    for_lanes(
        args.width,
        [&](std::size_t i) {
          const F32x16 d = sub(load(x + i), mean);
          squares = fma(d, d, squares);
        },
        [&](std::size_t i, std::size_t n) {
          const F32x16 d = keep_lanes(sub(load_n(x + i, n), mean), n, zero);
          squares = fma(d, d, squares);
        });
    const F32x16 r = set1(1.0f / __builtin_sqrtf(tree_sum(squares) / width + args.eps));
    const float* bias = args.bias;
    for_lanes(
        args.width,
        [&](std::size_t i) {
          const F32x16 b = bias != nullptr ? load(bias + i) : zero;
          store(y + i, fma(mul(sub(load(x + i), mean), r), load(args.weight + i), b));
        },
        [&](std::size_t i, std::size_t n) {
          const F32x16 b = bias != nullptr ? load_n(bias + i, n) : zero;
          store_n(y + i, fma(mul(sub(load_n(x + i, n), mean), r), load_n(args.weight + i, n), b), n);
        });
  }
}

// Where the pairs [i, i + n) of a row stand on their axes.
LLORCH_INLINE F32x16 pair_positions(const RopeTableArgs& args, std::size_t row, std::size_t i, std::size_t n) {
  if (args.axis_of_pair == nullptr) return set1(static_cast<float>(args.positions[row]));
  alignas(64) float positions[16] = {};
  for (std::size_t j = 0; j < n; ++j)
    positions[j] = static_cast<float>(args.positions[args.axis_of_pair[i + j] * args.axis_stride + row]);
  return load(positions);
}

inline void rope_table(const RopeTableArgs& args, Range rows) {
  const std::size_t pairs = args.rotary_dims / 2;
  const F32x16 factor = set1(args.attn_factor);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* cosines = args.cosines + row * args.rotary_dims;
    float* sines = args.sines + row * args.rotary_dims;
    for (std::size_t i = 0; i < pairs; i += 16) {
      const std::size_t n = pairs - i < 16 ? pairs - i : 16;
      const F32x16 f = n == 16 ? load(args.inv_freq + i) : load_n(args.inv_freq + i, n);
      F32x16 s, c;
      sincos_lanes(mul(pair_positions(args, row, i, n), f), s, c);
      alignas(64) float cs[16], ss[16];
      store(cs, mul(c, factor)), store(ss, mul(s, factor));
      for (std::size_t j = 0; j < n; ++j) {
        const bool half = args.layout == RopeLayout::kHalf;
        const std::size_t first = half ? i + j : 2 * (i + j);
        const std::size_t second = half ? first + pairs : first + 1;
        cosines[first] = cosines[second] = cs[j];
        sines[first] = -ss[j];
        sines[second] = ss[j];
      }
    }
  }
}

inline void rope(const RopeArgs& args, Range rows) {
  const std::size_t dims = args.rotary_dims, pairs = dims / 2;
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* c = args.cosines + row * dims;
    const float* s = args.sines + row * dims;
    for (std::size_t head = 0; head < args.heads; ++head) {
      float* x = args.x + row * args.x_stride + head * args.head_dim;
      if (args.layout == RopeLayout::kInterleaved) {
        for_lanes(
            dims,
            [&](std::size_t i) {
              const F32x16 v = load(x + i);
              store(x + i, fma(v, load(c + i), mul(swap_pairs(v), load(s + i))));
            },
            [&](std::size_t i, std::size_t n) {
              const F32x16 v = load_n(x + i, n);
              store_n(x + i, fma(v, load_n(c + i, n), mul(swap_pairs(v), load_n(s + i, n))), n);
            });
        continue;
      }
      for_lanes(
          pairs,
          [&](std::size_t i) {
            const F32x16 a = load(x + i), b = load(x + pairs + i);
            store(x + i, fma(a, load(c + i), mul(b, load(s + i))));
            store(x + pairs + i, fma(b, load(c + pairs + i), mul(a, load(s + pairs + i))));
          },
          [&](std::size_t i, std::size_t n) {
            const F32x16 a = load_n(x + i, n), b = load_n(x + pairs + i, n);
            store_n(x + i, fma(a, load_n(c + i, n), mul(b, load_n(s + i, n))), n);
            store_n(x + pairs + i, fma(b, load_n(c + pairs + i, n), mul(a, load_n(s + pairs + i, n))), n);
          });
    }
  }
}

LLORCH_INLINE F32x16 silu_lanes(F32x16 x) {
  const F32x16 e = exp_lanes(sub(set1(0.0f), x));
  return div(x, add(set1(1.0f), e));
}

LLORCH_INLINE F32x16 sigmoid_lanes(F32x16 x) { return div(set1(1.0f), add(set1(1.0f), exp_lanes(sub(set1(0.0f), x)))); }
LLORCH_INLINE F32x16 relu2_lanes(F32x16 x) {
  const F32x16 positive = max(set1(0.0f), x);  // the order of operands keeps NaN
  return mul(positive, positive);
}

// 1 + tanh u = 2 / (1 + e^-2u): one exponential, and no cancellation for negative x.
LLORCH_INLINE F32x16 gelu_tanh_lanes(F32x16 x) {
  const F32x16 twice_u = mul(x, fma(mul(x, x), set1(0x1.2444f2p-4f), set1(0x1.988454p+0f)));
  return div(x, add(set1(1.0f), exp_lanes(sub(set1(0.0f), twice_u))));
}
LLORCH_INLINE F32x16 gelu_erf_lanes(F32x16 x) {
  return mul(mul(set1(0.5f), x), add(set1(1.0f), erf_lanes(mul(x, set1(0x1.6a09e6p-1f)))));
}

// e^m - 1 - m is a series near 0, where the difference would cancel.
LLORCH_INLINE F32x16 xielu_lanes(const SwigluArgs& args, F32x16 x) {
  const F32x16 m = min(x, set1(args.eps)), linear = mul(set1(args.beta), x);
  F32x16 series = fma(m, set1(0x1.a01a02p-16f), set1(0x1.a01a02p-13f));
  series = fma(m, series, set1(0x1.6c16c2p-10f));
  series = fma(m, series, set1(0x1.111112p-7f));
  series = fma(m, series, set1(0x1.555556p-5f));
  series = fma(m, series, set1(0x1.555556p-3f));
  series = fma(m, series, set1(0.5f));
  const F32x16 near_zero = fma(mul(m, m), series, sub(m, x));
  const F32x16 far = sub(sub(exp_lanes(m), set1(1.0f)), x);
  const F32x16 below = fma(set1(args.alpha_negative), select(less(set1(-0.5f), m), near_zero, far), linear);
  return select(less(set1(0.0f), x), fma(mul(set1(args.alpha), x), x, linear), below);
}

// y = body(gate) * up, or body(gate).
template <class Body>
LLORCH_INLINE void activate_row(const SwigluArgs& args, std::size_t row, const Body& body) {
  const float* gate = args.gate + row * args.x_stride;
  float* y = args.y + row * args.y_stride;
  if (args.up == nullptr) {
    for_lanes(
        args.width, [&](std::size_t i) { store(y + i, body(load(gate + i))); },
        [&](std::size_t i, std::size_t n) { store_n(y + i, body(load_n(gate + i, n)), n); });
    return;
  }
  const float* up = args.up + row * args.x_stride;
  for_lanes(
      args.width, [&](std::size_t i) { store(y + i, mul(body(load(gate + i)), load(up + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, mul(body(load_n(gate + i, n)), load_n(up + i, n)), n); });
}

LLORCH_INLINE void swiglu_oai_row(const SwigluArgs& args, std::size_t row) {
  const float* gate = args.gate + row * args.x_stride;
  const float* up = args.up + row * args.x_stride;
  float* y = args.y + row * args.y_stride;
  const F32x16 limit = set1(args.limit), low = set1(-args.limit), alpha = set1(args.alpha), one = set1(1.0f);
  const auto apply = [&](F32x16 g, F32x16 u) __attribute__((always_inline)) {
    g = min(limit, g);  // operand orders keep NaN
    u = max(low, min(limit, u));
    const F32x16 e = exp_lanes(sub(set1(0.0f), mul(alpha, g)));
    return mul(add(u, one), div(g, add(one, e)));
  };
  for_lanes(
      args.width, [&](std::size_t i) { store(y + i, apply(load(gate + i), load(up + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, apply(load_n(gate + i, n), load_n(up + i, n)), n); });
}

LLORCH_INLINE void silu_clamped_row(const SwigluArgs& args, std::size_t row) {
  const float* gate = args.gate + row * args.x_stride;
  const float* up = args.up + row * args.x_stride;
  float* y = args.y + row * args.y_stride;
  const F32x16 limit = set1(args.limit), low = set1(-args.limit);
  const auto apply = [&](F32x16 g, F32x16 u) __attribute__((always_inline)) {  // operand orders keep NaN
    return mul(silu_lanes(min(limit, g)), max(low, min(limit, u)));
  };
  for_lanes(
      args.width, [&](std::size_t i) { store(y + i, apply(load(gate + i), load(up + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, apply(load_n(gate + i, n), load_n(up + i, n)), n); });
}

inline void swiglu(const SwigluArgs& args, Range rows) {
  const auto silu = [](F32x16 x) __attribute__((always_inline)) { return silu_lanes(x); };
  const auto gelu_tanh = [](F32x16 x) __attribute__((always_inline)) { return gelu_tanh_lanes(x); };
  const auto gelu_erf = [](F32x16 x) __attribute__((always_inline)) { return gelu_erf_lanes(x); };
  const auto relu2 = [](F32x16 x) __attribute__((always_inline)) { return relu2_lanes(x); };
  const auto sigmoid = [](F32x16 x) __attribute__((always_inline)) { return sigmoid_lanes(x); };
  const auto xielu = [&args](F32x16 x) __attribute__((always_inline)) { return xielu_lanes(args, x); };
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    switch (args.act) {
      case Activation::kSilu: activate_row(args, row, silu); break;
      case Activation::kGeluTanh: activate_row(args, row, gelu_tanh); break;
      case Activation::kGeluErf: activate_row(args, row, gelu_erf); break;
      case Activation::kSwigluOai: swiglu_oai_row(args, row); break;
      case Activation::kRelu2: activate_row(args, row, relu2); break;
      case Activation::kSigmoid: activate_row(args, row, sigmoid); break;
      case Activation::kXielu: activate_row(args, row, xielu); break;
      case Activation::kSiluClamped: silu_clamped_row(args, row); break;
    }
  }
}

LLORCH_INLINE void softmax_row(float* x, std::size_t width) {
  const F32x16 nothing = set1(-__builtin_inff());
  F32x16 largest = nothing, sums = set1(0.0f);
  for_lanes(
      width, [&](std::size_t i) { largest = max(largest, load(x + i)); },
      [&](std::size_t i, std::size_t n) { largest = max(largest, keep_lanes(load_n(x + i, n), n, nothing)); });
  const F32x16 top = set1(tree_max(largest));
  for_lanes(
      width,
      [&](std::size_t i) {
        const F32x16 p = exp_of_negative(sub(load(x + i), top));
        store(x + i, p);
        sums = add(sums, p);
      },
      [&](std::size_t i, std::size_t n) {
        const F32x16 p = exp_of_negative(sub(keep_lanes(load_n(x + i, n), n, nothing), top));
        store_n(x + i, p, n);
        sums = add(sums, p);
      });
  const F32x16 total = set1(tree_sum(sums));
  for_lanes(
      width, [&](std::size_t i) { store(x + i, div(load(x + i), total)); },
      [&](std::size_t i, std::size_t n) { store_n(x + i, div(load_n(x + i, n), total), n); });
}

template <class Body>
LLORCH_INLINE void each_element(float* x, std::size_t width, const Body& body) {
  for_lanes(
      width, [&](std::size_t i) { store(x + i, body(load(x + i))); },
      [&](std::size_t i, std::size_t n) { store_n(x + i, body(load_n(x + i, n)), n); });
}

inline void probabilities(const ProbabilitiesArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = args.x + row * args.width;
    switch (args.kind) {
      case Probabilities::kSoftmax: softmax_row(x, args.width); break;
      case Probabilities::kSigmoid:
        each_element(
            x, args.width, [](F32x16 v) __attribute__((always_inline)) { return sigmoid_lanes(v); });
        break;
      case Probabilities::kSqrtSoftplus:
        each_element(
            x, args.width, [](F32x16 v) __attribute__((always_inline)) { return square_root(softplus_lanes(v)); });
        break;
    }
  }
}

inline void residual_add(const ResidualAddArgs& args, Range range) {
  const float *a = args.a + range.begin, *b = args.b + range.begin;
  float* y = args.y + range.begin;
  const F32x16 scale = set1(args.scale);
  for_lanes(
      range.end - range.begin, [&](std::size_t i) { store(y + i, fma(scale, load(b + i), load(a + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, fma(scale, load_n(b + i, n), load_n(a + i, n)), n); });
}

inline void add_bias(const AddBiasArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = args.x + row * args.x_stride;
    for_lanes(
        args.width, [&](std::size_t i) { store(x + i, add(load(x + i), load(args.bias + i))); },
        [&](std::size_t i, std::size_t n) { store_n(x + i, add(load_n(x + i, n), load_n(args.bias + i, n)), n); });
  }
}

inline void add_interpolated(const AddInterpolatedArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = args.x + row * args.x_stride;
    const std::uint32_t* taps = args.taps + 4 * row;
    const float* weights = args.weights + 4 * row;
    const float* entries[4];
    F32x16 w[4];
    for (int k = 0; k < 4; ++k) entries[k] = args.table + taps[k] * args.width, w[k] = set1(weights[k]);
    for_lanes(
        args.width,
        [&](std::size_t i) {
          F32x16 sum = mul(w[0], load(entries[0] + i));
          for (int k = 1; k < 4; ++k) sum = fma(w[k], load(entries[k] + i), sum);
          store(x + i, add(load(x + i), sum));
        },
        [&](std::size_t i, std::size_t n) {
          F32x16 sum = mul(w[0], load_n(entries[0] + i, n));
          for (int k = 1; k < 4; ++k) sum = fma(w[k], load_n(entries[k] + i, n), sum);
          store_n(x + i, add(load_n(x + i, n), sum), n);
        });
  }
}

// cap * tanh(x / cap)
LLORCH_INLINE F32x16 softcap_lanes(F32x16 x, F32x16 cap) { return mul(cap, tanh_lanes(div(x, cap))); }

inline void scale_softcap(const ScaleSoftcapArgs& args, Range range) {
  float* y = args.y + range.begin;
  const F32x16 scale = set1(args.scale), cap = set1(args.softcap);
  const bool capped = args.softcap > 0;
  const auto apply = [&](F32x16 x) __attribute__((always_inline)) {
    const F32x16 scaled = mul(x, scale);
    return capped ? softcap_lanes(scaled, cap) : scaled;
  };
  for_lanes(
      range.end - range.begin, [&](std::size_t i) { store(y + i, apply(load(y + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, apply(load_n(y + i, n)), n); });
}

inline void exp_array(const float* x, float* y, std::size_t count) {
  for_lanes(
      count, [&](std::size_t i) { store(y + i, exp_lanes(load(x + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, exp_lanes(load_n(x + i, n)), n); });
}
inline void tanh_array(const float* x, float* y, std::size_t count) {
  for_lanes(
      count, [&](std::size_t i) { store(y + i, tanh_lanes(load(x + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, tanh_lanes(load_n(x + i, n)), n); });
}
inline void erf_array(const float* x, float* y, std::size_t count) {
  for_lanes(
      count, [&](std::size_t i) { store(y + i, erf_lanes(load(x + i))); },
      [&](std::size_t i, std::size_t n) { store_n(y + i, erf_lanes(load_n(x + i, n)), n); });
}
inline void sincos_array(const float* x, float* sine, float* cosine, std::size_t count) {
  F32x16 s, c;
  for_lanes(
      count, [&](std::size_t i) { sincos_lanes(load(x + i), s, c), store(sine + i, s), store(cosine + i, c); },
      [&](std::size_t i, std::size_t n) {
        sincos_lanes(load_n(x + i, n), s, c), store_n(sine + i, s, n), store_n(cosine + i, c, n);
      });
}
