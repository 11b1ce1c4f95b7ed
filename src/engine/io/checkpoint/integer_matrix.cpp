#include "engine/io/checkpoint/integer_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/assert.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

// Rows that are decoded together: a cache line of words that lie side by side.
constexpr std::uint64_t kTileRows = 16;
constexpr std::uint64_t kBlock = plan::kQuantBlockElements;
constexpr std::array<std::uint8_t, 8> kAwqNibble{0, 4, 1, 5, 2, 6, 3, 7};  // of column 8i + j

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool is_block(StoredType type) {
  return type == StoredType::kQ4_0 || type == StoredType::kQ5_0 || type == StoredType::kQ8_0;
}

// Rows [first, first + rows) and columns [column, column + columns) of a matrix in a file, in memory.
class Window {
 public:
  Result<> read(const FileTensor& tensor, std::uint64_t first, std::uint64_t rows, std::uint64_t column,
                std::uint64_t columns) {
    const std::uint64_t width = tensor.dims[1], bytes = stored_type_info(tensor.type).block_bytes;
    first_ = first;
    column_ = column;
    stride_ = columns * bytes;
    stored_.resize(rows * stride_);
    if (columns == width) return tensor.data.read(first * stride_, stored_);
    for (std::uint64_t row = 0; row < rows; ++row)
      TRY(tensor.data.read(((first + row) * width + column) * bytes,
                           std::span(stored_).subspan(row * stride_, stride_)));
    return {};
  }
  std::uint32_t word(std::uint64_t row, std::uint64_t column) const {
    std::uint32_t word;
    std::memcpy(&word, at(row, column, sizeof word), sizeof word);
    return word;
  }
  std::int8_t byte(std::uint64_t row, std::uint64_t column) const {
    return static_cast<std::int8_t>(*at(row, column, 1));
  }
  float real(std::uint64_t row, std::uint64_t column, plan::DType type) const {
    const std::size_t bytes = plan::dtype_info(type).block_bytes;
    float value;
    dequantize_row(type, {at(row, column, bytes), bytes}, {&value, 1});
    return value;
  }

 private:
  const std::byte* at(std::uint64_t row, std::uint64_t column, std::size_t bytes) const {
    return stored_.data() + (row - first_) * stride_ + (column - column_) * bytes;
  }
  std::vector<std::byte> stored_;
  std::uint64_t first_ = 0, column_ = 0, stride_ = 0;
};

// Some rows of a matrix: its parts in memory, decoded a tile at a time.
class Rows {
 public:
  Rows(const IntegerMatrix& matrix, const std::string& name)
      : m_(matrix),
        name_(name),
        transposed_(matrix.layout == IntegerLayout::kGptq || matrix.layout == IntegerLayout::kAwq) {}

  Result<> read(std::uint64_t first, std::uint64_t rows) {
    const std::uint64_t per_word = 32 / m_.bits, columns = m_.codes.dims[1];
    const std::uint64_t word = first / per_word, words = ceil_div(first + rows, per_word) - word;
    switch (m_.layout) {
      case IntegerLayout::kGptq: TRY(codes_.read(m_.codes, 0, m_.codes.dims[0], first, rows)); break;
      case IntegerLayout::kAwq: TRY(codes_.read(m_.codes, 0, m_.columns, word, words)); break;
      case IntegerLayout::kRows:
      case IntegerLayout::kBytes: TRY(codes_.read(m_.codes, first, rows, 0, columns)); break;
    }
    if (transposed_) {
      TRY(scales_.read(m_.scales, 0, m_.groups, first, rows));
    } else {
      TRY(scales_.read(m_.scales, first, rows, 0, m_.groups));
    }
    if (!m_.zeros) return {};
    return transposed_ ? zeros_.read(*m_.zeros, 0, m_.groups, word, words)
                       : zeros_.read(*m_.zeros, word, words, 0, m_.groups);
  }

  // Decodes rows [first, first + rows) of those that were read, at most kTileRows: code - zero by column, and a scale a group.
  Result<> decode(std::uint64_t first, std::uint64_t rows) {
    first_ = first;
    values_.resize(rows * m_.columns);
    zero_of_.resize(rows * m_.groups);
    scale_of_.resize(rows * m_.groups);
    const plan::DType scale_type = *dtype_of(m_.scales.type);
    for (std::uint64_t i = 0; i < rows; ++i) {
      for (std::uint64_t group = 0; group < m_.groups; ++group) {
        const std::uint64_t row = first + i;
        const float scale = transposed_ ? scales_.real(group, row, scale_type) : scales_.real(row, group, scale_type);
        if (!std::isfinite(scale)) return unsupported(row, group, fmt::format("has the scale {}", scale));
        scale_of_[i * m_.groups + group] = scale;
        const int z = zero(row, group);
        zero_of_[i * m_.groups + group] = z;
        if (m_.symmetric && z != middle()) {
          return unsupported(row, group,
                             fmt::format("has the zero {}, but its configuration says that it is symmetric", z));
        }
      }
    }
    decode_codes(rows);
    return {};
  }

  // (code - zero) of row first + i; a scale per group.
  std::span<const std::int16_t> values(std::uint64_t i) const {
    return std::span(values_).subspan(i * m_.columns, m_.columns);
  }
  float scale(std::uint64_t i, std::uint64_t column) const { return scale_of_[i * m_.groups + group_of(column)]; }

  tl::unexpected<base::Error> unsupported(std::uint64_t row, std::uint64_t group, const std::string& what) const {
    return fail(ErrorCode::kWeightValueUnsupported, fmt::format("{}: row {}, group {} {}", name_, row, group, what));
  }
  std::uint64_t group_of(std::uint64_t column) const {
    return m_.group_of.empty() ? column / m_.columns_per_group : m_.group_of[column];
  }

 private:
  int middle() const { return 1 << (m_.bits - 1); }
  int zero(std::uint64_t row, std::uint64_t group) const {
    if (!m_.zeros) return m_.layout == IntegerLayout::kBytes ? 0 : middle();
    const std::uint64_t per_word = 32 / m_.bits, place = row % per_word;
    const std::uint32_t word = transposed_ ? zeros_.word(group, row / per_word) : zeros_.word(row / per_word, group);
    const std::uint64_t shift = (m_.layout == IntegerLayout::kAwq ? kAwqNibble[place] : place) * m_.bits;
    return static_cast<int>((word + (m_.zeros_less_one ? ones() : 0)) >> shift & mask());
  }
  std::uint32_t mask() const { return (1U << m_.bits) - 1; }
  std::uint32_t ones() const { return ~0U / mask(); }  // 1 in every code

  void decode_codes(std::uint64_t rows) {
    const std::uint64_t per_word = 32 / m_.bits;
    const auto field = [&](std::uint32_t word, std::uint64_t place) {
      return static_cast<int>(word >> place * m_.bits & mask());
    };
    switch (m_.layout) {
      case IntegerLayout::kGptq:
        return decode_by(rows, [&](std::uint64_t row, std::uint64_t column) {
          return field(codes_.word(column / per_word, row), column % per_word);
        });
      case IntegerLayout::kAwq:
        return decode_by(rows, [&](std::uint64_t row, std::uint64_t column) {
          return field(codes_.word(column, row / per_word), kAwqNibble[row % per_word]);
        });
      case IntegerLayout::kRows:
        return decode_by(rows, [&](std::uint64_t row, std::uint64_t column) {
          return field(codes_.word(row, column / per_word), column % per_word);
        });
      case IntegerLayout::kBytes:
        return decode_by(rows, [&](std::uint64_t row, std::uint64_t column) { return int{codes_.byte(row, column)}; });
    }
  }
  // The rows of a tile beside each other: they are where words lie side by side.
  template <class CodeAt>
  void decode_by(std::uint64_t rows, CodeAt&& code_at) {
    for (std::uint64_t column = 0; column < m_.columns; ++column) {
      const std::uint64_t group = group_of(column);
      for (std::uint64_t i = 0; i < rows; ++i) {
        values_[i * m_.columns + column] =
            static_cast<std::int16_t>(code_at(first_ + i, column) - zero_of_[i * m_.groups + group]);
      }
    }
  }

  const IntegerMatrix& m_;
  const std::string& name_;
  const bool transposed_;  // scales and zeros: groups by rows, not rows by groups
  Window codes_, scales_, zeros_;
  std::uint64_t first_ = 0;
  std::vector<std::int16_t> values_;
  std::vector<int> zero_of_;
  std::vector<float> scale_of_;
};

std::byte* put_block(StoredType type, std::uint16_t d, std::span<const std::int16_t> values, std::byte* out) {
  const auto put = [&](const auto& block) {
    std::memcpy(out, &block, sizeof block);
    return out + sizeof block;
  };
  if (type == StoredType::kQ8_0) {
    plan::BlockQ8_0 block{.d = d, .qs = {}};
    for (std::size_t e = 0; e < kBlock; ++e) block.qs[e] = static_cast<std::int8_t>(values[e]);
    return put(block);
  }
  const auto code = [&](std::size_t e) {
    return static_cast<unsigned>(values[e] + (type == StoredType::kQ4_0 ? 8 : 16));
  };
  std::uint8_t low[16];
  std::uint32_t high = 0;
  for (std::size_t e = 0; e < 16; ++e) low[e] = static_cast<std::uint8_t>((code(e) & 15U) | (code(e + 16) & 15U) << 4);
  if (type == StoredType::kQ4_0) {
    plan::BlockQ4_0 block{.d = d, .qs = {}};
    std::memcpy(block.qs, low, sizeof low);
    return put(block);
  }
  for (std::size_t e = 0; e < kBlock; ++e) high |= (code(e) >> 4 & 1U) << e;
  plan::BlockQ5_0 block{.d = d, .qh = {}, .qs = {}};
  std::memcpy(block.qh, &high, sizeof high);
  std::memcpy(block.qs, low, sizeof low);
  return put(block);
}

class Stored final : public DerivedBytes {
 public:
  Stored(IntegerMatrix matrix, std::string name)
      : matrix_(std::move(matrix)), name_(std::move(name)), type_(stored_type_of(matrix_)) {}

  Result<> read(std::uint64_t begin, std::span<std::byte> out) const override {
    const plan::DTypeInfo info = stored_type_info(type_);
    ASSERT(begin % info.block_bytes == 0 && out.size() % info.block_bytes == 0, "{}: bytes {} + {} cut a block", name_,
           begin, out.size());
    const std::uint64_t per_row = matrix_.columns / info.block_elements;  // units
    std::uint64_t unit = begin / info.block_bytes;
    const std::uint64_t end = unit + out.size() / info.block_bytes;
    if (unit == end) return {};
    Rows rows(matrix_, name_);
    TRY(rows.read(unit / per_row, (end - 1) / per_row + 1 - unit / per_row));
    std::byte* to = out.data();
    while (unit < end) {
      const std::uint64_t first = unit / per_row, last = std::min((end - 1) / per_row + 1, first + kTileRows);
      TRY(rows.decode(first, last - first));
      for (std::uint64_t row = first; row < last; ++row) {
        const std::uint64_t stop = std::min(end, (row + 1) * per_row);
        to = TRY(put(rows, row, row - first, unit - row * per_row, stop - row * per_row, to));
        unit = stop;
      }
    }
    return {};
  }

 private:
  // Units [from, to) of a row, which is the i-th of the tile.
  Result<std::byte*> put(const Rows& rows, std::uint64_t row, std::uint64_t i, std::uint64_t from, std::uint64_t to,
                         std::byte* out) const {
    const std::span<const std::int16_t> values = rows.values(i);
    for (std::uint64_t unit = from; unit < to; ++unit) {
      if (!is_block(type_)) {
        const float value = static_cast<float>(values[unit]) * rows.scale(i, unit);
        const std::uint16_t half = type_ == StoredType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        if (type_ == StoredType::kF16 && !is_finite_f16(half)) return too_large(rows, row, unit);
        std::memcpy(out, &half, sizeof half);
        out += sizeof half;
        continue;
      }
      const std::uint16_t d = f32_to_f16(rows.scale(i, unit * kBlock));
      if (!is_finite_f16(d)) return too_large(rows, row, unit * kBlock);
      out = put_block(type_, d, values.subspan(unit * kBlock, kBlock), out);
    }
    return out;
  }
  tl::unexpected<base::Error> too_large(const Rows& rows, std::uint64_t row, std::uint64_t column) const {
    return rows.unsupported(row, rows.group_of(column), "has a scale that makes numbers beyond 65504");
  }

  IntegerMatrix matrix_;
  std::string name_;
  StoredType type_;
};

Result<> expect(const FileTensor& tensor, std::uint64_t rows, std::uint64_t columns) {
  if (tensor.rank == 2 && tensor.dims[0] == rows && tensor.dims[1] == columns) return {};
  return fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} is {}; [{}, {}] goes with the codes beside it",
                                                           tensor.name, describe(tensor), rows, columns));
}

bool is_words(const FileTensor& tensor) { return tensor.type == StoredType::kI32 || tensor.type == StoredType::kU32; }

}  // namespace

StoredType stored_type_of(const IntegerMatrix& m) {
  const StoredType floats = m.scales.type == StoredType::kBF16 ? StoredType::kBF16 : StoredType::kF16;
  const bool one_scale_a_block = m.groups == 1 || m.columns_per_group % kBlock == 0;
  if (m.columns % kBlock != 0 || !one_scale_a_block || !m.group_of.empty()) return floats;
  const bool around_middle = !m.zeros || m.symmetric;
  switch (m.bits) {
    case 2: return StoredType::kQ4_0;  // -3 to 3
    case 4: return around_middle ? StoredType::kQ4_0 : StoredType::kQ5_0;
    default: return around_middle ? StoredType::kQ8_0 : floats;
  }
}

std::unique_ptr<DerivedBytes> as_stored(IntegerMatrix matrix, std::string name) {
  return std::make_unique<Stored>(std::move(matrix), std::move(name));
}

Result<> check_integer_matrix(const IntegerMatrix& m) {
  const std::uint64_t per_word = 32 / m.bits;
  ASSERT(m.columns_per_group != 0 && m.groups == ceil_div(m.columns, m.columns_per_group),
         "{} groups of {} columns, {} each", m.groups, m.columns, m.columns_per_group);
  const auto type = dtype_of(m.scales.type);
  if (type != plan::DType::kF16 && type != plan::DType::kBF16 && type != plan::DType::kF32) {
    return fail(ErrorCode::kWeightDTypeUnsupported,
                fmt::format("{} is {}; scales are F16, BF16 or F32", m.scales.name, describe(m.scales)));
  }
  if (m.layout == IntegerLayout::kBytes ? m.codes.type != StoredType::kI8 : !is_words(m.codes)) {
    return fail(ErrorCode::kWeightDTypeUnsupported,
                fmt::format("{} is {}; codes are {}", m.codes.name, describe(m.codes),
                            m.layout == IntegerLayout::kBytes ? "I8" : "I32"));
  }
  if (m.zeros && !is_words(*m.zeros)) {
    return fail(ErrorCode::kWeightDTypeUnsupported,
                fmt::format("{} is {}; zeros are I32", m.zeros->name, describe(*m.zeros)));
  }
  switch (m.layout) {
    case IntegerLayout::kGptq:
      TRY(expect(m.codes, ceil_div(m.columns, per_word), m.rows));
      TRY(expect(m.scales, m.groups, m.rows));
      return m.zeros ? expect(*m.zeros, m.groups, ceil_div(m.rows, per_word)) : Result<>();
    case IntegerLayout::kAwq:
      TRY(expect(m.codes, m.columns, m.rows / per_word));
      TRY(expect(m.scales, m.groups, m.rows));
      return m.zeros ? expect(*m.zeros, m.groups, m.rows / per_word) : Result<>();
    case IntegerLayout::kRows:
      TRY(expect(m.codes, m.rows, ceil_div(m.columns, per_word)));
      TRY(expect(m.scales, m.rows, m.groups));
      return m.zeros ? expect(*m.zeros, ceil_div(m.rows, per_word), m.groups) : Result<>();
    case IntegerLayout::kBytes: TRY(expect(m.codes, m.rows, m.columns)); return expect(m.scales, m.rows, m.groups);
  }
  return {};
}

}  // namespace llorch::engine::io
