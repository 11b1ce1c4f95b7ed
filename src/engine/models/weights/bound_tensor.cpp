#include "engine/models/weights/bound_tensor.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/mxfp4.h"
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
  const std::uint64_t row_bytes = bytes_of(tensor.stored.dtype, cols);
  out.resize(rows * row_bytes);
  if (part.scales != nullptr) {
    const auto matrix = io::fp8_matrix(source, *part.scales, tensor.scale_block);
    ASSERT(matrix.has_value(), "{} was checked when it was described", source.name);
    std::vector<std::uint16_t> row(cols);
    for (std::uint64_t r = 0; r < rows; ++r) {
      io::fp8_row_to_bf16(*matrix, r, row);
      std::memcpy(out.data() + r * row_bytes, row.data(), row_bytes);
    }
    return;
  }
  const std::uint64_t stored_bytes = source.data.size() / rows;
  std::vector<float> row(cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    io::dequantize_row(*io::dtype_of(source.type), source.data.subspan(r * stored_bytes, stored_bytes), row);
    std::memcpy(out.data() + r * row_bytes, row.data(), row_bytes);
  }
}

void negative_exponentials(const TensorPart& part, std::byte* out) {
  std::vector<float> values(part.source->elements_count());
  io::dequantize_row(*io::dtype_of(part.source->type), part.source->data, values);
  for (float& value : values) value = static_cast<float>(-portable_exp(value));
  std::memcpy(out, values.data(), values.size() * sizeof(float));
}

void gather_mxfp4(const TensorPart& part, std::byte* out) {
  constexpr std::uint64_t kNibbleBytes = 16;
  const std::uint64_t blocks = part.counts[2];
  const std::uint64_t row_bytes = blocks * sizeof(contract::BlockMXFP4);
  for (std::uint64_t i = 0; i < part.counts[0]; ++i) {
    for (std::uint64_t j = 0; j < part.counts[1]; ++j, out += row_bytes) {
      const std::uint64_t at = part.offset + i * part.strides[0] + j * part.strides[1];
      io::repack_hf_mxfp4(part.source->data.subspan(at * kNibbleBytes, blocks * kNibbleBytes),
                          part.scales->data.subspan(at, blocks), {out, row_bytes});
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
  if (step == TensorStep::kZeros) {
    std::ranges::fill(scratch.result, std::byte{0});
    result.bytes = scratch.result;
    return result;
  }
  std::byte* out = scratch.result.data();
  const io::FileTensor* widened = nullptr;  // what scratch.widened holds
  for (const TensorPart& part : parts) {
    switch (step) {
      case TensorStep::kGather: gather(part, stored.dtype, part.source->data.data(), out); break;
      case TensorStep::kWiden:
        if (part.source != widened) widen(part, *this, scratch.widened);
        widened = part.source;
        gather(part, stored.dtype, scratch.widened.data(), out);
        break;
      case TensorStep::kNegExp: negative_exponentials(part, out); break;
      case TensorStep::kMxfp4: gather_mxfp4(part, out); break;
      case TensorStep::kZeros: break;
    }
    const std::uint64_t elements = elements_of(part) * (step == TensorStep::kMxfp4 ? contract::kQuantBlockElements : 1);
    out += bytes_of(stored.dtype, elements);
  }
  ASSERT(out == scratch.result.data() + scratch.result.size(), "{}: parts do not make the shape", name);
  result.bytes = scratch.result;
  return result;
}

}  // namespace llorch::engine::models
