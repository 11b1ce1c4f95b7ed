#include "engine/models/synth/random_tensor.h"

#include <algorithm>
#include <string>

#include "base/philox.h"

namespace llorch::engine::models {
namespace {

// FNV-1a: places tensors in streams of their own.
std::uint32_t stream_of(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 16777619U;
  return hash;
}

// The sum of a word's four bytes has mean 510 and variance 4 (256^2 - 1) / 12.
constexpr float kByteSumMean = 510;
constexpr float kByteSumDeviation = 147.80054F;

float byte_sum(std::uint32_t word) {
  return static_cast<float>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
}

float value_of(std::uint32_t word, const Distribution& d) {
  if (d.even) return d.mean + d.spread * (static_cast<float>(word >> 8) * 0x1p-23F - 1);
  return d.mean + d.spread / kByteSumDeviation * (byte_sum(word) - kByteSumMean);
}

}  // namespace

SlabReader random_tensor(std::uint64_t seed, std::string_view name, std::uint64_t elements,
                         const Distribution& distribution) {
  static_assert(kSlabElements % 4 == 0);
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  return [=, stream = stream_of(name)](const SlabSink& sink) -> base::Result<> {
    std::vector<float> values;
    for (std::uint64_t first = 0; first < elements; first += kSlabElements) {
      values.resize((std::min(kSlabElements, elements - first) + 3) / 4 * 4);
      for (std::uint64_t i = 0; i < values.size(); i += 4) {
        const std::uint64_t block = (first + i) / 4;
        const base::PhiloxBlock words =
            base::philox4x32_10({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), stream,
                                 static_cast<std::uint32_t>(base::PhiloxPurpose::kTestWeights)},
                                key);
        for (std::uint64_t w = 0; w < 4; ++w) values[i + w] = value_of(words[w], distribution);
      }
      values.resize(std::min(kSlabElements, elements - first));
      TRY(sink({plan::DType::kF32, std::as_bytes(std::span(values))}));
    }
    return {};
  };
}

}  // namespace llorch::engine::models
