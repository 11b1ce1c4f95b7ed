// What the CUDA kernels reach on the shapes of an 8B model: GB/s of weights for few rows, GFLOP/s for many, beside a copy on
// the device in the same minute. Prints one row per case; without a GPU it says why and measures nothing.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/backend.h"

namespace {

using namespace llorch;
using engine::compute::cuda::CudaBackend;
using engine::contract::DType;
using engine::contract::MemoryPurpose;
namespace adapters = engine::compute::cuda::adapters;

constexpr int kRepetitions = 50;
constexpr std::size_t kWeightsBytes = 1u << 30;

struct Case {
  const char* name;
  std::uint32_t n, k;
};
constexpr Case kCases[] = {{"q", 4096, 4096}, {"kv", 1024, 4096}, {"up", 14336, 4096}, {"down", 4096, 14336}, {"head", 128256, 4096}};

// Seconds per call.
template <class Work>
double time(CudaBackend& backend, const Work& work) {
  work();
  if (!backend.synchronize()) return 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepetitions; ++i) work();
  if (!backend.synchronize()) return 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRepetitions;
}

double copy_bandwidth(CudaBackend& backend) {
  constexpr std::uint64_t kBytes = 4ULL << 30;
  std::byte* from = backend.allocate(kBytes, MemoryPurpose::kWorkspace).value();
  std::byte* to = backend.allocate(kBytes, MemoryPurpose::kWorkspace).value();
  const double seconds = time(backend, [&] { backend.copy_on_device(to, from, kBytes); });
  backend.release(from);
  backend.release(to);
  return 2 * static_cast<double>(kBytes) / seconds / 1e9;
}

void measure(CudaBackend& backend, DType dtype, const Case& shape, std::uint32_t rows, double limit) {
  const auto info = engine::contract::dtype_info(dtype);
  const std::vector<std::byte> stored(shape.n * engine::contract::row_bytes(dtype, shape.k));
  // One after the other, as the layers of a model: together far more than a cache holds.
  std::vector<void*> weights(std::max<std::size_t>(1, kWeightsBytes / stored.size()));
  for (void*& weight : weights)
    weight = backend
                 .upload_weight({.dtype = dtype,
                                 .rank = 2,
                                 .shape = {shape.n, shape.k},
                                 .bytes = stored,
                                 .uses = static_cast<std::uint8_t>(engine::contract::WeightUse::kMatrix)})
                 .value();
  const std::uint64_t x_bytes = std::uint64_t{rows} * shape.k * 4, y_bytes = std::uint64_t{rows} * shape.n * 4;
  std::byte* x = backend.allocate(x_bytes, MemoryPurpose::kWorkspace).value();
  std::byte* y = backend.allocate(y_bytes, MemoryPurpose::kWorkspace).value();
  adapters::Carver size;
  size.take_narrowed(rows, shape.k);
  std::byte* scratch = backend.allocate(size.used_bytes(), MemoryPurpose::kWorkspace).value();
  adapters::Carver carver({scratch, size.used_bytes()});
  const adapters::ProjectionInput input{.x = reinterpret_cast<const float*>(x),
                                        .x_stride = shape.k,
                                        .rows = rows,
                                        .narrowed = carver.take_narrowed(rows, shape.k),
                                        .y_stride = shape.n};
  const auto& stream = *static_cast<const engine::compute::cuda::CudaStream*>(backend.stream().ptr);
  std::size_t next = 0;
  const double seconds = time(backend, [&] {
    const auto* weight = static_cast<const engine::compute::cuda::CudaWeight*>(weights[next++ % weights.size()]);
    adapters::project(stream, input, std::array{adapters::Projection{weight, reinterpret_cast<float*>(y)}});
  });
  const double bandwidth = static_cast<double>(stored.size()) / seconds / 1e9;
  fmt::print("{:7} {:5} {:6} x {:5} rows {:4}: {:9.1f} us {:8.1f} GB/s ({:5.1f} % of copy) {:9.1f} GFLOP/s\n", info.name,
             shape.name, shape.n, shape.k, rows, seconds * 1e6, bandwidth, 100 * bandwidth / limit,
             2.0 * shape.n * shape.k * rows / seconds / 1e9);
  for (std::byte* memory : {x, y, scratch}) backend.release(memory);
  for (void* weight : weights) backend.release_weight(weight);
}

// A draw from each of some rows, from the copy that gives them back their values to the ids on the host.
void measure_draws(CudaBackend& backend, const char* name, float spread, std::uint32_t rows, float temperature) {
  constexpr std::uint32_t kWidth = 152'064;
  const engine::contract::DrawLimits limits{.rows_max = rows, .width = kWidth, .edits_max = 1};
  const auto drawer = backend.make_drawer(limits).value();
  const std::uint64_t bytes = std::uint64_t{rows} * kWidth * sizeof(float);
  std::vector<float> values(std::size_t{rows} * kWidth);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1'664'525u + 1'013'904'223u;
    value = -spread * static_cast<float>(state >> 8) * 0x1p-24f;
  }
  std::byte* kept = backend.allocate(bytes, MemoryPurpose::kWorkspace).value();
  std::byte* drawn_from = backend.allocate(bytes, MemoryPurpose::kWorkspace).value();
  backend.copy_to_device(kept, std::as_bytes(std::span(values)));
  std::vector<engine::contract::RowDraw> draws(rows);
  for (std::uint32_t i = 0; i < rows; ++i) draws[i] = {.row = i, .temperature = temperature, .top_p = 0.95f, .uniform = 0.5f};
  const double seconds = time(backend, [&] {
    backend.copy_on_device(drawn_from, kept, bytes);
    drawer->draw(reinterpret_cast<float*>(drawn_from), draws);
    if (!drawer->wait()) return;
  });
  fmt::print("draw  {:8} {} rows {:4}: {:9.1f} us\n", name, kWidth, rows, seconds * 1e6);
  backend.release(kept);
  backend.release(drawn_from);
}

// Weights of an 8B model from memory, as a load has them from the page cache: read, copied, packed. GB/s.
void measure_load(CudaBackend& backend, DType dtype) {
  constexpr std::uint32_t kRows = 14336, kColumns = 4096;
  const auto info = engine::contract::dtype_info(dtype);
  const std::vector<std::byte> stored(kRows * engine::contract::row_bytes(dtype, kColumns));
  const std::vector<engine::contract::StoredTensor> tensors(
      (std::size_t{16} << 30) / (std::size_t{kRows} * kColumns * 2),
      {.dtype = dtype,
       .rank = 2,
       .shape = {kRows, kColumns},
       .bytes = stored,
       .uses = static_cast<std::uint8_t>(engine::contract::WeightUse::kMatrix)});
  std::vector<void*> weights(tensors.size());
  const auto begin = std::chrono::steady_clock::now();
  const auto loaded = backend.upload_weights(tensors, weights, {});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!loaded) {
    fmt::print("load {:5}: {}\n", info.name, loaded.error().message);
    return;
  }
  const double bytes = static_cast<double>(stored.size() * tensors.size());
  fmt::print("load {:5}: {:.1f} GB in {:.3f} s, {:.1f} GB/s\n", info.name, bytes / 1e9, seconds, bytes / seconds / 1e9);
  for (void* weight : weights) backend.release_weight(weight);
}

}  // namespace

int main() {
  auto made = engine::compute::cuda::make_cuda_backend({.device = 0});
  if (!made) {
    fmt::print("nothing measured: {}\n", made.error().message);
    return 0;
  }
  auto& backend = static_cast<CudaBackend&>(**made);
  const double limit = copy_bandwidth(backend);
  fmt::print("{}: copy on the device {:.1f} GB/s\n", backend.device_class(), limit);
  for (const DType dtype : {DType::kBF16, DType::kF8_E4M3, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) measure_load(backend, dtype);
  for (const DType dtype : {DType::kBF16, DType::kF8_E4M3, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K})
    for (const Case& shape : kCases)
      for (const std::uint32_t rows : {1u, 8u, 64u, 512u, 2048u}) measure(backend, dtype, shape, rows, limit);
  // Every entry a candidate, about a sixth of them, and the largest.
  for (const std::uint32_t rows : {1u, 64u}) {
    measure_draws(backend, "flat", 3, rows, 1.0f);
    measure_draws(backend, "spread", 100, rows, 1.0f);
    measure_draws(backend, "largest", 100, rows, 0.0f);
  }
  if (const auto healthy = backend.synchronize(); !healthy) {
    fmt::print("{}\n", healthy.error().message);
    return 1;
  }
  return 0;
}
