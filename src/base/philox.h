#pragma once
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter-based generator.
// A draw is a pure function of (key, counter), so there is no state to keep over eviction, batching or replay.
#include <array>
#include <cstdint>

namespace llorch::base {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// What a draw is for; keeps independent uses of one seed apart.
enum class PhiloxPurpose : std::uint32_t { kSample = 0, kTestWeights = 1, kEntropy = 2 };

struct PhiloxCounter {
  std::uint32_t position = 0;  // token position in the sequence
  std::uint32_t draw = 0;      // draw number at this position
  std::uint32_t choice = 0;    // index of the choice (n > 1)
  PhiloxPurpose purpose = PhiloxPurpose::kSample;
};

constexpr PhiloxBlock philox(std::uint64_t seed, PhiloxCounter c) {
  return philox4x32_10({c.position, c.draw, c.choice, static_cast<std::uint32_t>(c.purpose)},
                       {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

// Uniform in [0, 1): 24 bits, exact in f32.
constexpr float philox_uniform(std::uint64_t seed, PhiloxCounter c) {
  return static_cast<float>(philox(seed, c)[0] >> 8) * 0x1p-24f;
}

}  // namespace llorch::base
