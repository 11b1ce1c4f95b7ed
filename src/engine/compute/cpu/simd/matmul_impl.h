// Matrix products with float weights, activation quantization and row gather; quant_matmul_impl.h comes before. Included
// inside the namespace of one instruction set.

// A positive number rounded to 22 bits, halves up.
LLORCH_INLINE float to_22_bits(float x) {
  std::int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits = (bits + 2) & ~3;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// What integer sums of codes with an offset begin with. `minus_pairs`: minus the sum of q at indices mod 4 in {0, 1}, and beside it
// of those in {2, 3}; `minus_sums`: both together. Of codes plus 128 what takes 128 off; sums of pairs begin with both numbers, side
// by side, times their offset.
LLORCH_INLINE __m256i begins_of(__m256i minus_pairs, __m256i minus_sums) {
  if constexpr (kSignedCodes) return minus_pairs;
  return _mm256_add_epi32(_mm256_slli_epi32(minus_sums, 7), _mm256_set1_epi32(kSumBaseBits));
}

// Stores 32 lanes as int8, their scale, and what is made of both: all fields of a block are one vector of eight lanes. REQUIRES
// every lane in [-127, 127].
LLORCH_INLINE void store_block(QuantizedBlock& block, I32x16 low, I32x16 high, float scale) {
  const __m256i bytes = _mm256_set_m128i(to_bytes(high), to_bytes(low));
  // Of each half of the block, in all its lanes: minus the sum of q at indices mod 4 in {0, 1}, and beside it of those in {2, 3}.
  __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0x4E));
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xB1));
  pairs = _mm256_sub_epi16(_mm256_setzero_si256(), pairs);
  const __m256i both = _mm256_add_epi16(pairs, _mm256_permute4x64_epi64(pairs, 0x4E));
  // scale, minus_base, all, first half, second half, all, first half, second half
  const __m256i halves = _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 0, 0, 0, 4, 0, 0, 4));
  const __m256i minus_pairs = _mm256_blend_epi32(halves, both, 0b00100100);
  const __m256i minus_sums = _mm256_madd_epi16(minus_pairs, _mm256_set1_epi16(1));
  const __m256 factors =
      _mm256_blend_ps(_mm256_cvtepi32_ps(minus_sums), _mm256_setr_ps(1.0f, -kSumBase, 0, 0, 0, 0, 0, 0), 0b00000011);
  const __m256i scaled = _mm256_castps_si256(_mm256_mul_ps(_mm256_set1_ps(scale), factors));
  const __m256i fields = _mm256_blend_epi32(scaled, begins_of(minus_pairs, minus_sums), 0b11100000);
  static_assert(offsetof(QuantizedBlock, scale) == 32 && offsetof(QuantizedBlock, minus_base) == 36 &&
                offsetof(QuantizedBlock, minus_scaled_sum) == 40 &&
                offsetof(QuantizedBlock, minus_scaled_half_sums) == 44 && offsetof(QuantizedBlock, begin) == 52 &&
                offsetof(QuantizedBlock, half_begins) == 56);
  auto* const out = reinterpret_cast<__m256i*>(&block);
  _mm256_store_si256(out, bytes);
  _mm256_store_si256(out + 1, fields);
}

// A block of activations to int8. The largest magnitude is found on bit patterns, so NaN and infinity win; a block that has them,
// or reaches 2^100, gets scale NaN, a block below 2^-100 scale 0, all of these q = 0.
LLORCH_INLINE void quantize_block(const float* x, QuantizedBlock& block) {
  const I32x16 magnitude_mask = set1_i(INT32_MAX);
  const F32x16 x0 = load(x), x1 = load(x + 16);
  const std::int32_t bits = max_lane(max(bit_and(bits_of(x0), magnitude_mask), bit_and(bits_of(x1), magnitude_mask)));
  float amax;
  __builtin_memcpy(&amax, &bits, sizeof amax);
  I32x16 q0 = set1_i(0), q1 = set1_i(0);
  constexpr std::int32_t kTooLargeBits = 0x71800000;  // of 2^100
  float scale = bits < kTooLargeBits ? 0.0f : __builtin_nanf("");
  if (amax >= 0x1p-100f && bits < kTooLargeBits) {
    const F32x16 inverse = set1(127.0f / amax);
    q0 = to_int(mul(x0, inverse)), q1 = to_int(mul(x1, inverse));
    scale = to_22_bits(amax / 127.0f);
  }
  store_block(block, q0, q1, scale);
}

inline void quantize(const QuantizeArgs& args, Range rows) {
  const std::size_t row_blocks = args.out.row_blocks(), blocks = args.cols == 0 ? row_blocks : args.cols / 32;
  for (std::size_t row = rows.begin; row < rows.end; ++row)
    for (std::size_t b = 0; b < blocks; ++b)
      quantize_block(args.x + row * args.x_stride + 32 * b, args.out.blocks[row * row_blocks + b]);
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

// kGroups x kRows outputs groups: two sums each, even and odd k, added at the end. `asks`: the weights come from memory.
template <class Weights, int kGroups, int kRows>
inline void float_tile(const MatmulArgs& args, std::size_t group, std::size_t row, bool asks) {
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
  for (; k + 1 < depth; k += 2) {
    if (asks) {
      for (const Element* of : w)
        ask_ahead(reinterpret_cast<const std::uint8_t*>(of + k * kPackRows), 2 * kPackRows * sizeof(Element));
    }
    step(even, k), step(odd, k + 1);
  }
  if (k < depth) step(even, k);
  for (int g = 0; g < kGroups; ++g)
    for (int r = 0; r < kRows; ++r)
      store_outputs(args, row + static_cast<std::size_t>(r), group + static_cast<std::size_t>(g),
                    add(even[g][r], odd[g][r]));
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
    // What one tile of rows waits for is memory: it reads the lines of a group in their order.
    if constexpr (kFloatTileGroups > 1) {
      for (; args.rows > kFloatTileRows && g + kFloatTileGroups <= groups.end; g += kFloatTileGroups)
        for_row_tiles<kFloatTileRows>({panel, end}, [&](auto tile, std::size_t row) {
          float_tile<Weights, kFloatTileGroups, decltype(tile)::value>(args, g, row, row == panel);
        });
    }
    for (; g < groups.end; ++g)
      for_row_tiles<kFloatTileRows>({panel, end}, [&](auto tile, std::size_t row) {
        float_tile<Weights, 1, decltype(tile)::value>(args, g, row, row == panel);
      });
  }
}

inline void matmul(const MatmulArgs& args, Range groups) {
  using plan::DType;
  switch (args.w.dtype) {
    case DType::kF32: return float_matmul<F32Weights>(args, groups);
    case DType::kF16: return float_matmul<F16Weights>(args, groups);
    case DType::kBF16: return float_matmul<Bf16Weights>(args, groups);
    default: break;
  }
  with_quant_weights(args.w.dtype, [&](auto weights) { quant_matmul<decltype(weights)>(args, groups); });
}

// One block of a packed quantized row to binary32, exactly as the stored type says.
inline void unpack_block(const QuantLayout& layout, const std::byte* group, std::size_t blocks, std::size_t lane,
                         std::size_t block, float* y) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(group);
  const QuantLayout::Place place = layout.place(block, blocks, layout.record_blocks());
  const std::uint8_t* codes = bytes + place.codes;
  const std::uint8_t* small = bytes + place.small + lane;
  const std::uint8_t* factors = bytes + place.factors;
  const auto half = [&](std::size_t i) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, factors + (i * kPackRows + lane) * 2, sizeof bits);
    return _cvtsh_ss(bits);
  };
  float d;
  if (layout.exponent_factor) {
    const std::uint32_t e = factors[lane], bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    __builtin_memcpy(&d, &bits, sizeof d);
  } else {
    d = half(0);
  }
  const float m = layout.has_min ? half(1) : 0.0f;
  for (std::size_t e = 0; e < 32; ++e) {
    const auto cell = [&](const std::uint8_t* plane, std::size_t word) {
      return plane[(word * kPackRows + lane) * 4 + e % 4];
    };
    const std::uint8_t* plane = codes;
    int code = 0, shift = 0;
    if (layout.byte_plane) code = cell(plane, e / 4);
    if (layout.nibble_plane) code = cell(plane, e % 16 / 4) >> (e / 16 * 4) & 15, plane += 256, shift = 4;
    if (layout.pair_plane) code |= (cell(plane, e / 16) >> (e / 4 % 4 * 2) & 3) << shift, plane += 128, shift += 2;
    if (layout.bit_plane) code |= (cell(plane, 0) >> e / 4 & 1) << shift;
    const auto integer =
        static_cast<float>(layout.has_levels ? layout.levels[static_cast<std::size_t>(code)] : code - layout.offset);
    switch (layout.small) {
      case SmallScale::kNone: y[e] = layout.has_min ? d * integer + m : d * integer; break;
      case SmallScale::kSigned: y[e] = d * static_cast<float>(static_cast<std::int8_t>(*small)) * integer; break;
      case SmallScale::kSignedHalves:
        y[e] = d * static_cast<float>(static_cast<std::int8_t>(small[e / 16 * kPackRows])) * integer;
        break;
      case SmallScale::kUnsignedMin:
        y[e] = d * static_cast<float>(small[0]) * integer - m * static_cast<float>(small[kPackRows]);
        break;
      case SmallScale::kHalvesWithMins: {
        const int c = small[e / 16 * kPackRows];
        y[e] = d * static_cast<float>(c & 15) * integer - m * static_cast<float>(c >> 4);
        break;
      }
    }
  }
}

LLORCH_INLINE float packed_float(const PackedMatrix& w, const std::byte* group, std::size_t at) {
  if (w.dtype == plan::DType::kF32) return reinterpret_cast<const float*>(group)[at];
  const std::uint16_t stored = reinterpret_cast<const std::uint16_t*>(group)[at];
  if (w.dtype == plan::DType::kF16) return _cvtsh_ss(stored);
  const std::uint32_t bits = static_cast<std::uint32_t>(stored) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline void gather(const GatherArgs& args, Range units) {
  const bool quantized = plan::is_quantized(args.w.dtype);
  const QuantLayout layout = quantized ? quant_layout(args.w.dtype) : QuantLayout{};
  for (std::size_t i = units.begin; i < units.end; ++i) {
    const std::size_t row = args.row_ids[i], lane = row % kPackRows, blocks = args.w.cols / 32;
    const std::byte* group = args.w.data + row / kPackRows * args.w.group_bytes;
    const std::size_t first = args.first_col, cols = args.cols != 0 ? args.cols : args.w.cols;
    float* y = args.y + i * cols;
    if (quantized) {
      for (std::size_t b = 0; b < cols / 32; ++b) unpack_block(layout, group, blocks, lane, first / 32 + b, y + 32 * b);
    } else {
      for (std::size_t k = 0; k < cols; ++k) y[k] = packed_float(args.w, group, (first + k) * kPackRows + lane);
    }
    for (std::size_t k = 0; k < cols; ++k) y[k] = args.scale * y[k];
  }
}
