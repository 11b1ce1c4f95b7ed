// Matrix products with quantized weights. Included inside the namespace of one instruction set.
//
// A tile is sixteen weight rows x a few rows of activations. A block of 32 goes through it in three steps: codes are unpacked,
// multiplied (block_sums() of the instruction set), and combined into the tile's sums in the order of
// docs/internals/numerics.md. Few rows take their codes straight from the packed group, each tile for itself; for many, a slab
// of blocks is unpacked first, once for all of them.

template <plan::DType kType>
struct QuantWeights {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  // Their integers reach to 127 on both sides of zero: bytes, not small codes.
  static constexpr bool kBytes = kLayout.has_levels || kLayout.byte_plane;
  static constexpr bool kSigned = kBytes && kSignedCodes;
  static constexpr int kCodeMax = kSigned ? 0 : kBytes ? 255 : kLayout.code_max();  // 0: signed bytes
  // What codes have too much. Where they meet an unsigned multiplier, every offset is made 128, for which blocks of activations
  // have their begins.
  static constexpr int kStoredOffset = kBytes ? 128 : kLayout.offset;
  static constexpr int kOffset = kSigned || kStoredOffset == 0 ? 0 : kSignedCodes ? kStoredOffset : 128;
  static constexpr int kScales = kLayout.has_halves() ? 2 : 1;  // of a block
  static constexpr int kMins = kLayout.has_min ? kScales : 0;
  // Rows of activations that meet codes as they are packed; more meet a slab.
  static constexpr std::size_t kPackedRowsMost =
      kLayout.pair_plane || kLayout.bit_plane ? kPackedRowsOfPlanes : kPackedRows;
  static_assert(kPackedRowsMost <= kPackedRows);

  // What the integer sums of the elements of scale kScale begin with.
  template <int kScale>
  static LLORCH_INLINE std::int32_t begin(const QuantizedBlock& x) {
    if constexpr (kOffset == 0) return kSumBaseBits;
    return kScales == 1 ? x.begin : x.half_begins[kScale];
  }

  // Codes of group g of a block, unpacked from its planes (quant_layout.h); `w` is where a part's first row begins.
  template <class Group>
  static LLORCH_INLINE PartBytes codes(const std::uint8_t* w, Group) {
    constexpr int g = Group::value;
    if constexpr (kLayout.byte_plane) {
      const PartBytes code = load_part_bytes(w + 64 * g);
      return kSigned ? flip_signs(code) : code;
    } else {
      constexpr int kPairShift = kLayout.nibble_plane ? 4 : 0, kBitShift = kPairShift + (kLayout.pair_plane ? 2 : 0);
      PartBytes code{};
      if constexpr (kLayout.nibble_plane) {
        code = bits_at<g / 4 * 4, 15, 0>(load_part_bytes(w + 64 * (g % 4)));
        w += 256;
      }
      if constexpr (kLayout.pair_plane) {
        const PartBytes pair = bits_at<g % 4 * 2, 3, kPairShift>(load_part_bytes(w + 64 * (g / 4)));
        code = kPairShift == 0 ? pair : bit_or(code, pair);
        w += 128;
      }
      if constexpr (kLayout.bit_plane) code = bit_or(code, bits_at<g, 1, kBitShift>(load_part_bytes(w)));
      if constexpr (kLayout.has_levels) code = look_up(code, kLevelTable);
      if constexpr (!kBytes && kOffset != kLayout.offset) code = add_bytes(code, kOffset - kLayout.offset);
      return code;
    }
  }

 private:
  static constexpr std::array<std::int8_t, 16> level_bytes() {
    std::array<std::int8_t, 16> bytes{};
    for (std::size_t i = 0; i < 16; ++i) bytes[i] = static_cast<std::int8_t>(kLayout.levels[i] + (kSigned ? 0 : 128));
    return bytes;
  }
  static constexpr std::array<std::int8_t, 16> kLevelArray = level_bytes();
  static constexpr const std::int8_t* kLevelTable = kLevelArray.data();
};

// work(QuantWeights of a type); false: the type is not quantized, or never packed.
template <class Work>
LLORCH_INLINE bool with_quant_weights(plan::DType dtype, const Work& work) {
  using plan::DType;
  switch (dtype) {
    case DType::kQ8_0: return work(QuantWeights<DType::kQ8_0>{}), true;
    case DType::kQ4_0: return work(QuantWeights<DType::kQ4_0>{}), true;
    case DType::kQ4_1: return work(QuantWeights<DType::kQ4_1>{}), true;
    case DType::kQ5_0: return work(QuantWeights<DType::kQ5_0>{}), true;
    case DType::kQ5_1: return work(QuantWeights<DType::kQ5_1>{}), true;
    case DType::kQ2_K: return work(QuantWeights<DType::kQ2_K>{}), true;
    case DType::kQ3_K: return work(QuantWeights<DType::kQ3_K>{}), true;
    case DType::kQ4_K: return work(QuantWeights<DType::kQ4_K>{}), true;
    case DType::kQ5_K: return work(QuantWeights<DType::kQ5_K>{}), true;
    case DType::kQ6_K: return work(QuantWeights<DType::kQ6_K>{}), true;
    case DType::kIQ4_NL: return work(QuantWeights<DType::kIQ4_NL>{}), true;
    case DType::kIQ4_XS: return work(QuantWeights<DType::kIQ4_XS>{}), true;
    case DType::kMXFP4: return work(QuantWeights<DType::kMXFP4>{}), true;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8_E4M3:
    case DType::kI32: break;
  }
  return false;
}

// Of bytes, without a mask that would take a register of a tile.
LLORCH_INLINE I32x16 low_nibbles(I32x16 bytes) { return sub(bytes, shift_left<4>(shift_right<4>(bytes))); }

// 2^(e - 128) of sixteen exponent bytes; e 0 and 1 are subnormal.
LLORCH_INLINE F32x16 load_exponents(const std::uint8_t* p) {
  const I32x16 e = load_u8(p);
  const I32x16 small = add(set1_i(0x00200000), mul_int(e, set1_i(0x00200000)));
  return select(less(e, set1_i(2)), float_of(small), float_of(shift_left<23>(sub(e, set1_i(1)))));
}

// Part kPart of a block as it lies in a packed group.
template <class Weights, int kPart>
struct PackedBlock {
  const std::uint8_t* w;       // planes of the block
  const std::uint8_t* small;   // its small scales
  const std::uint8_t* factor;  // of the blocks that share it
  static constexpr QuantLayout kLayout = Weights::kLayout;

  template <class Group>
  LLORCH_INLINE PartBytes codes(Group group) const {
    return Weights::codes(w + kPart * 64 / kParts, group);
  }
  // Scale `i` of the block and its min: the shared factor times a small number, exact in f32.
  LLORCH_INLINE PartF scale(int i) const {
    const std::uint8_t* p = small + kPackRows * static_cast<std::size_t>(i);
    if constexpr (kLayout.exponent_factor) return part<kPart>(load_exponents(factor));
    const PartF d = part<kPart>(load_f16(reinterpret_cast<const std::uint16_t*>(factor)));
    if constexpr (kLayout.small == SmallScale::kNone) return d;
    if constexpr (kLayout.small == SmallScale::kHalvesWithMins)
      return mul(d, part<kPart>(to_float(low_nibbles(load_u8(p)))));
    if constexpr (kLayout.small == SmallScale::kUnsignedMin) return mul(d, part<kPart>(to_float(load_u8(p))));
    return mul(d, part<kPart>(to_float(load_i8(p))));
  }
  LLORCH_INLINE PartF min(int i) const {
    const PartF m = part<kPart>(load_f16(reinterpret_cast<const std::uint16_t*>(factor) + kPackRows));
    if constexpr (kLayout.small == SmallScale::kNone) return m;
    if constexpr (kLayout.small == SmallScale::kHalvesWithMins)
      return mul(m, part<kPart>(to_float(shift_right<4>(load_u8(small + kPackRows * static_cast<std::size_t>(i))))));
    return mul(m, part<kPart>(to_float(load_u8(small + kPackRows))));
  }
};

// A part of a block of a slab: lines of 64 bytes, the sixteen rows side by side; codes of eight groups, then scales, then mins.
// `lines` is where the part's first row begins.
template <class Weights>
struct SlabBlock {
  const std::uint8_t* lines;
  static constexpr int kMinLine = 8 + Weights::kScales;
  static constexpr std::size_t kBytes = 64 * (kMinLine + Weights::kMins);

  LLORCH_INLINE const std::uint8_t* line(int i) const { return lines + 64 * i; }
  LLORCH_INLINE PartF floats(int i) const { return load_part(reinterpret_cast<const float*>(line(i))); }
  template <class Group>
  LLORCH_INLINE PartBytes codes(Group) const {
    return load_part_bytes(line(Group::value));
  }
  LLORCH_INLINE PartF scale(int i) const { return floats(8 + i); }
  LLORCH_INLINE PartF min(int i) const { return floats(kMinLine + i); }

  template <int kPart>
  static LLORCH_INLINE void unpack(const PackedBlock<Weights, kPart>& from, std::uint8_t* out) {
    const auto put = [out](int i, PartF a) __attribute__((always_inline)) {
      store_part(reinterpret_cast<float*>(out + 64 * i), a);
    };
    for_groups<0, 8>([&](auto group) __attribute__((always_inline)) {
      store_part_bytes(out + 64 * decltype(group)::value, from.codes(group));
    });
    for (int i = 0; i < Weights::kScales; ++i) put(8 + i, from.scale(i));
    for (int i = 0; i < Weights::kMins; ++i) put(kMinLine + i, from.min(i));
  }
};

// Adds the block's sums and then its mins, in the order that makes the bits: y[r] = fma(scale of the weights, sum * scale of x[r],
// y[r]) for every scale of a block, then the same with its mins.
template <class Weights, class Block, int kGroups, int... kRow>
LLORCH_INLINE void add_blocks(Rows<kRow...> rows, const Block (&blocks)[kGroups],
                              const QuantizedBlock* const (&x)[sizeof...(kRow)], PartF (&y)[kGroups][sizeof...(kRow)]) {
  for_groups<0, Weights::kScales>([&](auto which) __attribute__((always_inline)) {
    constexpr int kScale = decltype(which)::value;
    PartF based[kGroups][sizeof...(kRow)], scales[kGroups];
    block_sums<Weights, kScale>(rows, blocks, x, based);
    // In place for all rows, before a register holds the scales of the weights: the largest tile has none to spare.
    const auto scale_sums = [&](int row) __attribute__((always_inline)) {
      const PartF scale = set1_part(x[row]->scale), minus_base = set1_part(x[row]->minus_base);
      for_groups<0, kGroups>([&](auto number) __attribute__((always_inline)) {
        constexpr int n = decltype(number)::value;
        based[n][row] = fma(based[n][row], scale, minus_base);
      });
    };
    (scale_sums(kRow), ...);
    for (int n = 0; n < kGroups; ++n) scales[n] = blocks[n].scale(kScale);
    const auto add = [&](int row) __attribute__((always_inline)) {
      for_groups<0, kGroups>([&](auto number) __attribute__((always_inline)) {
        constexpr int n = decltype(number)::value;
        y[n][row] = fma(scales[n], based[n][row], y[n][row]);
      });
    };
    (add(kRow), ...);
    // Or what scales share is kept through the products of the next: there is no room.
    if constexpr (Weights::kScales == 2) asm volatile("" ::: "memory");
  });
  for_groups<0, Weights::kMins>([&](auto which) __attribute__((always_inline)) {
    constexpr int kMin = decltype(which)::value;
    PartF mins[kGroups];
    for (int n = 0; n < kGroups; ++n) mins[n] = blocks[n].min(kMin);
    const auto add = [&](int row) __attribute__((always_inline)) {
      const PartF sum =
          set1_part(Weights::kMins == 1 ? x[row]->minus_scaled_sum : x[row]->minus_scaled_half_sums[kMin]);
      for_groups<0, kGroups>([&](auto number) __attribute__((always_inline)) {
        constexpr int n = decltype(number)::value;
        // The sign of the sum is turned: what is added to y takes the min off.
        y[n][row] =
            Weights::kLayout.small == SmallScale::kNone ? fnma(mins[n], sum, y[n][row]) : fma(mins[n], sum, y[n][row]);
      });
    };
    (add(kRow), ...);
  });
}

// One unpacking serves kQuantRowPanel rows. All groups meet kChunkBytes of them before the next: they stay in the second-level
// cache. A slab has kSlabBlocks blocks, a multiple of those that share a factor; every one costs a tile a beginning and an end.

// A group of sixteen weight rows, or several beside each other, x the rows of a tile; all outputs of a row are written.
struct QuantTileArgs {
  const std::uint8_t* w = nullptr;  // a packed group, or the slab of the first group; the next has its place behind
  std::size_t blocks = 0;
  const QuantizedBlock* x = nullptr;  // [rows, x_stride]
  std::size_t x_stride = 0;
  float* y = nullptr;  // [rows, groups * 16], row stride y_stride
  std::size_t y_stride = 0;
  bool begin = true;  // else y holds the sums of the blocks before
};

LLORCH_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

// Weights that are read once are asked for in two stages, every line of them: from memory into the second-level cache, and from
// there into the first-level one. A line left out breaks the walk that the processor fetches by itself. Without the second stage
// their loads queue for the few fill buffers of the first-level cache, which asks of the first stage hold for as long as memory
// takes: Q4_K then had a tenth less than a loop that only reads.
inline constexpr std::size_t kMemoryAheadBytes = 16 << 10, kCacheAheadBytes = 4 << 10;
LLORCH_INLINE void ask_ahead(const std::uint8_t* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(p + kMemoryAheadBytes + i, 0, 2);
    __builtin_prefetch(p + kCacheAheadBytes + i, 0, 3);
  }
}

template <class Weights, int... kRow>
LLORCH_INLINE void packed_rows(Rows<kRow...> rows, const QuantTileArgs& args) {
  constexpr QuantLayout kLayout = Weights::kLayout;
  constexpr int kCount = sizeof...(kRow);
  using First = PackedBlock<Weights, 0>;
  using Second = PackedBlock<Weights, kParts - 1>;
  const std::uint8_t* w = args.w;
  const QuantizedBlock* x[kCount] = {args.x + kRow * args.x_stride...};
  PartF first[1][kCount], second[1][kCount];
  ((first[0][kRow] = second[0][kRow] = set1_part(0.0f)), ...);
  for (std::size_t left = args.blocks, count = 0; left != 0; left -= count) {
    count = least(left, kLayout.record_blocks());
    const std::uint8_t *factor = w, *small = w + count / kLayout.factor_blocks * kLayout.factor_bytes();
    w = small + count * kLayout.small_bytes();
    ask_ahead(factor, static_cast<std::size_t>(w - factor));
    for (const std::uint8_t* const end = w + count * kLayout.code_bytes(); w != end; factor += kLayout.factor_bytes()) {
      for (std::size_t b = 0; b < kLayout.factor_blocks; ++b) {
        ask_ahead(w, kLayout.code_bytes());
        add_blocks<Weights>(rows, {First{w, small, factor}}, x, first);
        if constexpr (kParts == 2) {
          // Or the loads of x that both halves need are made once and kept: there is no room.
          asm volatile("" ::: "memory");
          add_blocks<Weights>(rows, {Second{w, small, factor}}, x, second);
          asm volatile("" ::: "memory");
        }
        w += kLayout.code_bytes(), small += kLayout.small_bytes();
        (++x[kRow], ...);
      }
    }
  }
  (store_part(args.y + kRow * args.y_stride, first[0][kRow]), ...);
  if constexpr (kParts == 2) (store_part(args.y + kRow * args.y_stride + kPackRows / 2, second[0][kRow]), ...);
}

template <class Weights, int kGroups, int... kRow>
LLORCH_INLINE void slab_rows(Rows<kRow...> rows, const QuantTileArgs& args, std::size_t part) {
  using Block = SlabBlock<Weights>;
  const std::uint8_t* w = args.w + part * (64 / kParts);
  const std::uint8_t* const end = w + args.blocks * Block::kBytes;
  const QuantizedBlock* x[sizeof...(kRow)] = {args.x + kRow * args.x_stride...};
  PartF y[kGroups][sizeof...(kRow)];
  const auto outputs = [&](auto n, int row) __attribute__((always_inline)) {
    return args.y + static_cast<std::size_t>(row) * args.y_stride + decltype(n)::value * kPackRows +
           part * (kPackRows / kParts);
  };
  for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
    if (args.begin) {
      ((y[decltype(n)::value][kRow] = set1_part(0.0f)), ...);
    } else {
      ((y[decltype(n)::value][kRow] = load_part(outputs(n, kRow))), ...);
    }
  });
  for (; w != end; w += Block::kBytes) {
    if constexpr (kGroups == 1) {
      add_blocks<Weights>(rows, {Block{w}}, x, y);
    } else {
      add_blocks<Weights>(rows, {Block{w}, Block{w + kSlabBlocks * Block::kBytes}}, x, y);
    }
    (++x[kRow], ...);
  }
  for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
    (store_part(outputs(n, kRow), y[decltype(n)::value][kRow]), ...);
  });
}

template <class Weights, int kRows>
__attribute__((noinline)) void packed_tile(const QuantTileArgs& args) {
  packed_rows<Weights>(RowsUpTo<kRows>{}, args);
}
template <class Weights, int kRows, int kGroups>
__attribute__((noinline)) void slab_tile(const QuantTileArgs& args) {
  for (std::size_t part = 0; part < kParts; ++part) slab_rows<Weights, kGroups>(RowsUpTo<kRows>{}, args, part);
}

// Tiles of every number of rows.
template <class Weights>
struct QuantTiles {
  using Tile = void (*)(const QuantTileArgs&);
  template <int... kRow>
  static LLORCH_INLINE void packed(Rows<kRow...>, std::size_t rows, const QuantTileArgs& args) {
    static constexpr Tile kTiles[] = {packed_tile<Weights, kRow + 1>...};
    kTiles[rows - 1](args);
  }
  template <int... kRow>
  static LLORCH_INLINE void slab(Rows<kRow...>, std::size_t rows, std::size_t groups, const QuantTileArgs& args) {
    static constexpr Tile kTiles[] = {slab_tile<Weights, kRow + 1, 1>...,
                                      slab_tile<Weights, kRow + 1, kSlabTileGroups>...};
    kTiles[(groups - 1) * kSlabTileRows + rows - 1](args);
  }
};

template <class Weights>
__attribute__((noinline)) void unpack_slab(const std::uint8_t* group, std::size_t blocks, Range range,
                                           std::uint8_t* slab) {
  constexpr QuantLayout kLayout = Weights::kLayout;
  for (std::size_t b = range.begin; b < range.end; ++b, slab += SlabBlock<Weights>::kBytes) {
    const QuantLayout::Place place = kLayout.place(b, blocks, kLayout.record_blocks());
    const std::uint8_t *w = group + place.codes, *small = group + place.small, *factor = group + place.factors;
    for_groups<0, kParts>([&](auto which) __attribute__((always_inline)) {
      constexpr int kPart = decltype(which)::value;
      SlabBlock<Weights>::unpack(PackedBlock<Weights, kPart>{w, small, factor}, slab + kPart * 64 / kParts);
    });
  }
}

// Outputs of a group: in place, or, where the matrix ends inside it, in `tail`.
struct GroupOutputs {
  float* y;
  std::size_t stride;
  std::size_t lanes;  // that the matrix has
};
LLORCH_INLINE GroupOutputs outputs_of(const MatmulArgs& args, std::size_t row, std::size_t group, float* tail) {
  const std::size_t lanes = least(args.w.rows - group * kPackRows, kPackRows);
  if (lanes == kPackRows) return {args.y + row * args.y_stride + group * kPackRows, args.y_stride, lanes};
  return {tail, kPackRows, lanes};
}
LLORCH_INLINE void keep_tail(const MatmulArgs& args, std::size_t row, std::size_t rows, std::size_t group,
                             const GroupOutputs& out) {
  if (out.lanes == kPackRows) return;
  for (std::size_t r = 0; r < rows; ++r)
    store_n(args.y + (row + r) * args.y_stride + group * kPackRows, load(out.y + r * kPackRows), out.lanes);
}

// Tiles of at most kMost rows that differ by one row at most: a tile of one row costs nearly what one of three does.
// `work(row, count)`.
constexpr std::size_t tiles_of(std::size_t rows, std::size_t most) { return (rows + most - 1) / most; }
template <int kMost, class Work>
LLORCH_INLINE void for_tiles(std::size_t rows, const Work& work) {
  const std::size_t tiles = tiles_of(rows, kMost);
  for (std::size_t i = 0; i < tiles; ++i) {
    const std::size_t row = rows * i / tiles;
    work(row, rows * (i + 1) / tiles - row);
  }
}

template <class Weights>
inline void packed_matmul(const MatmulArgs& args, Range groups) {
  alignas(64) float tail[kPackedRows * kPackRows];
  const auto* w = reinterpret_cast<const std::uint8_t*>(args.w.data);
  for (std::size_t g = groups.begin; g < groups.end; ++g) {
    const GroupOutputs out = outputs_of(args, 0, g, tail);
    for_tiles<kPackedTileRows>(
        args.rows, [&](std::size_t row, std::size_t count) __attribute__((always_inline)) {
          QuantTiles<Weights>::packed(RowsUpTo<kPackedTileRows>{}, count,
                                      {.w = w + g * args.w.group_bytes,
                                       .blocks = args.w.cols / 32,
                                       .x = args.xq.row(row),
                                       .x_stride = args.xq.row_blocks(),
                                       .y = out.y + row * out.stride,
                                       .y_stride = out.stride});
        });
    keep_tail(args, 0, args.rows, g, out);
  }
}

// The lines of the slabs that are unpacked next, asked for a share at a time between the tiles of the ones before. A slab's
// blocks fill whole records, and lie in one piece.
template <class Weights>
class SlabsAhead {
 public:
  // Blocks `range` of `groups` groups, `group` the first of them.
  SlabsAhead(const PackedMatrix& w, const std::uint8_t* group, std::size_t groups, Range range, std::size_t shares)
      : next_(group + kLayout.group_bytes(range.begin)),
        end_(group + kLayout.group_bytes(range.end)),
        group_bytes_(w.group_bytes),
        groups_(groups),
        share_bytes_((static_cast<std::size_t>(end_ - next_) / shares + 63) / 64 * 64) {}
  LLORCH_INLINE void ask() {
    const std::size_t bytes = least(share_bytes_, static_cast<std::size_t>(end_ - next_));
    for (std::size_t i = 0; i < groups_; ++i)
      for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(next_ + i * group_bytes_ + at, 0, 2);
    next_ += bytes;
  }

 private:
  static constexpr QuantLayout kLayout = Weights::kLayout;
  static_assert(kSlabBlocks % kLayout.record_blocks() == 0);
  const std::uint8_t* next_;
  const std::uint8_t* end_;
  std::size_t group_bytes_, groups_, share_bytes_;
};

// Activations that are multiplied next, asked into the second-level cache a share at a time: a panel's come from further away
// for every range of groups.
class RowsAhead {
 public:
  // Blocks `blocks` of rows `rows`.
  RowsAhead(const QuantizedRows& x, Range rows, Range blocks, std::size_t shares)
      : x_(x),
        rows_(rows),
        blocks_(blocks),
        block_(blocks.begin),
        share_(((rows.end - rows.begin) * (blocks.end - blocks.begin) + shares - 1) / shares) {}
  LLORCH_INLINE void ask() {
    for (std::size_t i = 0; i < share_ && rows_.begin < rows_.end; ++i) {
      __builtin_prefetch(x_.row(rows_.begin) + block_, 0, 2);
      if (++block_ == blocks_.end) block_ = blocks_.begin, ++rows_.begin;
    }
  }

 private:
  QuantizedRows x_;
  Range rows_, blocks_;
  std::size_t block_, share_;
};

// Who multiplies rows with slabs: kRows at once, those of for_tiles<kRows>(). Made for the rows of a panel.
template <class Weights>
struct VectorTiles {
  static constexpr int kRows = kSlabTileRows;

  explicit VectorTiles(std::size_t) {}
  LLORCH_INLINE void multiply(std::size_t rows, std::size_t groups, const QuantTileArgs& args) const {
    QuantTiles<Weights>::slab(RowsUpTo<kRows>{}, rows, groups, args);
  }
};

template <class Weights, class Tiles>
LLORCH_INLINE void slab_tiles(const Tiles& tiles, std::size_t rows, std::size_t groups, const QuantTileArgs& args,
                              SlabsAhead<Weights>& ahead, RowsAhead& rows_ahead) {
  for_tiles<Tiles::kRows>(
      rows, [&](std::size_t row, std::size_t count) __attribute__((always_inline)) {
        QuantTileArgs tile = args;
        tile.x += row * tile.x_stride, tile.y += row * tile.y_stride;
        ahead.ask();
        rows_ahead.ask();
        // Outputs of the next rows, which those of other groups may have pushed out since.
        for (std::size_t next = row + count; next < least(row + 2 * count + 1, rows); ++next)
          for (std::size_t n = 0; n < groups; ++n) __builtin_prefetch(args.y + next * args.y_stride + n * kPackRows, 1);
        tiles.multiply(count, groups, tile);
      });
}

// Rows [row, row + rows) times every group, over a chunk of the depth: `chunk` in blocks.
template <class Weights, class Tiles>
inline void slab_chunk(const MatmulArgs& args, Range groups, Range rows, Range chunk, RowsAhead& rows_ahead,
                       float* tail) {
  constexpr std::size_t kSlabBytes = kSlabBlocks * SlabBlock<Weights>::kBytes;
  alignas(64) std::uint8_t slabs[kSlabTileGroups * kSlabBytes];
  const std::size_t blocks = args.w.cols / 32, count = rows.end - rows.begin, whole = args.w.rows / kPackRows;
  const Tiles tiles(count);
  const auto slab_at = [&](std::size_t b) { return Range{b, least(b + kSlabBlocks, chunk.end)}; };
  for (std::size_t g = groups.begin, beside = 0; g < groups.end; g += beside) {
    beside = g + kSlabTileGroups <= least(groups.end, whole) ? kSlabTileGroups : 1;
    const auto* group = reinterpret_cast<const std::uint8_t*>(args.w.data) + g * args.w.group_bytes;
    const GroupOutputs out = outputs_of(args, rows.begin, g, tail);
    for (Range at = slab_at(chunk.begin); at.begin < chunk.end; at = slab_at(at.end)) {
      const bool last = at.end == chunk.end;
      SlabsAhead<Weights> ahead(args.w, last ? group + beside * args.w.group_bytes : group, beside,
                                slab_at(last ? chunk.begin : at.end), tiles_of(count, Tiles::kRows) + 1);
      ahead.ask();
      for (std::size_t i = 0; i < beside; ++i)
        unpack_slab<Weights>(group + i * args.w.group_bytes, blocks, at, slabs + i * kSlabBytes);
      slab_tiles<Weights>(tiles, count, beside,
                          {.w = slabs,
                           .blocks = at.end - at.begin,
                           .x = args.xq.row(rows.begin) + at.begin,
                           .x_stride = args.xq.row_blocks(),
                           .y = out.y,
                           .y_stride = out.stride,
                           .begin = at.begin == 0},
                          ahead, rows_ahead);
    }
    if (chunk.end == blocks) keep_tail(args, rows.begin, count, g, out);
  }
}

template <class Weights, class Tiles>
inline void slab_matmul(const MatmulArgs& args, Range groups) {
  static_assert(kQuantRowPanel % Tiles::kRows == 0);
  alignas(64) float tail[kQuantRowPanel * kPackRows];
  const std::size_t blocks = args.w.cols / 32;
  for (std::size_t row = 0; row < args.rows; row += kQuantRowPanel) {
    const Range rows{row, least(row + kQuantRowPanel, args.rows)};
    const std::size_t slabs = kChunkBytes / sizeof(QuantizedBlock) / (rows.end - rows.begin) / kSlabBlocks;
    const std::size_t chunk = (slabs == 0 ? 1 : slabs) * kSlabBlocks;
    for (std::size_t b = 0; b < blocks; b += chunk) {
      const std::size_t end = least(b + chunk, blocks);
      const std::size_t shares = tiles_of(groups.end - groups.begin, kSlabTileGroups) * tiles_of(end - b, kSlabBlocks) *
                                 tiles_of(rows.end - rows.begin, Tiles::kRows);
      RowsAhead ahead = end < blocks ? RowsAhead(args.xq, rows, {end, least(end + chunk, blocks)}, shares)
                                     : RowsAhead(args.xq, {rows.end, least(rows.end + kQuantRowPanel, args.rows)},
                                                 {0, least(chunk, blocks)}, shares);
      slab_chunk<Weights, Tiles>(args, groups, rows, {b, end}, ahead, tail);
    }
  }
}

template <class Weights>
inline void quant_matmul(const MatmulArgs& args, Range groups) {
  if (args.rows == 0 || groups.begin == groups.end) return;
  if (args.rows <= Weights::kPackedRowsMost) return packed_matmul<Weights>(args, groups);
  slab_matmul<Weights, VectorTiles<Weights>>(args, groups);
}
