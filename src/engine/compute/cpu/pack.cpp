#include "engine/compute/cpu/pack.h"

#include <cstring>

#include "base/assert.h"
#include "engine/compute/cpu/quant_layout.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cpu {
namespace {

using plan::DType;
using plan::is_quantized;
using plan::kQuantBlockElements;

// `source` may have any alignment.
template <class T>
T read(const std::byte* source, std::size_t index) {
  T value;
  std::memcpy(&value, source + index * sizeof(T), sizeof(T));
  return value;
}

// `lanes` rows of this group exist; the others are already zero.
template <class Element>
void pack_float_group(const std::byte* source, std::size_t cols, std::size_t lanes, std::byte* packed) {
  auto* out = reinterpret_cast<Element*>(packed);
  for (std::size_t k = 0; k < cols; ++k)
    for (std::size_t lane = 0; lane < lanes; ++lane) out[k * kPackRows + lane] = read<Element>(source, lane * cols + k);
}

// One stored block of 32 or 256 elements, taken apart.
struct Parts {
  std::uint8_t codes[256];
  std::uint8_t small[16];  // in the order of the packed record: per block of 32, its 0, 1 or 2 bytes
  std::uint8_t exponent = 0;
  std::uint16_t factors[2];  // d, then m or dmin
};

void take_nibbles(const std::uint8_t* qs, std::uint8_t* codes) {
  for (int e = 0; e < 16; ++e) codes[e] = qs[e] & 15, codes[e + 16] = qs[e] >> 4;
}
void take_bits(const std::uint8_t (&qh)[4], std::uint8_t* codes) {
  for (int e = 0; e < 32; ++e) codes[e] |= static_cast<std::uint8_t>((qh[e / 8] >> e % 8 & 1) << 4);
}

void take(const plan::BlockQ8_0& b, Parts& p) {
  for (int e = 0; e < 32; ++e) p.codes[e] = static_cast<std::uint8_t>(b.qs[e] + 128);
  p.factors[0] = b.d;
}
template <class Block>
requires requires(Block b) {
  b.qs, b.d;
} &&(sizeof(Block::qs) == 16) && (!requires(Block b) { b.qh; }) void take(const Block& b, Parts& p) {
  take_nibbles(b.qs, p.codes);
  p.factors[0] = b.d;
  if constexpr (requires { b.m; }) p.factors[1] = b.m;
}
template <class Block>
requires requires(Block b) { b.qs, b.d, b.qh; } &&(sizeof(Block::qs) == 16) void take(const Block& b, Parts& p) {
  take_nibbles(b.qs, p.codes);
  take_bits(b.qh, p.codes);
  p.factors[0] = b.d;
  if constexpr (requires { b.m; }) p.factors[1] = b.m;
}
void take(const plan::BlockMXFP4& b, Parts& p) {
  take_nibbles(b.qs, p.codes);
  p.exponent = b.e;
}
void take(const plan::BlockQ2_K& b, Parts& p) {
  for (int e = 0; e < 256; ++e) p.codes[e] = b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
  std::memcpy(p.small, b.scales, sizeof b.scales);
  p.factors[0] = b.d, p.factors[1] = b.dmin;
}
void take(const plan::BlockQ3_K& b, Parts& p) {
  for (int e = 0; e < 256; ++e) {
    const int low = b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3, high = b.hmask[e % 32] >> e / 32 & 1;
    p.codes[e] = static_cast<std::uint8_t>(low | high << 2);
  }
  for (unsigned i = 0; i < 16; ++i) p.small[i] = static_cast<std::uint8_t>(plan::q3_k_scale(b.scales, i));
  p.factors[0] = b.d;
}
template <class Block>
void take_k4_scales(const Block& b, Parts& p) {
  for (unsigned g = 0; g < 8; ++g) {
    p.small[2 * g] = static_cast<std::uint8_t>(plan::k4_scale(b.scales, g));
    p.small[2 * g + 1] = static_cast<std::uint8_t>(plan::k4_min(b.scales, g));
  }
  p.factors[0] = b.d, p.factors[1] = b.dmin;
}
void take(const plan::BlockQ4_K& b, Parts& p) {
  for (int e = 0; e < 256; ++e) p.codes[e] = b.qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15;
  take_k4_scales(b, p);
}
void take(const plan::BlockQ5_K& b, Parts& p) {
  for (int e = 0; e < 256; ++e) {
    const int low = b.qs[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15, high = b.qh[e % 32] >> e / 32 & 1;
    p.codes[e] = static_cast<std::uint8_t>(low | high << 4);
  }
  take_k4_scales(b, p);
}
void take(const plan::BlockQ6_K& b, Parts& p) {
  for (int e = 0; e < 256; ++e) {
    const int n = e / 128, t = e % 128 / 32, l = e % 32;
    const int low = b.ql[64 * n + l + 32 * (t % 2)] >> (t / 2 * 4) & 15, high = b.qh[32 * n + l] >> 2 * t & 3;
    p.codes[e] = static_cast<std::uint8_t>(low | high << 4);
  }
  std::memcpy(p.small, b.scales, sizeof b.scales);
  p.factors[0] = b.d;
}
void take(const plan::BlockIQ4_XS& b, Parts& p) {
  for (int g = 0; g < 8; ++g) take_nibbles(b.qs + 16 * g, p.codes + 32 * g);
  for (unsigned g = 0; g < 8; ++g) p.small[g] = static_cast<std::uint8_t>(plan::iq4_xs_scale(b, g));
  p.factors[0] = b.d;
}

// Puts the codes of one row's block into the planes; `out` is the block's first plane, of all rows.
void put_codes(const QuantLayout& layout, const std::uint8_t* codes, std::size_t lane, std::uint8_t* out) {
  int shift = 0;
  const auto cell = [&](std::size_t word) { return out + (word * kPackRows + lane) * 4; };
  if (layout.byte_plane) {
    for (std::size_t g = 0; g < 8; ++g) std::memcpy(cell(g), codes + 4 * g, 4);
    return;
  }
  if (layout.nibble_plane) {
    for (std::size_t g = 0; g < 4; ++g)
      for (std::size_t i = 0; i < 4; ++i)
        cell(g)[i] = static_cast<std::uint8_t>((codes[4 * g + i] & 15) | codes[16 + 4 * g + i] << 4);
    out += 256, shift = 4;
  }
  if (layout.pair_plane) {
    for (std::size_t e = 0; e < 32; ++e)
      cell(e / 16)[e % 4] |= static_cast<std::uint8_t>((codes[e] >> shift & 3) << 2 * (e / 4 % 4));
    out += 128, shift += 2;
  }
  if (layout.bit_plane)
    for (std::size_t e = 0; e < 32; ++e) cell(0)[e % 4] |= static_cast<std::uint8_t>((codes[e] >> shift & 1) << e / 4);
}

// Packs what exists of sixteen rows into zeroed memory.
template <class Block, DType kDType>
void pack_quant_group(const std::byte* source, std::size_t cols, std::size_t lanes, Records records,
                      std::byte* packed) {
  constexpr QuantLayout kLayout = quant_layout(kDType);
  constexpr std::size_t kElements = plan::dtype_info(kDType).block_elements, kInner = kElements / 32;
  constexpr std::size_t kSmall = kLayout.small_bytes() / kPackRows;
  const std::size_t stored_blocks = cols / kElements, blocks = cols / 32;
  const std::size_t record = records == Records::kLines ? kLayout.record_blocks() : blocks;
  auto* out = reinterpret_cast<std::uint8_t*>(packed);
  Parts parts{};
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t s = 0; s < stored_blocks; ++s) {
      take(read<Block>(source, lane * stored_blocks + s), parts);
      for (std::size_t b = 0; b < kInner; ++b) {
        const QuantLayout::Place place = kLayout.place(s * kInner + b, blocks, record);
        put_codes(kLayout, parts.codes + 32 * b, lane, out + place.codes);
        for (std::size_t i = 0; i < kSmall; ++i) out[place.small + i * kPackRows + lane] = parts.small[b * kSmall + i];
      }
      // A stored block has one set of factors.
      std::uint8_t* unit = out + kLayout.place(s * kInner, blocks, record).factors;
      if constexpr (kLayout.exponent_factor) {
        unit[lane] = parts.exponent;
      } else {
        for (std::size_t i = 0; i < (kLayout.has_min ? 2 : 1); ++i)
          std::memcpy(unit + (i * kPackRows + lane) * 2, &parts.factors[i], 2);
      }
    }
  }
}

}  // namespace

bool packable(const MatrixShape& shape) {
  if (shape.rows == 0 || shape.cols == 0 || shape.dtype == DType::kI32 || shape.dtype == DType::kF8_E4M3) return false;
  return shape.cols % plan::dtype_info(shape.dtype).block_elements == 0;
}

std::size_t packed_group_bytes(const MatrixShape& shape) {
  const std::size_t bytes = is_quantized(shape.dtype)
                                ? quant_layout(shape.dtype).group_bytes(shape.cols / kQuantBlockElements)
                                : std::size_t{shape.cols} * plan::dtype_info(shape.dtype).block_bytes * kPackRows;
  return (bytes + 63) / 64 * 64;
}

std::size_t packed_bytes(const MatrixShape& shape) {
  return packed_group_bytes(shape) * ((shape.rows + kPackRows - 1) / kPackRows);
}

void pack_groups(const MatrixShape& shape, const std::byte* source, std::byte* packed, std::size_t group_begin,
                 std::size_t group_end, Records records) {
  ASSERT(packable(shape), "{} x {} of type {}", shape.rows, shape.cols, static_cast<int>(shape.dtype));
  const auto info = plan::dtype_info(shape.dtype);
  const std::size_t row_bytes = std::size_t{shape.cols} / info.block_elements * info.block_bytes;
  const std::size_t group_bytes = packed_group_bytes(shape);
  for (std::size_t g = group_begin; g < group_end; ++g) {
    const std::byte* rows = source + g * kPackRows * row_bytes;
    std::byte* out = packed + g * group_bytes;
    const std::size_t left = shape.rows - g * kPackRows;
    const std::size_t lanes = left < kPackRows ? left : kPackRows;
    if (lanes < kPackRows || is_quantized(shape.dtype)) std::memset(out, 0, group_bytes);
    const auto pack = [&]<class Block, DType kDType>() {
      pack_quant_group<Block, kDType>(rows, shape.cols, lanes, records, out);
    };
    switch (shape.dtype) {
      case DType::kF32: pack_float_group<std::uint32_t>(rows, shape.cols, lanes, out); break;
      case DType::kF16:
      case DType::kBF16: pack_float_group<std::uint16_t>(rows, shape.cols, lanes, out); break;
      case DType::kQ8_0: pack.operator()<plan::BlockQ8_0, DType::kQ8_0>(); break;
      case DType::kQ4_0: pack.operator()<plan::BlockQ4_0, DType::kQ4_0>(); break;
      case DType::kQ4_1: pack.operator()<plan::BlockQ4_1, DType::kQ4_1>(); break;
      case DType::kQ5_0: pack.operator()<plan::BlockQ5_0, DType::kQ5_0>(); break;
      case DType::kQ5_1: pack.operator()<plan::BlockQ5_1, DType::kQ5_1>(); break;
      case DType::kQ2_K: pack.operator()<plan::BlockQ2_K, DType::kQ2_K>(); break;
      case DType::kQ3_K: pack.operator()<plan::BlockQ3_K, DType::kQ3_K>(); break;
      case DType::kQ4_K: pack.operator()<plan::BlockQ4_K, DType::kQ4_K>(); break;
      case DType::kQ5_K: pack.operator()<plan::BlockQ5_K, DType::kQ5_K>(); break;
      case DType::kQ6_K: pack.operator()<plan::BlockQ6_K, DType::kQ6_K>(); break;
      case DType::kIQ4_NL: pack.operator()<plan::BlockIQ4_NL, DType::kIQ4_NL>(); break;
      case DType::kIQ4_XS: pack.operator()<plan::BlockIQ4_XS, DType::kIQ4_XS>(); break;
      case DType::kMXFP4: pack.operator()<plan::BlockMXFP4, DType::kMXFP4>(); break;
      case DType::kF8_E4M3:
      case DType::kI32: break;  // packable() said no
    }
  }
}

PackedMatrix packed_view(const MatrixShape& shape, const std::byte* packed) {
  return {.dtype = shape.dtype,
          .rows = shape.rows,
          .cols = shape.cols,
          .group_bytes = packed_group_bytes(shape),
          .data = packed};
}

}  // namespace llorch::engine::compute::cpu
