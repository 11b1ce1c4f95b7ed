// Matrix products and attention by themselves on a real GPU, as wide and as long as large models have them: every shape of a kernel
// against the others bit by bit, and against the emulated device. Without a GPU every test says so and is skipped.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "cuda_support.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/backend.h"

namespace llorch::cuda_test {
namespace {

namespace adapters = engine::compute::cuda::adapters;
namespace kernels = engine::compute::cuda::kernels;

using engine::compute::cpu::testing::Random;
using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::CudaStream;
using engine::compute::cuda::CudaWeight;
using engine::plan::DeviceBuffer;
using engine::plan::DType;
using engine::plan::MemoryPurpose;
using golden::same_bits;

class GpuKernels : public testing::Test {
 protected:
  void SetUp() override {
    auto made = engine::compute::cuda::emulation::make_gpu_backend(1ULL << 30);
    if (made) {
      gpu_ = *std::move(made);
      return;
    }
    ASSERT_EQ(std::getenv("LLORCH_REQUIRE_GPU"), nullptr) << made.error().message;
    GTEST_SKIP() << made.error().message;
  }
  CudaBackend& gpu() const { return static_cast<CudaBackend&>(*gpu_); }
  CudaBackend& emulated() const { return *emulated_; }

 private:
  std::unique_ptr<engine::plan::Backend> gpu_;
  std::unique_ptr<CudaBackend> emulated_ = engine::compute::cuda::emulation::make_backend({});
};

const CudaStream& stream_of(CudaBackend& backend) { return *static_cast<const CudaStream*>(backend.stream().ptr); }
DeviceBuffer buffer(CudaBackend& backend, std::uint64_t bytes) {
  return DeviceBuffer::allocate(backend, bytes, MemoryPurpose::kWorkspace).value();
}
template <class T>
DeviceBuffer copied(CudaBackend& backend, const std::vector<T>& values) {
  DeviceBuffer memory = buffer(backend, values.size() * sizeof(T));
  backend.copy_to_device(memory.data(), std::as_bytes(std::span(values)));
  return memory;
}
template <class T>
T* at(const DeviceBuffer& memory) {
  return reinterpret_cast<T*>(memory.data());
}
std::vector<float> read(CudaBackend& backend, const DeviceBuffer& memory) {
  std::vector<float> values(memory.size_bytes() / sizeof(float));
  backend.copy_to_host(std::as_writable_bytes(std::span(values)), memory.data());
  return values;
}

struct Weights {
  DType dtype;
  std::uint32_t n, k;
  std::vector<std::byte> stored;
};
Weights random_weights(Random& random, DType dtype, std::uint32_t n, std::uint32_t k) {
  Weights weights{.dtype = dtype, .n = n, .k = k, .stored = {}};
  if (engine::plan::is_quantized(dtype) || dtype == DType::kF8_E4M3) {
    weights.stored = engine::compute::cpu::testing::random_matrix(random, {.dtype = dtype, .rows = n, .cols = k});
    return weights;
  }
  for (std::uint64_t i = 0; i < std::uint64_t{n} * k; ++i) {
    const float value = random.normal() * 0.05f;
    const std::uint32_t bits = kernels::bits_of(value);
    const auto put = [&](auto stored) {
      const auto bytes = std::as_bytes(std::span(&stored, 1));
      weights.stored.insert(weights.stored.end(), bytes.begin(), bytes.end());
    };
    if (dtype == DType::kF32) put(bits);
    if (dtype == DType::kF16) put(engine::compute::float_to_half(value));
    if (dtype == DType::kBF16) put(static_cast<std::uint16_t>(bits >> 16));
  }
  return weights;
}

// Of the first `rows` rows of x; which kernel, their number decides.
std::vector<float> product(CudaBackend& backend, const Weights& weights, std::span<const float> x, std::uint32_t rows) {
  void* const weight = backend
                           .upload_weight({.dtype = weights.dtype,
                                           .rank = 2,
                                           .shape = {weights.n, weights.k},
                                           .bytes = weights.stored,
                                           .uses = static_cast<std::uint8_t>(engine::plan::WeightUse::kMatrix)})
                           .value();
  std::vector<float> y;
  {
    const DeviceBuffer in =
        copied(backend, std::vector<float>(x.begin(), x.begin() + std::ptrdiff_t{rows} * weights.k));
    const DeviceBuffer out = buffer(backend, std::uint64_t{rows} * weights.n * sizeof(float));
    adapters::Arena size;
    size.take_narrowed(rows, weights.k);
    const DeviceBuffer scratch = buffer(backend, size.used_bytes());
    adapters::Arena arena({scratch.data(), scratch.size_bytes()});
    adapters::project(stream_of(backend),
                      {.x = at<const float>(in),
                       .x_stride = weights.k,
                       .rows = rows,
                       .narrowed = arena.take_narrowed(rows, weights.k),
                       .y_stride = weights.n},
                      std::array{adapters::Projection{static_cast<const CudaWeight*>(weight), at<float>(out)}});
    y = read(backend, out);
  }
  backend.release_weight(weight);
  return y;
}

// The rings of stages are gone through many times. One and eight rows stream, nine and 64 are a batch, 65 a prefill.
TEST_F(GpuKernels, MatricesOfLongRowsHaveOneSetOfBits) {
  Random random(31);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 65, kOutputs = 40;
  for (const std::uint32_t k : {4096u, 14336u}) {
    const auto x = random.normals(std::size_t{kRows} * k);
    for (const DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E4M3, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
      SCOPED_TRACE(testing::Message() << engine::plan::dtype_info(dtype).name << " x " << k);
      const Weights weights = random_weights(random, dtype, kOutputs, k);
      const std::vector<float> all = product(gpu(), weights, x, kRows);
      for (const std::uint32_t rows : {1u, 8u, 9u, 64u})
        EXPECT_TRUE(same_bits(product(gpu(), weights, x, rows), std::span(all).first(std::size_t{rows} * kOutputs)))
            << rows;
      const std::vector<float> expected = product(emulated(), weights, x, kRows);
      if (engine::plan::is_quantized(dtype) || dtype == DType::kF32) {
        EXPECT_TRUE(same_bits(all, expected));
      } else {
        EXPECT_LE(golden::relative_error(all, expected), 2e-3);  // a device rounds inside of a step as it likes
      }
    }
  }
}

// One row of a sequence of `positions`, over an F16 cache of `page`, again and again; in parts where `split`.
std::vector<float> attended(CudaBackend& backend, std::uint32_t positions, const std::vector<std::uint16_t>& page,
                            const std::vector<float>& q, const adapters::AttentionShape& shape, bool split) {
  const std::uint32_t pages_count = adapters::blocks_of(positions, kernels::kPage);
  const std::uint64_t page_bytes = page.size() * sizeof(page[0]);
  const DeviceBuffer cache = buffer(backend, pages_count * page_bytes);
  std::vector<std::byte*> pages;
  for (std::uint32_t i = 0; i < pages_count; ++i) {
    pages.push_back(cache.data() + i * page_bytes);
    // No two pages are the same.
    std::vector<std::uint16_t> turned(page.begin() + i, page.end());
    turned.insert(turned.end(), page.begin(), page.begin() + i);
    backend.copy_to_device(pages.back(), std::as_bytes(std::span(turned)));
  }
  const DeviceBuffer pages_at = copied(backend, pages), in = copied(backend, q);
  const DeviceBuffer sequence = copied(backend, std::vector<std::uint32_t>{0}),
                     position = copied(backend, std::vector{positions - 1});
  const DeviceBuffer out = buffer(backend, std::uint64_t{shape.heads} * shape.d_v * sizeof(float));
  const DeviceBuffer parts = buffer(backend, shape.parts_bytes_wanted(1, positions));
  adapters::attend<kernels::PagedKeys<DType::kF16>>(stream_of(backend),
                                                    {.q = at<const float>(in),
                                                     .q_stride = q.size(),
                                                     .out = at<float>(out),
                                                     .heads = shape.heads,
                                                     .kv_heads = shape.kv_heads,
                                                     .d_qk = shape.d_v,
                                                     .d_v = shape.d_v,
                                                     .scale = 1.0f / std::sqrt(static_cast<float>(shape.d_v)),
                                                     .from = {.pages = at<std::byte*>(pages_at),
                                                              .pages_stride = pages_count,
                                                              .sequence_of_row = at<std::uint32_t>(sequence),
                                                              .positions = at<std::uint32_t>(position)}},
                                                    1, positions, {parts.data(), split ? parts.size_bytes() : 0});
  return read(backend, out);
}

TEST_F(GpuKernels, AttentionHasTheBitsOfItsParts) {
  Random random(32);
  SCOPED_TRACE(random.note());
  const adapters::AttentionShape shape{.heads = 8, .kv_heads = 2, .d_v = 64};
  const engine::plan::KvLayout layout{
      .dtype = DType::kF16, .kv_heads = shape.kv_heads, .d_qk = shape.d_v, .d_v = shape.d_v};
  std::vector<std::uint16_t> page(layout.page_bytes() / 2);
  for (std::uint16_t& value : page) value = engine::compute::float_to_half(random.normal());
  const auto q = random.normals(std::size_t{shape.heads} * shape.d_v);
  for (const std::uint32_t positions : {300u, 1024u, 1025u, 2047u, 4096u}) {
    const auto whole = attended(gpu(), positions, page, q, shape, false);
    EXPECT_TRUE(same_bits(attended(gpu(), positions, page, q, shape, true), whole)) << positions;
    EXPECT_TRUE(same_bits(whole, attended(emulated(), positions, page, q, shape, false))) << positions;
  }
}

}  // namespace
}  // namespace llorch::cuda_test
