#pragma once
// Shared by the kernel tests: the instruction sets to run, hostile random data with a printed seed, bit comparison.
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/compute/cpu/kernels.h"
#include "engine/compute/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cpu::testing {

// Every set this machine has. A machine without AVX-512 and AVX-VNNI still tests AVX2 against the scalar reference.
inline std::vector<host::Isa> isas() {
  std::vector<host::Isa> sets;
  const host::CpuFeatures features = host::detect_cpu_features();
  for (const host::Isa isa : host::kIsas)
    if (host::has(features, isa)) sets.push_back(isa);
  return sets;
}

// LLORCH_TEST_SEED replays a run.
class Random {
 public:
  explicit Random(std::uint64_t salt) {
    const char* env = std::getenv("LLORCH_TEST_SEED");
    seed_ = env != nullptr ? std::strtoull(env, nullptr, 10) : 20240607u;
    engine_.seed(seed_ * 1000003u + salt);
  }
  std::string note() const { return "LLORCH_TEST_SEED=" + std::to_string(seed_); }

  std::size_t below(std::size_t n) { return engine_() % n; }
  std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f; }
  float normal() { return normal_(engine_); }
  std::uint64_t bits() { return engine_(); }

  // Mostly ordinary values, with zeros of both signs, denormals, tiny and large ones among them.
  float hostile() {
    switch (below(24)) {
      case 0: return 0.0f;
      case 1: return -0.0f;
      case 2: return std::bit_cast<float>(static_cast<std::uint32_t>(below(0x800000)));  // denormal
      case 3: return normal() * 1e12f;
      case 4: return normal() * 1e-25f;
      default: return normal();
    }
  }
  std::vector<float> normals(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = normal();
    return v;
  }
  std::vector<float> hostiles(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = hostile();
    return v;
  }

 private:
  std::uint64_t seed_ = 0;
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// Overwrites the factors of every block: binary16 fields and exponent bytes.
template <class Half, class Exponent>
void set_factors(plan::DType dtype, std::span<std::byte> blocks, const Half& half, const Exponent& exponent) {
  using plan::DType;
  const std::size_t block_bytes = plan::dtype_info(dtype).block_bytes;
  std::size_t at = 0, halves = 1;  // where the binary16 fields begin in a block, and how many there are
  if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K || dtype == DType::kQ5_K) halves = 2;
  if (dtype == DType::kQ2_K) at = offsetof(plan::BlockQ2_K, d), halves = 2;
  if (dtype == DType::kQ3_K) at = offsetof(plan::BlockQ3_K, d);
  if (dtype == DType::kQ6_K) at = offsetof(plan::BlockQ6_K, d);
  if (dtype == DType::kMXFP4) halves = 0;
  for (std::size_t block = 0; block < blocks.size(); block += block_bytes) {
    for (std::size_t i = 0; i < halves; ++i) {
      const std::uint16_t bits = half();
      std::memcpy(blocks.data() + block + at + 2 * i, &bits, sizeof bits);
    }
    if (dtype == DType::kMXFP4) blocks[block] = std::byte{exponent()};
  }
}

// Rows of E4M3 blocks: every number there is, scales of any size and sign; zeros past the row.
inline std::vector<std::byte> random_f8_matrix(Random& random, const MatrixShape& shape) {
  std::vector<std::byte> bytes;
  for (std::uint32_t row = 0; row < shape.rows; ++row)
    for (std::uint32_t at = 0; at < shape.cols; at += 128) {
      plan::BlockF8_E4M3 block{.d = random.normal() * 0.01f, .qs = {}};
      for (std::uint32_t i = 0; i < 128 && at + i < shape.cols; ++i) {
        const auto code = static_cast<std::uint8_t>(random.bits() & 0xFF);
        block.qs[i] = (code & 0x7F) == 0x7F ? std::uint8_t{0} : code;
      }
      const auto view = std::as_bytes(std::span(&block, 1));
      bytes.insert(bytes.end(), view.begin(), view.end());
    }
  return bytes;
}

// Stored bytes of a matrix: every bit pattern the format allows, short of infinities and NaN.
inline std::vector<std::byte> random_matrix(Random& random, const MatrixShape& shape) {
  if (shape.dtype == plan::DType::kF8_E4M3) return random_f8_matrix(random, shape);
  const auto info = plan::dtype_info(shape.dtype);
  const std::size_t blocks = static_cast<std::size_t>(shape.rows) * shape.cols / info.block_elements;
  std::vector<std::byte> bytes(blocks * info.block_bytes);
  const auto half = [&] { return float_to_half(random.normal() * 0.05f); };
  if (plan::is_quantized(shape.dtype)) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(9) == 0 ? 0x80 : random.bits() & 0xFF);
    set_factors(shape.dtype, bytes, half, [&] { return static_cast<std::uint8_t>(120 + random.below(8)); });
    if (shape.dtype == plan::DType::kMXFP4 && !bytes.empty())
      bytes[0] = std::byte{static_cast<std::uint8_t>(random.below(2))};  // a subnormal factor
    return bytes;
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte* p = bytes.data() + b * info.block_bytes;
    const auto put = [&](const auto& value) { std::memcpy(p, &value, sizeof value); };
    if (shape.dtype == plan::DType::kF32) put(random.hostile());
    if (shape.dtype == plan::DType::kF16) put(half());
    if (shape.dtype == plan::DType::kBF16)
      put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(random.hostile()) >> 16));
  }
  return bytes;
}

// A packed copy, 64-byte aligned.
class Packed {
 public:
  Packed(const MatrixShape& shape, std::span<const std::byte> stored) : lines_(packed_bytes(shape) / 64) {
    auto* data = reinterpret_cast<std::byte*>(lines_.data());
    pack_groups(shape, stored.data(), data, 0, packed_bytes(shape) / packed_group_bytes(shape));
    view_ = packed_view(shape, data);
  }
  const PackedMatrix& view() const { return view_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  PackedMatrix view_;
};

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

inline ::testing::AssertionResult same_bits(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size())
    return ::testing::AssertionFailure() << actual.size() << " values, expected " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (bits_of(actual[i]) != bits_of(expected[i]))
      return ::testing::AssertionFailure() << "at " << i << ": " << actual[i] << " (" << std::hex << bits_of(actual[i])
                                           << "), expected " << expected[i] << " (" << bits_of(expected[i]) << ")";
  return ::testing::AssertionSuccess();
}

}  // namespace llorch::engine::compute::cpu::testing
