#include "engine/models/weights/bound_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/mxfp4.h"
#include "engine/models/portable_math.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::DType;

std::uint64_t row_elements(const plan::StoredTensor& tensor) {
  return tensor.rank == 0 ? 1 : tensor.shape[tensor.rank - 1U];
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

bool is_one_run(const TensorPart& part) {
  const auto& [n0, n1, n2] = part.counts;
  return part.strides[2] == 1 && (n1 == 1 || part.strides[1] == n2) && (n0 == 1 || part.strides[0] == n1 * n2);
}

// A unit is an element, or a block where the step makes them.
bool counts_blocks(TensorStep step) { return step == TensorStep::kMxfp4 || step == TensorStep::kF8Blocks; }
std::uint64_t units_count(const BoundTensor& tensor, const TensorPart& part) {
  const std::uint64_t count = part.counts[0] * part.counts[1] * part.counts[2];
  if (tensor.step != TensorStep::kF8Blocks) return count;
  const std::uint64_t row = row_elements(tensor.stored);
  return count / row * ceil_div(row, plan::dtype_info(tensor.stored.dtype).block_elements);
}

// One part of a tensor, in any pieces.
class PartReader {
 public:
  PartReader(const BoundTensor& tensor, const TensorPart& part)
      : part_(part),
        source_(*part.source),
        info_(plan::dtype_info(tensor.stored.dtype)),
        step_(tensor.step),
        row_(row_elements(tensor.stored)),
        numbers_end_(tensor.numbers_end) {}

  // First of all.
  Result<> read_scales(io::Fp8BlockShape block) {
    if ((step_ != TensorStep::kWiden && step_ != TensorStep::kF8Blocks) || part_.scales == nullptr) return {};
    fp8_ = TRY(io::fp8_matrix(source_, *part_.scales, block));
    return {};
  }

  std::uint64_t bytes_of_units(std::uint64_t units) const {
    return counts_blocks(step_) ? units * info_.block_bytes : bytes_of(units);
  }
  // Units [from, from + count) behind each other.
  Result<> read(std::uint64_t from, std::uint64_t count, std::byte* out) {
    if (step_ == TensorStep::kF8Blocks) return read_f8(from, count, out);
    if (is_one_run(part_) && step_ != TensorStep::kMxfp4) return read_run(part_.offset + from, count, out);
    const std::uint64_t matrix = part_.counts[1] * part_.counts[2];
    for (const std::uint64_t end = from + count; from < end;) {
      const std::uint64_t base = part_.offset + from / matrix * part_.strides[0], first = from % matrix;
      const std::uint64_t units = std::min(matrix - first, end - from);
      if (step_ == TensorStep::kMxfp4) {
        TRY(read_mxfp4(base, first, units, out));
      } else if (part_.strides[2] == 1 && (part_.counts[2] > 1 || part_.strides[1] > 2)) {
        TRY(read_rows(base, first, units, out));
      } else {
        TRY(read_columns(base, first, units, out));
      }
      from += units;
      out += bytes_of_units(units);
    }
    return {};
  }

 private:
  // The elements of a part of FP8 as they are stored, without scales.
  PartReader(const TensorPart& part, plan::DTypeInfo code) : part_(part), source_(*part.source), info_(code) {}

  std::uint64_t bytes_of(std::uint64_t elements) const { return elements / info_.block_elements * info_.block_bytes; }

  // Elements of the source that follow each other.
  Result<> read_run(std::uint64_t at, std::uint64_t count, std::byte* out) {
    switch (step_) {
      case TensorStep::kGather: return source_.data.read(bytes_of(at), {out, bytes_of(count)});
      case TensorStep::kWiden: return part_.scales != nullptr ? widen_fp8(at, count, out) : dequantize(at, count, out);
      case TensorStep::kNegExp: {
        TRY(dequantize(at, count, out));
        for (std::uint64_t i = 0; i < count; ++i) {
          float value;
          std::memcpy(&value, out + i * sizeof value, sizeof value);
          value = static_cast<float>(-portable_exp(value));
          std::memcpy(out + i * sizeof value, &value, sizeof value);
        }
        return {};
      }
      case TensorStep::kNumbers:
        return source_.type == io::StoredType::kI64 ? read_numbers<std::int64_t>(at, count, out)
                                                    : read_numbers<std::int32_t>(at, count, out);
      case TensorStep::kOverRoot: {
        TRY(dequantize(at, count, out));
        const auto root = static_cast<float>(std::sqrt(static_cast<double>(source_.elements_count())));
        for (std::uint64_t i = 0; i < count; ++i) {
          float value;
          std::memcpy(&value, out + i * sizeof value, sizeof value);
          value /= root;
          std::memcpy(out + i * sizeof value, &value, sizeof value);
        }
        return {};
      }
      case TensorStep::kF8Blocks:
      case TensorStep::kMxfp4:
      case TensorStep::kZeros: break;
    }
    ASSERT(false, "{} is not made of runs", source_.name);
    return {};
  }
  template <class Number>
  Result<> read_numbers(std::uint64_t at, std::uint64_t count, std::byte* out) {
    stored_.resize(count * sizeof(Number));
    TRY(source_.data.read(at * sizeof(Number), stored_));
    for (std::uint64_t i = 0; i < count; ++i) {
      Number number;
      std::memcpy(&number, stored_.data() + i * sizeof number, sizeof number);
      if (number < 0 || std::cmp_greater_equal(number, numbers_end_)) {
        return base::fail(base::ErrorCode::kCorruptFile,
                          fmt::format("{}: element {} names expert {}; the layer has experts 0 to {}", source_.name,
                                      at + i, number, numbers_end_ - 1));
      }
      const auto value = static_cast<float>(number);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
    return {};
  }
  Result<> widen_fp8(std::uint64_t at, std::uint64_t count, std::byte* out) {
    stored_.resize(count);
    TRY(source_.data.read(at, stored_));
    halves_.resize(count);
    io::fp8_to_bf16(fp8_, at, stored_, halves_);
    std::memcpy(out, halves_.data(), count * sizeof halves_[0]);
    return {};
  }
  Result<> dequantize(std::uint64_t at, std::uint64_t count, std::byte* out) {
    const DType dtype = *io::dtype_of(source_.type);
    const plan::DTypeInfo info = plan::dtype_info(dtype);
    const std::uint64_t first = at / info.block_elements, last = ceil_div(at + count, info.block_elements);
    stored_.resize((last - first) * info.block_bytes);
    TRY(source_.data.read(first * info.block_bytes, stored_));
    values_.resize((last - first) * info.block_elements);
    io::dequantize_row(dtype, stored_, values_);
    std::memcpy(out, values_.data() + (at - first * info.block_elements), count * sizeof values_[0]);
    return {};
  }

  // Units [first, first + count) of the matrix that begins at `base`, by rows of neighbours.
  Result<> read_rows(std::uint64_t base, std::uint64_t first, std::uint64_t count, std::byte* out) {
    const std::uint64_t cols = part_.counts[2];
    for (const std::uint64_t end = first + count; first < end;) {
      const std::uint64_t run = std::min(cols - first % cols, end - first);
      TRY(read_run(base + first / cols * part_.strides[1] + first % cols, run, out));
      out += bytes_of_units(run);
      first += run;
    }
    return {};
  }
  // The same where the neighbours are in columns: a column at a time, with what lies between its elements.
  Result<> read_columns(std::uint64_t base, std::uint64_t first, std::uint64_t count, std::byte* out) {
    const std::uint64_t cols = part_.counts[2], step = part_.strides[1], element = bytes_of(1);
    for (std::uint64_t k = 0; k < cols; ++k) {
      const std::uint64_t begin = first <= k ? 0 : ceil_div(first - k, cols);
      const std::uint64_t end = first + count <= k ? 0 : ceil_div(first + count - k, cols);
      if (begin >= end) continue;
      column_.resize(((end - begin - 1) * step + 1) * element);
      TRY(read_run(base + begin * step + k * part_.strides[2], column_.size() / element, column_.data()));
      for (std::uint64_t j = begin; j < end; ++j)
        std::memcpy(out + (j * cols + k - first) * element, column_.data() + (j - begin) * step * element, element);
    }
    return {};
  }
  // The codes of all blocks, then each block with its scale before it.
  Result<> read_f8(std::uint64_t from, std::uint64_t count, std::byte* out) {
    const std::uint64_t block_elements = info_.block_elements, blocks = ceil_div(row_, block_elements);
    const auto element = [&](std::uint64_t unit) { return unit / blocks * row_ + unit % blocks * block_elements; };
    const auto elements_in = [&](std::uint64_t unit) {
      return std::min(block_elements, row_ - unit % blocks * block_elements);
    };
    const std::uint64_t first = element(from), last = from + count - 1, columns = source_.dims[1];
    codes_.resize(element(last) + elements_in(last) - first);
    TRY(PartReader(part_, {"F8_E4M3", 1, 1}).read(first, codes_.size(), codes_.data()));
    const std::uint64_t scales_per_row = ceil_div(columns, fp8_.block.cols);
    for (std::uint64_t unit = from; unit < from + count; ++unit) {
      const std::uint64_t place = place_of(element(unit));
      plan::BlockF8_E4M3 block{};
      block.d = fp8_.scales[fp8_.block.block_of(place / columns) * scales_per_row + place % columns / fp8_.block.cols];
      std::memcpy(block.qs, codes_.data() + (element(unit) - first), elements_in(unit));
      std::memcpy(out, &block, sizeof block);
      out += sizeof block;
    }
    return {};
  }
  // Of an element in the source.
  std::uint64_t place_of(std::uint64_t element) const {
    const auto& [n0, n1, n2] = part_.counts;
    return part_.offset + element / (n1 * n2) * part_.strides[0] + element / n2 % n1 * part_.strides[1] +
           element % n2 * part_.strides[2];
  }
  // Rows that take turns are read together.
  Result<> read_mxfp4(std::uint64_t base, std::uint64_t first, std::uint64_t count, std::byte* out) {
    constexpr std::uint64_t kNibbleBytes = 16;
    const std::uint64_t cols = part_.counts[2], end = first + count;
    const auto place = [&](std::uint64_t unit) { return base + unit / cols * part_.strides[1] + unit % cols; };
    const std::uint64_t begin_at = place(first), blocks = place(end - 1) + 1 - begin_at;
    stored_.resize(blocks * kNibbleBytes);
    TRY(source_.data.read(begin_at * kNibbleBytes, stored_));
    exponents_.resize(blocks);
    TRY(part_.scales->data.read(begin_at, exponents_));
    for (std::uint64_t run = 0; first < end; first += run) {
      run = std::min(cols - first % cols, end - first);
      const std::uint64_t at = place(first) - begin_at;
      io::repack_hf_mxfp4(std::span(stored_).subspan(at * kNibbleBytes, run * kNibbleBytes),
                          std::span(exponents_).subspan(at, run), {out, bytes_of_units(run)});
      out += bytes_of_units(run);
    }
    return {};
  }

  const TensorPart& part_;
  const io::FileTensor& source_;
  plan::DTypeInfo info_;  // of a unit, or of the elements of one
  TensorStep step_ = TensorStep::kGather;
  std::uint64_t row_ = 0;  // elements of a row of the tensor
  std::uint32_t numbers_end_ = 0;
  io::Fp8Matrix fp8_;
  std::vector<std::byte> stored_, exponents_, column_, codes_;
  std::vector<std::uint16_t> halves_;
  std::vector<float> values_;
};

}  // namespace

std::uint64_t BoundTensor::elements_count() const {
  std::uint64_t count = 1;
  for (std::uint8_t d = 0; d < stored.rank; ++d) count *= stored.shape[d];
  return count;
}

std::uint64_t BoundTensor::bytes_count() const {
  const std::uint64_t row = row_elements(stored);
  return row == 0 ? 0 : elements_count() / row * plan::row_bytes(stored.dtype, row);
}

bool BoundTensor::is_widened_f8() const {
  if (step != TensorStep::kWiden) return false;
  const io::StoredType type = parts[0].source->type;
  return type == io::StoredType::kF8_E4M3 || type == io::StoredType::kF8_E5M2;
}

plan::StoredTensor BoundTensor::as_source() const {
  plan::StoredTensor result = stored;
  result.source = this;
  result.name = name;
  return result;
}

base::Result<> BoundTensor::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (step == TensorStep::kZeros) {
    std::ranges::fill(out, std::byte{0});
    return {};
  }
  const plan::DTypeInfo info = plan::dtype_info(stored.dtype);
  const auto units = [&](std::uint64_t bytes) {
    ASSERT(bytes % info.block_bytes == 0, "{}: byte {} is inside a block of {}", name, bytes, info.block_bytes);
    return bytes / info.block_bytes * (counts_blocks(step) ? 1 : info.block_elements);
  };
  std::uint64_t at = units(begin), left = units(out.size());
  std::byte* to = out.data();
  for (const TensorPart& part : parts) {
    const std::uint64_t of_part = units_count(*this, part);
    if (at >= of_part) {
      at -= of_part;
      continue;
    }
    if (left == 0) break;
    const std::uint64_t from = std::exchange(at, 0), count = std::min(of_part - from, left);
    PartReader reader(*this, part);
    TRY(reader.read_scales(scale_block));
    TRY(reader.read(from, count, to));
    to += reader.bytes_of_units(count);
    left -= count;
  }
  ASSERT(left == 0, "{}: parts do not make the shape", name);
  return {};
}

}  // namespace llorch::engine::models
