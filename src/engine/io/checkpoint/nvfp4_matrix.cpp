#include "engine/io/checkpoint/nvfp4_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "engine/io/quant/fp8.h"
#include "engine/io/quant/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint64_t kGroup = 16;

class Bf16 final : public DerivedBytes {
 public:
  Bf16(Nvfp4Matrix matrix, std::string name) : matrix_(std::move(matrix)), name_(std::move(name)) {}

  // By groups, of which the first and the last may be wanted in part.
  Result<> read(std::uint64_t begin, std::span<std::byte> out) const override {
    constexpr std::uint64_t kBytes = sizeof(std::uint16_t);
    ASSERT(begin % kBytes == 0 && out.size() % kBytes == 0, "{}: bytes {} + {} cut an element", name_, begin,
           out.size());
    const std::uint64_t first = begin / kBytes, end = first + out.size() / kBytes;
    const std::uint64_t group = first / kGroup, groups = (end + kGroup - 1) / kGroup - group;
    std::vector<std::byte> codes(groups * kGroup / 2), scales(groups);
    TRY(matrix_.codes.data.read(group * kGroup / 2, codes));
    TRY(matrix_.scales.data.read(group, scales));
    const double global = TRY(global_scale());
    std::byte* to = out.data();
    for (std::uint64_t g = 0; g < groups; ++g) {
      const auto scale = static_cast<double>(f8_e4m3_to_f32(static_cast<std::uint8_t>(scales[g])));
      if (std::isnan(scale)) return unsupported("has a scale that is no number");
      const std::uint64_t begins = (group + g) * kGroup;
      for (std::uint64_t at = std::max(first, begins); at < std::min(end, begins + kGroup); ++at) {
        const std::uint64_t i = at - group * kGroup;
        const unsigned code = static_cast<unsigned>(codes[i / 2]) >> i % 2 * 4 & 15U;
        // At most 6 significant bits before the scale of the matrix, so that the product is exact.
        const double product = 0.5 * plan::kMxfp4Doubled[code] * scale;
        const std::uint16_t half = f64_to_bf16(matrix_.divides ? product / global : product * global);
        std::memcpy(to, &half, sizeof half);
        to += sizeof half;
      }
    }
    return {};
  }

 private:
  Result<double> global_scale() const {
    float value;
    TRY(matrix_.global_scale.data.read(0, std::as_writable_bytes(std::span(&value, 1))));
    if (std::isfinite(value) && value != 0) return static_cast<double>(value);
    return unsupported(fmt::format("has the scale {}", value));
  }
  tl::unexpected<base::Error> unsupported(const std::string& what) const {
    return fail(ErrorCode::kWeightValueUnsupported, fmt::format("{} {}", name_, what));
  }

  Nvfp4Matrix matrix_;
  std::string name_;
};

}  // namespace

std::unique_ptr<DerivedBytes> as_bf16(Nvfp4Matrix matrix, std::string name) {
  return std::make_unique<Bf16>(std::move(matrix), std::move(name));
}

Result<> check_nvfp4_matrix(const Nvfp4Matrix& m) {
  if (m.codes.type != StoredType::kU8 || m.scales.type != StoredType::kF8_E4M3 ||
      m.global_scale.type != StoredType::kF32) {
    return fail(
        ErrorCode::kWeightDTypeUnsupported,
        fmt::format("{} is {}, {} is {} and {} is {}; wanted U8, F8_E4M3 and F32", m.codes.name, describe(m.codes),
                    m.scales.name, describe(m.scales), m.global_scale.name, describe(m.global_scale)));
  }
  const bool fits = m.codes.rank == 2 && m.scales.rank == 2 && m.codes.dims[0] == m.scales.dims[0] &&
                    m.codes.dims[1] * 2 == m.scales.dims[1] * kGroup && m.codes.elements_count() != 0;
  if (fits && m.global_scale.elements_count() == 1) return {};
  return fail(ErrorCode::kWeightShapeMismatch,
              fmt::format("{} is {}, {} is {} and {} is {}; 16 elements of a row share a scale, and the matrix has one",
                          m.codes.name, describe(m.codes), m.scales.name, describe(m.scales), m.global_scale.name,
                          describe(m.global_scale)));
}

}  // namespace llorch::engine::io
