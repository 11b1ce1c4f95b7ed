// Matrix products of every weight type that weighs, on one thread: weights streamed from memory at few rows, held in caches at
// many. Counters: Gop/s, multiply-adds; GB/s, weight bytes; of_limit, probed between iterations: of up to eight rows the
// share of what one thread reads from memory, of more that of what its widest 8-bit dot product (for float weights: its FMA) does
// from registers; alone_of_limit, the same of slices beside which nobody else took the core's instruction slots, and
// alone, the share of those.
// Usage: matmul_bench [--benchmark_filter=q4_k/avx512/512]. Names: type/instruction set/rows. LLORCH_BENCH_DEPTH sets the
// width of a row.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compute/cpu/kernels.h"
#include "engine/compute/half.h"
#include "peaks.h"

namespace {

using namespace llorch::engine;
using compute::cpu::Kernels;
using compute::cpu::MatrixShape;
using compute::cpu::PackedMatrix;
using compute::cpu::QuantizedBlock;
using compute::cpu::QuantizedRows;
using compute::cpu::Range;
using plan::DType;
namespace host = compute::cpu::host;
using llorch::bench::peak_rate;
using llorch::bench::ShareOfLimit;
using llorch::cli::bench::ReadProbe;

constexpr std::uint32_t kDepth = 2048, kRows = 5632;  // of the matrix: one of a 1.1B llama
constexpr std::size_t kFewRows = 8;                   // held against memory
constexpr int kBatches[] = {1, 2, 4, 7, 8, 16, 32, 64, 512};  // rows of activations

// 2 MiB pages before the first touch, as CpuBackend asks for.
template <class T>
std::vector<T> in_large_pages(std::size_t count) {
  constexpr std::uintptr_t kPage = 4096;
  std::vector<T> out;
  out.reserve(count);
  const auto begin = (reinterpret_cast<std::uintptr_t>(out.data()) + kPage - 1) / kPage * kPage;
  ::madvise(reinterpret_cast<void*>(begin), count * sizeof(T) / kPage * kPage, MADV_HUGEPAGE);
  out.resize(count);
  return out;
}

struct Stored {
  MatrixShape shape;
  std::vector<std::uint64_t> lines;  // copies of the packed matrix, one after the other
  std::size_t copies = 1;

  const std::byte* data(std::size_t copy) const {
    const auto at = reinterpret_cast<std::uintptr_t>(lines.data());
    return reinterpret_cast<const std::byte*>((at + 63) / 64 * 64) + copy * compute::cpu::packed_bytes(shape);
  }
};

// Of a buffer that no cache holds; what is available changes as buffers are made.
std::uint64_t stream_bytes() {
  static const std::uint64_t bytes = llorch::cli::bench::read_probe_bytes();
  return bytes;
}
double read_rate() {
  static const ReadProbe reads(stream_bytes());
  return reads.bytes_per_s(1);
}

// Random codes; factors are small numbers, so that no sum overflows.
Stored make_matrix(DType dtype, std::uint32_t depth) {
  Stored m{.shape = {.dtype = dtype, .rows = kRows, .cols = depth}, .lines = {}};
  const auto info = plan::dtype_info(dtype);
  std::vector<std::uint16_t> stored(std::size_t{kRows} * depth / info.block_elements * info.block_bytes / 2);
  std::mt19937 random(7);
  for (std::uint16_t& bits : stored) bits = static_cast<std::uint16_t>(random() & 0x9FFF);  // below 2 as binary16
  const std::size_t bytes = compute::cpu::packed_bytes(m.shape);
  m.copies = std::max<std::size_t>(1, stream_bytes() / bytes);
  const std::size_t lines = (m.copies * bytes + 64) / sizeof(std::uint64_t);
  m.lines = in_large_pages<std::uint64_t>(lines);
  auto* first = const_cast<std::byte*>(m.data(0));
  compute::cpu::pack_groups(m.shape, reinterpret_cast<const std::byte*>(stored.data()), first, 0, (kRows + 15) / 16);
  for (std::size_t copy = 1; copy < m.copies; ++copy) std::memcpy(first + copy * bytes, first, bytes);
  return m;
}

struct Activations {
  std::vector<float> x;
  std::vector<QuantizedBlock> blocks;
  std::size_t width = 0;

  Activations(std::size_t rows, std::size_t depth)
      : x(in_large_pages<float>(rows * depth)),
        blocks(in_large_pages<QuantizedBlock>(rows * depth / 32)),
        width(depth) {
    std::mt19937 random(9);
    for (float& value : x) value = static_cast<float>(random() % 2001) * 0.001f - 1.0f;
  }
  QuantizedRows view() { return {.blocks = blocks.data(), .width = width}; }
};

struct Case {
  DType dtype;
  host::Isa isa;
  std::size_t batch;
  std::uint32_t depth;
};

void multiply(benchmark::State& state, const Case& c) {
  // Cases of a type follow each other.
  static Stored matrix;
  if (matrix.lines.empty() || matrix.shape.dtype != c.dtype) {
    matrix = {};  // before there are two
    matrix = make_matrix(c.dtype, c.depth);
  }
  const Kernels& kernels = compute::cpu::kernels(c.isa);
  Activations activations(c.batch, c.depth);
  if (plan::is_quantized(c.dtype))
    kernels.quantize({.x = activations.x.data(), .x_stride = c.depth, .out = activations.view()}, {0, c.batch});
  std::vector<float> y = in_large_pages<float>(c.batch * kRows);
  const double products = static_cast<double>(c.batch) * kRows * c.depth;
  const double bytes = static_cast<double>(compute::cpu::packed_bytes(matrix.shape));
  const bool few = c.batch <= kFewRows;
  const auto limit = [&] { return few ? read_rate() : peak_rate(c.isa, plan::is_quantized(c.dtype)); };
  ShareOfLimit share(few ? llorch::bench::kReadSlice : llorch::bench::kProductSlice);
  std::size_t copy = 0;
  const auto multiply_once = [&] {
    const PackedMatrix w = compute::cpu::packed_view(matrix.shape, matrix.data(copy));
    copy = (copy + 1) % matrix.copies;
    kernels.matmul({.w = w,
                    .x = activations.x.data(),
                    .x_stride = c.depth,
                    .xq = activations.view(),
                    .y = y.data(),
                    .y_stride = kRows,
                    .rows = c.batch},
                   Range{0, w.groups()});
    benchmark::DoNotOptimize(y.data());
  };
  for (auto _ : state) share.run(state, few ? bytes : products, multiply_once, limit);
  using benchmark::Counter;
  state.counters["Gop/s"] = Counter(products * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
  share.set_counters(state);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const char* width = std::getenv("LLORCH_BENCH_DEPTH");
  const std::uint32_t depth = width != nullptr ? static_cast<std::uint32_t>(std::atoi(width)) : kDepth;
  const host::CpuFeatures features = host::detect_cpu_features();
  for (DType dtype : {DType::kQ4_K, DType::kQ8_0, DType::kQ4_0, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K, DType::kQ3_K,
                      DType::kF16, DType::kBF16}) {
    for (host::Isa isa : host::kIsas) {
      if (!host::has(features, isa)) continue;
      for (int batch : kBatches) {
        std::string name = std::string(plan::dtype_info(dtype).name) + "/" + std::string(host::isa_name(isa)) + "/" +
                           std::to_string(batch);
        const Case c{.dtype = dtype, .isa = isa, .batch = static_cast<std::size_t>(batch), .depth = depth};
        benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) {
          multiply(state, c);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
