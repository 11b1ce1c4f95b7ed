#pragma once
// AMX: one instruction multiplies sixteen rows of quantized activations with sixteen rows of weights, as exact integers, from tiles
// of memory. Everything else is AVX-512's. LLORCH_AMX_EMULATION takes plain C++ instead of the instructions, so that a machine without
// AMX can test this code.
#include "engine/compute/cpu/simd/simd_avx512.h"

#undef LLORCH_ISA_NAMESPACE
#if defined(LLORCH_AMX_EMULATION)
#define LLORCH_ISA_NAMESPACE amx_emulation
#else
#define LLORCH_ISA_NAMESPACE amx
#endif

namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE {

using namespace avx512;

inline constexpr int kTiles = 8;
inline constexpr std::size_t kTileRows = 16, kTileRowBytes = 64;

// What LDTILECFG reads: the shape of every tile.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, std::size_t tile_rows, std::size_t tile_row_bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(tile_row_bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

namespace {

#if defined(LLORCH_AMX_EMULATION)

// What the instructions do, by their description; what they refuse ends the program.
class TileUnit {
 public:
  static void configure(const TileShapes& shapes) {
    require(shapes.palette == 1 && shapes.start_row == 0);
    for (const std::uint8_t byte : shapes.reserved) require(byte == 0);
    for (int tile = 0; tile < 16; ++tile) {
      require((shapes.rows[tile] == 0) == (shapes.row_bytes[tile] == 0));
      require(tile < kTiles ? shapes.rows[tile] <= kTileRows && shapes.row_bytes[tile] <= kTileRowBytes
                            : shapes.rows[tile] == 0);
    }
    shapes_ = shapes;
    forget();
  }
  static void release() {
    shapes_ = {};
    forget();
  }
  template <int kTile>
  static void zero() {
    require(shapes_.rows[kTile] != 0);
    for (auto& row : tiles_[kTile])
      for (std::uint8_t& byte : row) byte = 0;
  }
  // Rows lie `stride` bytes apart.
  template <int kTile>
  static void load(const void* from, std::size_t stride) {
    zero<kTile>();
    for (std::size_t row = 0; row < shapes_.rows[kTile]; ++row)
      __builtin_memcpy(tiles_[kTile][row], static_cast<const std::uint8_t*>(from) + row * stride,
                       shapes_.row_bytes[kTile]);
  }
  template <int kTile>
  static void store(void* to, std::size_t stride) {
    require(shapes_.rows[kTile] != 0);
    for (std::size_t row = 0; row < shapes_.rows[kTile]; ++row)
      __builtin_memcpy(static_cast<std::uint8_t*>(to) + row * stride, tiles_[kTile][row], shapes_.row_bytes[kTile]);
  }
  // sums[m][n] += signed bytes of a[m] times unsigned bytes of b, whose row k has bytes 4k to 4k + 3 of every n.
  template <int kSums, int kA, int kB>
  static void multiply() {
    static_assert(kSums != kA && kSums != kB && kA != kB);
    require(shapes_.rows[kSums] != 0 && shapes_.rows[kSums] == shapes_.rows[kA] &&
            shapes_.row_bytes[kSums] == shapes_.row_bytes[kB] && shapes_.row_bytes[kA] == 4 * shapes_.rows[kB]);
    for (std::size_t m = 0; m < shapes_.rows[kSums]; ++m)
      for (std::size_t n = 0; n < shapes_.row_bytes[kSums] / 4; ++n) {
        std::int32_t sum;
        __builtin_memcpy(&sum, tiles_[kSums][m] + 4 * n, sizeof sum);
        for (std::size_t k = 0; k < shapes_.row_bytes[kA]; ++k)
          sum += static_cast<std::int8_t>(tiles_[kA][m][k]) * tiles_[kB][k / 4][4 * n + k % 4];
        __builtin_memcpy(tiles_[kSums][m] + 4 * n, &sum, sizeof sum);
      }
  }

 private:
  static void require(bool holds) {
    if (!holds) __builtin_trap();
  }
  // Nobody may count on what tiles hold after these.
  static void forget() {
    for (auto& tile : tiles_)
      for (auto& row : tile)
        for (std::uint8_t& byte : row) byte = 0xA5;
  }

  static inline thread_local TileShapes shapes_;
  static inline thread_local std::uint8_t tiles_[kTiles][kTileRows][kTileRowBytes];
};

#else

class TileUnit {
 public:
  static LLORCH_INLINE void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  static LLORCH_INLINE void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static LLORCH_INLINE void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Rows lie `stride` bytes apart.
  template <int kTile>
  static LLORCH_INLINE void load(const void* from, std::size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static LLORCH_INLINE void store(void* to, std::size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  // sums[m][n] += signed bytes of a[m] times unsigned bytes of b, whose row k has bytes 4k to 4k + 3 of every n.
  template <int kSums, int kA, int kB>
  static LLORCH_INLINE void multiply() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace

// Rows of a panel fill whole tiles; a slab and the sums of its tiles share the first-level cache.
inline constexpr std::size_t kQuantRowPanel = 128, kSlabBlocks = 16, kChunkBytes = 512 << 10;

}  // namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE
