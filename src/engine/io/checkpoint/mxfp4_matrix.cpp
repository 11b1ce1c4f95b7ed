#include "engine/io/checkpoint/mxfp4_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "engine/io/quant/mxfp4.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint64_t kCodeBytes = sizeof(plan::BlockMXFP4::qs);  // of a block, in both layouts
constexpr std::byte kNoNumber{0xFF};

class Blocks final : public DerivedBytes {
 public:
  Blocks(Mxfp4Matrix matrix, std::string name) : matrix_(std::move(matrix)), name_(std::move(name)) {}

  Result<> read(std::uint64_t begin, std::span<std::byte> out) const override {
    constexpr std::uint64_t kBytes = sizeof(plan::BlockMXFP4);
    ASSERT(begin % kBytes == 0 && out.size() % kBytes == 0, "{}: bytes {} + {} cut a block", name_, begin, out.size());
    const std::uint64_t first = begin / kBytes, blocks = out.size() / kBytes;
    std::vector<std::byte> codes(blocks * kCodeBytes), scales(blocks);
    TRY(matrix_.codes.data.read(first * kCodeBytes, codes));
    TRY(matrix_.scales.data.read(first, scales));
    if (std::ranges::find(scales, kNoNumber) != scales.end())
      return fail(ErrorCode::kWeightValueUnsupported, fmt::format("{} has a scale that is no number", name_));
    repack_hf_mxfp4(codes, scales, out);
    return {};
  }

 private:
  Mxfp4Matrix matrix_;
  std::string name_;
};

}  // namespace

std::unique_ptr<DerivedBytes> as_mxfp4(Mxfp4Matrix matrix, std::string name) {
  return std::make_unique<Blocks>(std::move(matrix), std::move(name));
}

Result<> check_mxfp4_matrix(const Mxfp4Matrix& m) {
  ASSERT(m.codes.type == StoredType::kI8 && m.scales.type == StoredType::kF8_E8M0, "{} and {}", describe(m.codes),
         describe(m.scales));
  const bool fits = m.codes.rank == 2 && m.scales.rank == 2 && m.codes.dims[0] == m.scales.dims[0] &&
                    m.codes.dims[1] % kCodeBytes == 0 && m.codes.dims[1] / kCodeBytes == m.scales.dims[1] &&
                    m.codes.elements_count() != 0;
  if (fits) return {};
  return fail(ErrorCode::kWeightShapeMismatch,
              fmt::format("{} is {} and {} is {}; 16 bytes of codes share a scale", m.codes.name, describe(m.codes),
                          m.scales.name, describe(m.scales)));
}

}  // namespace llorch::engine::io
