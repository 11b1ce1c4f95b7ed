#pragma once
// Stored blocks of the quantized element types, byte for byte as GGUF files hold them (little-endian, no padding between
// blocks). A row of K elements is K / block_elements consecutive blocks. `d`, `m` and `dmin` are IEEE binary16 bit
// patterns; e is an element's index in its block; nib(b, 0) = b & 15, nib(b, 1) = b >> 4.
//
// Blocks of 32, with q = nib(qs[e % 16], e / 16) and bit5 = bit e of the little-endian u32 in qh:
//   Q8_0    d * qs[e]
//   Q4_0    d * (q - 8)                     Q4_1  d * q + m
//   Q5_0    d * ((q | bit5 << 4) - 16)      Q5_1  d * (q | bit5 << 4) + m
//   IQ4_NL  d * kIq4Values[q]               MXFP4 kMxfp4Doubled[q] * 2^(e - 128), e the block's exponent byte
// Blocks of 256, with n = e / 128, t = e % 128 / 32, l = e % 32, g = e / 32:
//   Q2_K    c = scales[8n + 2t + l / 16]: d * (c & 15) * (qs[32n + l] >> 2t & 3) - dmin * (c >> 4)
//   Q3_K    d * q3_k_scale(8n + 2t + l / 16) * ((qs[32n + l] >> 2t & 3) - (bit 4n + t of hmask[l] ? 0 : 4))
//   Q4_K    d * k4_scale(g) * nib(qs[32(g / 2) + l], g % 2) - dmin * k4_min(g)
//   Q5_K    the same, with 16 added to the nibble where bit g of qh[l] is set
//   Q6_K    d * scales[8n + 2t + l / 16] * ((nib(ql[64n + l + 32(t % 2)], t / 2) | (qh[32n + l] >> 2t & 3) << 4) - 32)
//   IQ4_XS  d * iq4_xs_scale(g) * kIq4Values[nib(qs[16g + e % 16], e % 32 / 16)]
// Blocks of 128, d an f32: F8_E4M3 d * qs[e], a float of sign, 4 bits of exponent (bias 7) and 3 of mantissa; +-0x7f is NaN.
#include <array>
#include <bit>
#include <cstdint>

namespace llorch::engine::plan {

inline constexpr std::uint32_t kQuantBlockElements = 32;
inline constexpr std::uint32_t kSuperBlockElements = 256;

// The 16 levels of IQ4_NL and IQ4_XS.
inline constexpr std::array<std::int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
// e2m1 values times two, so that they are integers; the block's exponent is one lower to match.
inline constexpr std::array<std::int8_t, 16> kMxfp4Doubled{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct BlockQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);

struct BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);

struct BlockQ4_1 {
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20 && alignof(BlockQ4_1) == 2);

struct BlockQ5_0 {
  std::uint16_t d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22 && alignof(BlockQ5_0) == 2);

struct BlockQ5_1 {
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24 && alignof(BlockQ5_1) == 2);

struct BlockQ2_K {
  std::uint8_t scales[16];  // of 16 elements each: scale in the low nibble, min in the high one
  std::uint8_t qs[64];
  std::uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84 && alignof(BlockQ2_K) == 2);

struct BlockQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];  // 16 scales of 6 bits, see q3_k_scale
  std::uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110 && alignof(BlockQ3_K) == 2);

struct BlockQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];  // 8 scales and 8 mins of 6 bits, see k4_scale and k4_min
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144 && alignof(BlockQ4_K) == 2);

struct BlockQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176 && alignof(BlockQ5_K) == 2);

struct BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210 && alignof(BlockQ6_K) == 2);

struct BlockIQ4_NL {
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18 && alignof(BlockIQ4_NL) == 2);

struct BlockIQ4_XS {
  std::uint16_t d;
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136 && alignof(BlockIQ4_XS) == 2);

struct BlockMXFP4 {
  std::uint8_t e;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17 && alignof(BlockMXFP4) == 1);

// No file holds these: they are made of rows of FP8 and the scales beside them (engine/models/weights).
struct BlockF8_E4M3 {
  float d;
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockF8_E4M3) == 132 && alignof(BlockF8_E4M3) == 4);

// 2^(e - 128), what an MXFP4 block multiplies kMxfp4Doubled by; subnormal for e = 0 and 1.
constexpr float mxfp4_scale(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23);
}

// Scale and min of group g (0..7, 32 elements each) of Q4_K and Q5_K: 0..63.
constexpr int k4_scale(const std::uint8_t (&scales)[12], unsigned g) {
  return g < 4 ? scales[g] & 63 : (scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4;
}
constexpr int k4_min(const std::uint8_t (&scales)[12], unsigned g) {
  return g < 4 ? scales[g + 4] & 63 : scales[g + 4] >> 4 | (scales[g] >> 6) << 4;
}

// Scale of group i (0..15, 16 elements each) of Q3_K: -32..31.
constexpr int q3_k_scale(const std::uint8_t (&scales)[12], unsigned i) {
  const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
  const int high = scales[8 + i % 4] >> 2 * (i / 4) & 3;
  return (low | high << 4) - 32;
}

// Scale of group g (0..7, 32 elements each) of IQ4_XS: -32..31.
constexpr int iq4_xs_scale(const BlockIQ4_XS& block, unsigned g) {
  return ((block.scales_l[g / 2] >> 4 * (g % 2) & 15) | (block.scales_h >> 2 * g & 3) << 4) - 32;
}

}  // namespace llorch::engine::plan
