// Products of slabs by a unit of tiles. Included inside the namespace of an instruction set that has one, after quant_matmul_impl.h.
//
// Quantized rows and slabs are tiles as they lie: a tile of activations has a row's bytes of one scale in each of its rows, a tile
// of weights four bytes of each of sixteen weight rows. The unit leaves integer sums in memory, and vectors combine them as they
// combine sums of their own.

// A block of a slab whose integer sums, without what they begin with, are in memory.
template <class Weights>
struct SummedBlock : SlabBlock<Weights> {
  const std::int32_t* sums;  // [scales, kTileRows, kPackRows], from the first row of activations on
};

template <class Weights, int kScale, int kGroups, int... kRow>
LLORCH_INLINE void block_sums(Rows<kRow...>, const SummedBlock<Weights> (&blocks)[kGroups],
                              const QuantizedBlock* const (&x)[sizeof...(kRow)],
                              F32x16 (&based)[kGroups][sizeof...(kRow)]) {
  const auto sum = [&](int row) __attribute__((always_inline)) {
    const I32x16 begin = set1_i(Weights::template begin<kScale>(*x[row]));
    for_groups<0, kGroups>([&](auto number) __attribute__((always_inline)) {
      constexpr int n = decltype(number)::value;
      const std::int32_t* of_row = blocks[n].sums + (kScale * kTileRows + static_cast<std::size_t>(row)) * kPackRows;
      based[n][row] = float_of(add(begin, bits_of(load(reinterpret_cast<const float*>(of_row)))));
    });
  };
  (sum(kRow), ...);
}

template <class Weights>
class MatrixTiles {
 public:
  static constexpr int kRows = kTileRows;

  // For `rows` rows, cut by for_tiles<kRows>(): their tiles have two numbers of rows at most.
  explicit MatrixTiles(std::size_t rows) : most_((rows + tiles_of(rows, kRows) - 1) / tiles_of(rows, kRows)) {
    TileShapes shapes;
    for (int i = 0; i < 2; ++i) {
      const std::size_t tile_rows = most_ - static_cast<std::size_t>(i);
      if (tile_rows == 0) continue;
      shapes.set(x_tile(i), tile_rows, kScaleBytes);
      for (int n = 0; n < 2; ++n) shapes.set(sums_tile(i, n), tile_rows, kTileRowBytes);
    }
    for (int n = 0; n < 2; ++n) shapes.set(weights_tile(n), kScaleBytes / 4, kTileRowBytes);
    TileUnit::configure(shapes);
  }
  ~MatrixTiles() { TileUnit::release(); }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

  // `groups` is 1 or 2.
  void multiply(std::size_t rows, std::size_t groups, const QuantTileArgs& args) const {
    if (rows == most_) {
      groups == 1 ? multiply_tile<0, 1>(rows, args) : multiply_tile<0, 2>(rows, args);
    } else {
      groups == 1 ? multiply_tile<1, 1>(rows, args) : multiply_tile<1, 2>(rows, args);
    }
  }

 private:
  using Block = SummedBlock<Weights>;
  static constexpr std::size_t kScaleBytes = 32 / Weights::kScales;  // of a block of activations
  static constexpr std::size_t kSumsOfTile = kTileRows * kPackRows;  // of a group and a scale
  static constexpr std::size_t kSumsOfGroup = Weights::kScales * kSumsOfTile;
  static constexpr std::size_t kBlocksAtOnce = 8;
  static constexpr int kRowsAtOnce = 4;  // two groups of them, their scales and mins stay in registers

  static constexpr int x_tile(int size) { return size; }
  static constexpr int sums_tile(int size, int group) { return 2 + 2 * size + group; }
  static constexpr int weights_tile(int group) { return 6 + group; }

  template <int kSize, int kGroups>
  static __attribute__((noinline)) void multiply_tile(std::size_t rows, QuantTileArgs args) {
    alignas(64) std::int32_t sums[kBlocksAtOnce * kGroups * kSumsOfGroup];
    for (std::size_t blocks = args.blocks; blocks != 0; blocks -= args.blocks) {
      args.blocks = least(blocks, kBlocksAtOnce);
      for (std::size_t b = 0; b < args.blocks; ++b)
        sum_block<kSize, kGroups>(args, b, sums + b * kGroups * kSumsOfGroup);
      for (std::size_t row = 0; row < rows; row += kRowsAtOnce)
        combine_some<kRowsAtOnce, kGroups>(least(rows - row, kRowsAtOnce), args, row, sums);
      args.w += args.blocks * Block::kBytes, args.x += args.blocks;
      args.begin = false;
    }
  }

  // sums [groups, scales, kTileRows, kPackRows] of block b.
  template <int kSize, int kGroups>
  static LLORCH_INLINE void sum_block(const QuantTileArgs& args, std::size_t b, std::int32_t* sums) {
    for_groups<0, Weights::kScales>([&](auto which) __attribute__((always_inline)) {
      constexpr std::size_t kScale = decltype(which)::value;
      TileUnit::load<x_tile(kSize)>(args.x[b].q + kScale * kScaleBytes, args.x_stride * sizeof(QuantizedBlock));
      for_groups<0, kGroups>([&](auto number) __attribute__((always_inline)) {
        constexpr int n = decltype(number)::value;
        const std::uint8_t* lines =
            args.w + (n * kSlabBlocks + b) * Block::kBytes + kScale * kScaleBytes / 4 * kTileRowBytes;
        TileUnit::load<weights_tile(n)>(lines, kTileRowBytes);
        TileUnit::zero<sums_tile(kSize, n)>();
        TileUnit::multiply<sums_tile(kSize, n), x_tile(kSize), weights_tile(n)>();
        TileUnit::store<sums_tile(kSize, n)>(sums + n * kSumsOfGroup + kScale * kSumsOfTile, kTileRowBytes);
      });
    });
  }

  template <int kCount, int kGroups>
  static LLORCH_INLINE void combine_some(std::size_t count, const QuantTileArgs& args, std::size_t row,
                                         const std::int32_t* sums) {
    if constexpr (kCount > 1)
      if (count < kCount) return combine_some<kCount - 1, kGroups>(count, args, row, sums);
    combine<kGroups>(RowsUpTo<kCount>{}, args, row, sums);
  }
  template <int kGroups, int... kRow>
  static __attribute__((noinline)) void combine(Rows<kRow...> rows, const QuantTileArgs& args, std::size_t row,
                                                const std::int32_t* sums) {
    const QuantizedBlock* x[sizeof...(kRow)] = {args.x + (row + kRow) * args.x_stride...};
    F32x16 y[kGroups][sizeof...(kRow)];
    const auto output = [&](auto n, int of_row) __attribute__((always_inline)) {
      return args.y + (row + static_cast<std::size_t>(of_row)) * args.y_stride + decltype(n)::value * kPackRows;
    };
    for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
      ((y[decltype(n)::value][kRow] = args.begin ? set1(0.0f) : load(output(n, kRow))), ...);
    });
    const std::uint8_t* w = args.w;
    sums += row * kPackRows;
    for (std::size_t b = 0; b < args.blocks; ++b, w += Block::kBytes, sums += kGroups * kSumsOfGroup) {
      if constexpr (kGroups == 1) {
        add_blocks<Weights>(rows, {Block{{w}, sums}}, x, y);
      } else {
        add_blocks<Weights>(rows, {Block{{w}, sums}, Block{{w + kSlabBlocks * Block::kBytes}, sums + kSumsOfGroup}}, x,
                            y);
      }
      (++x[kRow], ...);
    }
    for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
      (store(output(n, kRow), y[decltype(n)::value][kRow]), ...);
    });
  }

  std::size_t most_;  // rows of a tile
};
