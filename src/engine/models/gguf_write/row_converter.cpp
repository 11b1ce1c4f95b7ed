#include "engine/models/gguf_write/row_converter.h"

#include <algorithm>
#include <thread>

#include "base/assert.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/quantize.h"

namespace llorch::engine::models {
namespace {

std::uint64_t bytes_of(plan::DType type, std::uint64_t elements) {
  const plan::DTypeInfo info = plan::dtype_info(type);
  return elements / info.block_elements * info.block_bytes;
}
std::uint64_t elements_in(plan::DType type, std::uint64_t bytes) {
  const plan::DTypeInfo info = plan::dtype_info(type);
  return bytes / info.block_bytes * info.block_elements;
}

// Below this a thread costs more than it does.
constexpr std::uint64_t kElementsPerThread = 1U << 15;

// Rows [first, last) of a slab.
base::Result<> convert_rows(const Slab& slab, const RowFormat& format, std::uint64_t first, std::uint64_t last,
                            std::span<std::byte> result) {
  std::vector<float> values(format.cols);
  const std::uint64_t stored_bytes = bytes_of(slab.dtype, format.cols);
  const std::uint64_t result_bytes = bytes_of(format.type, format.cols);
  for (std::uint64_t row = first; row < last; ++row) {
    io::dequantize_row(slab.dtype, slab.bytes.subspan(row * stored_bytes, stored_bytes), values);
    if (format.offset != 0) {
      for (float& value : values) value += format.offset;
    }
    TRY(io::quantize_row(format.type, values, result.subspan(row * result_bytes, result_bytes)));
  }
  return {};
}

}  // namespace

base::Result<std::span<const std::byte>> RowConverter::convert(const Slab& slab, const RowFormat& wanted) {
  if (slab.dtype == wanted.type && wanted.offset == 0) return slab.bytes;
  const std::uint64_t elements = elements_in(slab.dtype, slab.bytes.size());
  RowFormat format = wanted;
  if (elements % format.cols != 0) format.cols = elements;
  ASSERT(elements == 0 || elements % format.cols == 0, "a slab of {} elements, rows of {}", elements, format.cols);
  const std::uint64_t rows = elements / format.cols;
  result_.resize(bytes_of(format.type, elements));

  const std::uint64_t workers =
      std::clamp<std::uint64_t>(std::min(elements / kElementsPerThread, rows), 1, std::max(threads_, 1U));
  std::vector<base::Result<>> outcomes(workers);
  const auto work = [&](std::uint64_t worker) {
    outcomes[worker] = convert_rows(slab, format, rows * worker / workers, rows * (worker + 1) / workers, result_);
  };
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t worker = 1; worker < workers; ++worker) threads.emplace_back(work, worker);
    work(0);
  }
  for (base::Result<>& outcome : outcomes) TRY(std::move(outcome));
  return std::span<const std::byte>(result_);
}

}  // namespace llorch::engine::models
