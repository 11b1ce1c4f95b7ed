#include "engine/models/weights/bound_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/half.h"
#include "engine/models/portable_math.h"

namespace llorch::engine::models {
namespace {

using contract::DType;

std::uint64_t bytes_of(DType dtype, std::uint64_t elements) {
  const contract::DTypeInfo info = contract::dtype_info(dtype);
  return elements / info.block_elements * info.block_bytes;
}

std::uint64_t elements_of(const TensorPart& part) { return part.counts[0] * part.counts[1] * part.counts[2]; }

bool is_one_run(const TensorPart& part) {
  const auto& [n0, n1, n2] = part.counts;
  return part.strides[2] == 1 && (n1 == 1 || part.strides[1] == n2) && (n0 == 1 || part.strides[0] == n1 * n2);
}

// Exact. 4 bits of exponent with bias 7, 3 of mantissa; all ones is the only NaN, there are no infinities.
float f8_e4m3_to_f32(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const int scaled = exponent == 0 ? mantissa : 8 + mantissa;
  const float magnitude = std::ldexp(static_cast<float>(scaled), std::max(exponent, 1) - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// Copies the part's elements behind each other. `source` holds elements of `dtype`.
void gather(const TensorPart& part, DType dtype, const std::byte* source, std::byte* out) {
  const auto& [n0, n1, n2] = part.counts;
  const std::uint64_t element = contract::dtype_info(dtype).block_bytes;
  for (std::uint64_t i = 0; i < n0; ++i) {
    for (std::uint64_t j = 0; j < n1; ++j) {
      const std::uint64_t at = part.offset + i * part.strides[0] + j * part.strides[1];
      if (part.strides[2] == 1) {
        std::memcpy(out, source + bytes_of(dtype, at), bytes_of(dtype, n2));
        out += bytes_of(dtype, n2);
        continue;
      }
      for (std::uint64_t k = 0; k < n2; ++k, out += element)
        std::memcpy(out, source + (at + k * part.strides[2]) * element, element);
    }
  }
}

// The whole source in a plain type: FP8 times its scales in BF16, anything else in F32.
void widen(const TensorPart& part, const BoundTensor& tensor, std::vector<std::byte>& out) {
  const io::FileTensor& source = *part.source;
  const std::uint64_t cols = source.dims[source.rank - 1];
  const std::uint64_t rows = source.elements_count() / cols;
  out.resize(bytes_of(tensor.stored.dtype, rows * cols));
  std::vector<float> row(cols);
  std::vector<float> scales;
  if (part.scales != nullptr) {
    scales.resize(part.scales->elements_count());
    io::dequantize_row(*io::dtype_of(part.scales->type), part.scales->data, scales);
  }
  const std::uint64_t row_bytes = source.data.size() / rows;
  for (std::uint64_t r = 0; r < rows; ++r) {
    const std::span<const std::byte> stored = source.data.subspan(r * row_bytes, row_bytes);
    if (part.scales == nullptr) {
      io::dequantize_row(*io::dtype_of(source.type), stored, row);
      std::memcpy(out.data() + r * cols * sizeof(float), row.data(), cols * sizeof(float));
      continue;
    }
    const std::uint64_t scale_cols = part.scales->dims[part.scales->rank - 1];
    const float* scale = scales.data() + r / tensor.scale_block[0] * scale_cols;
    for (std::uint64_t c = 0; c < cols; ++c) {
      const float value = f8_e4m3_to_f32(static_cast<std::uint8_t>(stored[c])) * scale[c / tensor.scale_block[1]];
      const std::uint16_t half = io::f32_to_bf16(value);
      std::memcpy(out.data() + (r * cols + c) * sizeof half, &half, sizeof half);
    }
  }
}

void negative_exponentials(const TensorPart& part, std::byte* out) {
  std::vector<float> values(part.source->elements_count());
  io::dequantize_row(*io::dtype_of(part.source->type), part.source->data, values);
  for (float& value : values) value = static_cast<float>(-portable_exp(value));
  std::memcpy(out, values.data(), values.size() * sizeof(float));
}

// Elements 2j and 2j+1 of a stored byte j become j and j+16 of the block's: low and high nibbles.
contract::BlockMXFP4 mxfp4_block(const std::uint8_t* stored, std::uint8_t exponent) {
  contract::BlockMXFP4 block{.e = exponent, .qs = {}};
  const auto nibble = [&](unsigned element) { return stored[element / 2] >> (element % 2 * 4) & 15; };
  for (unsigned j = 0; j < 16; ++j) block.qs[j] = static_cast<std::uint8_t>(nibble(j) | nibble(j + 16) << 4);
  return block;
}

void gather_mxfp4(const TensorPart& part, std::byte* out) {
  const auto* nibbles = reinterpret_cast<const std::uint8_t*>(part.source->data.data());
  const auto* exponents = reinterpret_cast<const std::uint8_t*>(part.scales->data.data());
  for (std::uint64_t i = 0; i < part.counts[0]; ++i) {
    for (std::uint64_t j = 0; j < part.counts[1]; ++j) {
      for (std::uint64_t b = 0; b < part.counts[2]; ++b, out += sizeof(contract::BlockMXFP4)) {
        const std::uint64_t at = part.offset + i * part.strides[0] + j * part.strides[1] + b;
        const contract::BlockMXFP4 block = mxfp4_block(nibbles + at * 16, exponents[at]);
        std::memcpy(out, &block, sizeof block);
      }
    }
  }
}

}  // namespace

std::uint64_t BoundTensor::elements_count() const {
  std::uint64_t count = 1;
  for (std::uint8_t d = 0; d < stored.rank; ++d) count *= stored.shape[d];
  return count;
}

std::uint64_t BoundTensor::bytes_count() const { return bytes_of(stored.dtype, elements_count()); }

contract::StoredTensor BoundTensor::fetch(FetchScratch& scratch) const {
  contract::StoredTensor result = stored;
  if (step == TensorStep::kGather && parts.size() == 1 && is_one_run(parts[0])) {
    result.bytes = parts[0].source->data.subspan(bytes_of(stored.dtype, parts[0].offset), bytes_count());
    return result;
  }
  scratch.result.resize(bytes_count());
  std::byte* out = scratch.result.data();
  for (const TensorPart& part : parts) {
    switch (step) {
      case TensorStep::kGather: gather(part, stored.dtype, part.source->data.data(), out); break;
      case TensorStep::kWiden:
        widen(part, *this, scratch.widened);
        gather(part, stored.dtype, scratch.widened.data(), out);
        break;
      case TensorStep::kNegExp: negative_exponentials(part, out); break;
      case TensorStep::kMxfp4: gather_mxfp4(part, out); break;
    }
    const std::uint64_t elements = elements_of(part) * (step == TensorStep::kMxfp4 ? contract::kQuantBlockElements : 1);
    out += bytes_of(stored.dtype, elements);
  }
  ASSERT(out == scratch.result.data() + scratch.result.size(), "{}: parts do not make the shape", name);
  result.bytes = scratch.result;
  return result;
}

}  // namespace llorch::engine::models
