// Matrix products, activation quantisation and row gather. Included inside the namespace of one instruction set.

// A row of activations to int8 blocks. The largest magnitude is found on bit patterns, so NaN and infinity win; such a
// block gets scale NaN, a block below 2^-100 scale 0, both q = 0.
inline void quantise(const QuantiseArgs& args, Range rows) {
  const std::size_t blocks = args.out.width / 32;
  const I32x16 magnitude_mask = set1_i(INT32_MAX);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    const float* x = args.x + row * args.x_stride;
    for (std::size_t b = 0; b < blocks; ++b) {
      const F32x16 x0 = load(x + 32 * b), x1 = load(x + 32 * b + 16);
      const std::int32_t bits =
          max_lane(max(bit_and(bits_of(x0), magnitude_mask), bit_and(bits_of(x1), magnitude_mask)));
      float amax;
      __builtin_memcpy(&amax, &bits, sizeof amax);
      std::int8_t* q = args.out.q + row * args.out.width + 32 * b;
      float& scale = args.out.scales[row * blocks + b];
      std::int32_t& sum = args.out.sums[row * blocks + b];
      if (amax >= 0x1p-100f && bits < 0x7f800000) {
        const F32x16 inverse = set1(127.0f / amax);
        const I32x16 q0 = to_int(mul(x0, inverse)), q1 = to_int(mul(x1, inverse));
        store_i8(q, q0), store_i8(q + 16, q1);
        scale = amax / 127.0f;
        sum = sum_lanes(add(q0, q1));
      } else {
        store_i8(q, set1_i(0)), store_i8(q + 16, set1_i(0));
        scale = bits < 0x7f800000 ? 0.0f : __builtin_nanf("");
        sum = 0;
      }
    }
  }
}

struct F32Weights {
  using Element = float;
  static LLORCH_INLINE F32x16 lanes(const float* p) { return load(p); }
};
struct F16Weights {
  using Element = std::uint16_t;
  static LLORCH_INLINE F32x16 lanes(const std::uint16_t* p) { return load_f16(p); }
};
struct Bf16Weights {
  using Element = std::uint16_t;
  static LLORCH_INLINE F32x16 lanes(const std::uint16_t* p) { return load_bf16(p); }
};

LLORCH_INLINE void store_outputs(const MatmulArgs& args, std::size_t row, std::size_t group, F32x16 value) {
  float* y = args.y + row * args.y_stride + group * kPackRows;
  const std::size_t left = args.w.rows - group * kPackRows;
  if (left >= kPackRows) {
    store(y, value);
  } else {
    store_n(y, value, left);
  }
}

// kGroups x kRows outputs groups: two sums each, even and odd k, added at the end.
template <class Weights, int kGroups, int kRows>
inline void float_tile(const MatmulArgs& args, std::size_t group, std::size_t row) {
  using Element = typename Weights::Element;
  const Element* w[kGroups];
  for (int g = 0; g < kGroups; ++g)
    w[g] = reinterpret_cast<const Element*>(args.w.data + (group + static_cast<std::size_t>(g)) * args.w.group_bytes);
  const float* x = args.x + row * args.x_stride;
  const std::size_t x_stride = args.x_stride, depth = args.w.cols;
  F32x16 even[kGroups][kRows], odd[kGroups][kRows];
  for (int g = 0; g < kGroups; ++g)
    for (int r = 0; r < kRows; ++r) even[g][r] = odd[g][r] = set1(0.0f);
  const auto step = [&](F32x16(&sums)[kGroups][kRows], std::size_t k) __attribute__((always_inline)) {
    F32x16 wk[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) wk[g] = Weights::lanes(w[g] + k * kPackRows);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32x16 xk = set1(x[static_cast<std::size_t>(r) * x_stride + k]);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) sums[g][r] = fma(wk[g], xk, sums[g][r]);
    }
  };
  std::size_t k = 0;
  for (; k + 1 < depth; k += 2) step(even, k), step(odd, k + 1);
  if (k < depth) step(even, k);
  for (int g = 0; g < kGroups; ++g)
    for (int r = 0; r < kRows; ++r)
      store_outputs(args, row + static_cast<std::size_t>(r), group + static_cast<std::size_t>(g),
                    add(even[g][r], odd[g][r]));
}

struct Q8Weights {
  static constexpr std::size_t kBlockBytes = 512;
  template <int kRows>
  static LLORCH_INLINE void dot(const std::uint8_t* w, const std::int8_t* x, std::size_t x_stride,
                                const std::int32_t* const (&x_sums)[kRows], std::size_t block, I32x16 (&sums)[kRows]) {
    dot_block_q8<kRows>(w, x, x_stride, x_sums, block, sums);
  }
};
struct Q4Weights {
  static constexpr std::size_t kBlockBytes = 256;
  template <int kRows>
  static LLORCH_INLINE void dot(const std::uint8_t* w, const std::int8_t* x, std::size_t x_stride,
                                const std::int32_t* const (&x_sums)[kRows], std::size_t block, I32x16 (&sums)[kRows]) {
    dot_block_q4<kRows>(w, x, x_stride, x_sums, block, sums);
  }
};

// One group x kRows: blocks in order, each adding (d_w * d_x) * (exact integer sum).
template <class Weights, int kRows>
inline void quant_tile(const MatmulArgs& args, std::size_t group, std::size_t row) {
  const std::size_t blocks = args.w.cols / 32, x_stride = args.xq.width;
  const std::byte* base = args.w.data + group * args.w.group_bytes;
  const auto* w = reinterpret_cast<const std::uint8_t*>(base);
  const auto* w_scales = reinterpret_cast<const std::uint16_t*>(base + blocks * Weights::kBlockBytes);
  const std::int8_t* x = args.xq.q + row * x_stride;
  const float* x_scales[kRows];
  const std::int32_t* x_sums[kRows];
  F32x16 y[kRows];
  for (int r = 0; r < kRows; ++r) {
    const std::size_t at = (row + static_cast<std::size_t>(r)) * blocks;
    x_scales[r] = args.xq.scales + at;
    x_sums[r] = args.xq.sums + at;
    y[r] = set1(0.0f);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    I32x16 sums[kRows];
    Weights::template dot<kRows>(w + b * Weights::kBlockBytes, x + 32 * b, x_stride, x_sums, b, sums);
    const F32x16 scale = load_f16(w_scales + b * kPackRows);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) y[r] = fma(mul(scale, set1(x_scales[r][b])), to_float(sums[r]), y[r]);
  }
  for (int r = 0; r < kRows; ++r) store_outputs(args, row + static_cast<std::size_t>(r), group, y[r]);
}

// Calls body(integral_constant-like kRows, row) so that rows [0, rows) are covered by tiles of kMaxRows, then one
// smaller.
template <int kRows>
struct TileRows {
  static constexpr int value = kRows;
};
template <int kRows, class Body>
LLORCH_INLINE void last_tile(std::size_t rows, std::size_t row, const Body& body) {
  if constexpr (kRows > 0) {
    if (rows == static_cast<std::size_t>(kRows)) return body(TileRows<kRows>{}, row);
    last_tile<kRows - 1>(rows, row, body);
  }
}
template <int kMaxRows, class Body>
LLORCH_INLINE void for_row_tiles(Range rows, const Body& body) {
  std::size_t row = rows.begin;
  for (; row + kMaxRows <= rows.end; row += kMaxRows) body(TileRows<kMaxRows>{}, row);
  last_tile<kMaxRows - 1>(rows.end - row, row, body);
}

// Rows of activations that one pass over the weights serves: small enough to stay in the second-level cache.
inline constexpr std::size_t kRowPanel = 96;

template <class Weights>
inline void float_matmul(const MatmulArgs& args, Range groups) {
  for (std::size_t panel = 0; panel < args.rows; panel += kRowPanel) {
    const std::size_t end = panel + kRowPanel < args.rows ? panel + kRowPanel : args.rows;
    std::size_t g = groups.begin;
    if (args.rows == 1)
      for (; g + kFloatSingleGroups <= groups.end; g += kFloatSingleGroups)
        float_tile<Weights, kFloatSingleGroups, 1>(args, g, 0);
    if constexpr (kFloatTileGroups > 1) {
      for (; g + kFloatTileGroups <= groups.end; g += kFloatTileGroups)
        for_row_tiles<kFloatTileRows>({panel, end}, [&](auto tile, std::size_t row) {
          float_tile<Weights, kFloatTileGroups, decltype(tile)::value>(args, g, row);
        });
    }
    for (; g < groups.end; ++g)
      for_row_tiles<kFloatTileRows>({panel, end}, [&](auto tile, std::size_t row) {
        float_tile<Weights, 1, decltype(tile)::value>(args, g, row);
      });
  }
}

template <class Weights>
inline void quant_matmul(const MatmulArgs& args, Range groups) {
  for (std::size_t panel = 0; panel < args.rows; panel += kRowPanel) {
    const std::size_t end = panel + kRowPanel < args.rows ? panel + kRowPanel : args.rows;
    for (std::size_t g = groups.begin; g < groups.end; ++g)
      for_row_tiles<kQuantTileRows>(
          {panel, end}, [&](auto tile, std::size_t row) { quant_tile<Weights, decltype(tile)::value>(args, g, row); });
  }
}

inline void matmul(const MatmulArgs& args, Range groups) {
  switch (args.w.dtype) {
    case contract::DType::kF32: return float_matmul<F32Weights>(args, groups);
    case contract::DType::kF16: return float_matmul<F16Weights>(args, groups);
    case contract::DType::kBF16: return float_matmul<Bf16Weights>(args, groups);
    case contract::DType::kQ8_0: return quant_matmul<Q8Weights>(args, groups);
    case contract::DType::kQ4_0: return quant_matmul<Q4Weights>(args, groups);
    default: return;  // never packed
  }
}

// One element of a packed row as binary32, exact.
LLORCH_INLINE float packed_element(const PackedMatrix& w, const std::byte* group, std::size_t lane, std::size_t k) {
  const std::size_t block = k / 32, e = k % 32, blocks = w.cols / 32;
  const auto scale = [&](std::size_t block_bytes) {
    const auto* scales = reinterpret_cast<const std::uint16_t*>(group + blocks * block_bytes);
    return _cvtsh_ss(scales[block * kPackRows + lane]);
  };
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(group);
  switch (w.dtype) {
    case contract::DType::kF32: return reinterpret_cast<const float*>(group)[k * kPackRows + lane];
    case contract::DType::kF16: return _cvtsh_ss(reinterpret_cast<const std::uint16_t*>(group)[k * kPackRows + lane]);
    case contract::DType::kBF16: {
      const std::uint32_t bits =
          static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(group)[k * kPackRows + lane]) << 16;
      float value;
      __builtin_memcpy(&value, &bits, sizeof value);
      return value;
    }
    case contract::DType::kQ8_0: {
      const int q = bytes[block * 512 + (e / 4 * kPackRows + lane) * 4 + e % 4] - 128;
      return scale(512) * static_cast<float>(q);
    }
    case contract::DType::kQ4_0: {
      const std::uint8_t pair = bytes[block * 256 + (e % 16 / 4 * kPackRows + lane) * 4 + e % 4];
      return scale(256) * static_cast<float>((e < 16 ? pair & 15 : pair >> 4) - 8);
    }
    default: break;  // never packed
  }
  return 0.0f;
}

inline void gather(const GatherArgs& args, Range units) {
  for (std::size_t i = units.begin; i < units.end; ++i) {
    const std::size_t row = args.row_ids[i];
    const std::byte* group = args.w.data + row / kPackRows * args.w.group_bytes;
    float* y = args.y + i * args.w.cols;
    for (std::size_t k = 0; k < args.w.cols; ++k) y[k] = args.scale * packed_element(args.w, group, row % kPackRows, k);
  }
}
