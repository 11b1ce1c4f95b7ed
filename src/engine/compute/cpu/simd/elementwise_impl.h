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

inline void rope_table(const RopeTableArgs& args, Range rows) {
  const std::size_t pairs = args.rotary_dims / 2;
  const F32x16 factor = set1(args.attn_factor);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const F32x16 position = set1(static_cast<float>(args.positions[row]));
    float* cosines = args.cosines + row * args.rotary_dims;
    float* sines = args.sines + row * args.rotary_dims;
    for (std::size_t i = 0; i < pairs; i += 16) {
      const std::size_t n = pairs - i < 16 ? pairs - i : 16;
      const F32x16 f = n == 16 ? load(args.inv_freq + i) : load_n(args.inv_freq + i, n);
      F32x16 s, c;
      sincos_lanes(mul(position, f), s, c);
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

inline void swiglu(const SwigluArgs& args, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* gate = args.gate + row * args.x_stride;
    const float* up = args.up + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(
        args.width, [&](std::size_t i) { store(y + i, mul(silu_lanes(load(gate + i)), load(up + i))); },
        [&](std::size_t i, std::size_t n) {
          store_n(y + i, mul(silu_lanes(load_n(gate + i, n)), load_n(up + i, n)), n);
        });
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
inline void sincos_array(const float* x, float* sine, float* cosine, std::size_t count) {
  F32x16 s, c;
  for_lanes(
      count, [&](std::size_t i) { sincos_lanes(load(x + i), s, c), store(sine + i, s), store(cosine + i, c); },
      [&](std::size_t i, std::size_t n) {
        sincos_lanes(load_n(x + i, n), s, c), store_n(sine + i, s, n), store_n(cosine + i, c, n);
      });
}
