// A real GPU against the emulated one, and bit by bit against itself. Without a GPU every test says so and is skipped;
// LLORCH_REQUIRE_GPU=1 makes that a failure.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda_support.h"
#include "draw_support.h"
#include "engine/compute/cuda/backend.h"

namespace llorch::cuda_test {
namespace {

namespace kernels = engine::compute::cuda::kernels;

using engine::compute::cuda::CudaBackend;
using engine::compute::cuda::LaunchCounters;
using engine::compute::cuda::emulation::make_backend;
using engine::compute::cuda::emulation::make_gpu_backend;
using engine::plan::DType;
using golden::same_bits;

// Some memory is left to others, so that two engines fit beside each other.
constexpr std::uint64_t kBudgetBytes = 4ULL << 30;

class Gpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = make_gpu_backend(kBudgetBytes);
    if (made) {
      backend_ = *std::move(made);
      return;
    }
    ASSERT_EQ(made.error().code, base::ErrorCode::kGpuUnavailable) << made.error().message;
    ASSERT_EQ(std::getenv("LLORCH_REQUIRE_GPU"), nullptr) << made.error().message;
    GTEST_SKIP() << made.error().message;
  }
  // Also whether F16 or BF16 weights were multiplied, whose sums a device rounds in its own way.
  std::vector<float> emulated(const RunOptions& options, bool& narrowed) const {
    const auto emulation = make_backend({});
    LaunchCounters counters;
    emulation->count_launches(&counters);
    std::vector<float> logits = logits_of(model_, options, *emulation);
    narrowed = false;
    const auto look = [&]<class... Kernels>() {
      ((narrowed = narrowed || counters.per_kernel[static_cast<std::size_t>(kernels::kernel_id<Kernels>())] != 0), ...);
    };
    look.template operator()<
        kernels::HalfMatmul<DType::kF16, kernels::StreamShape>, kernels::HalfMatmul<DType::kF16, kernels::BatchShape>,
        kernels::HalfMatmul<DType::kF16, kernels::PrefillShape>,
        kernels::HalfMatmul<DType::kBF16, kernels::StreamShape>, kernels::HalfMatmul<DType::kBF16, kernels::BatchShape>,
        kernels::HalfMatmul<DType::kBF16, kernels::PrefillShape>,
        kernels::HalfMatmul<DType::kF8_E4M3, kernels::StreamShape>,
        kernels::HalfMatmul<DType::kF8_E4M3, kernels::BatchShape>,
        kernels::HalfMatmul<DType::kF8_E4M3, kernels::PrefillShape>>();
    return logits;
  }

  Model model_ = read_model(GetParam());
  std::unique_ptr<engine::plan::Backend> backend_;
};

// M0-W-1700#with: bit by bit where every sum has a written order; within docs/internals/numerics.md where tensor cores add floats.
TEST_P(Gpu, AgreesWithTheEmulationAndItself) {
  for (const DType kv_dtype : {DType::kF32, DType::kF16}) {
    const std::vector<float> logits = logits_of(model_, {.kv_dtype = kv_dtype}, *backend_);
    bool narrowed = false;
    const std::vector<float> expected = emulated({.kv_dtype = kv_dtype}, narrowed);
    EXPECT_LE(golden::relative_error(logits, expected), narrowed ? 2e-3 : 0.0);
    EXPECT_TRUE(narrowed || same_bits(logits, expected));
    for (const std::uint32_t chunk : {1U, 7U, 64U})
      EXPECT_TRUE(same_bits(logits_of(model_, {.kv_dtype = kv_dtype, .chunk = chunk}, *backend_), logits)) << chunk;
    // Steps of one row come again: the same kernel by kernel, without graphs.
    auto& device = static_cast<CudaBackend&>(*backend_);
    EXPECT_GT(device.graphs().counters().replayed, 0U);
    device.limit_graphs({.steps_max = 0});
    EXPECT_TRUE(same_bits(logits_of(model_, {.kv_dtype = kv_dtype, .chunk = 1}, *backend_), logits))
        << "without graphs";
    device.limit_graphs({});
  }
  EXPECT_TRUE(backend_->synchronize());
}

TEST_P(Gpu, AnyBatchHasOneSetOfBits) {
  expect_one_set_of_bits_in_any_batch(model_, *backend_);
  EXPECT_TRUE(backend_->check_residency());
}

INSTANTIATE_TEST_SUITE_P(Cuda, Gpu, testing::ValuesIn(model_names()),
                         [](const testing::TestParamInfo<std::string>& test) { return test.param; });

// Draws have a written order throughout: no tolerance.
class GpuDraws : public testing::Test {
 protected:
  void check(std::uint32_t width) {
    auto made = make_gpu_backend(kBudgetBytes);
    ASSERT_TRUE(made || std::getenv("LLORCH_REQUIRE_GPU") == nullptr) << made.error().message;
    if (!made) GTEST_SKIP() << made.error().message;
    const std::uint32_t seed = 40 + width;
    std::mt19937 random(seed);
    DrawMachine machine(*std::move(made), 64, width);
    for (const std::size_t batch : {1U, 9U, 64U}) {
      std::vector<DrawRequest> requests;
      for (std::size_t i = 0; i < batch; ++i) requests.push_back(random_draw(random, width));
      const auto drawn = machine.draw(requests);
      for (std::size_t i = 0; i < batch; ++i) {
        SCOPED_TRACE(testing::Message() << "width " << width << " seed " << seed << " batch " << batch << " draw "
                                        << i);
        expect_host(requests[i], drawn[i]);
      }
    }
  }
};

TEST_F(GpuDraws, AreTheHosts) {
  for (const std::uint32_t width : {1U, 33U, 2049U, 6001U}) check(width);
}
TEST_F(GpuDraws, AreTheHostsForWholeVocabularies) {
  for (const std::uint32_t width : {32'000U, 152'064U}) check(width);
}

TEST(GpuMemory, AFullDeviceRefusesAndGoesOn) {
  auto made = make_gpu_backend(1ULL << 50);
  ASSERT_TRUE(made || std::getenv("LLORCH_REQUIRE_GPU") == nullptr) << made.error().message;
  if (!made) GTEST_SKIP() << made.error().message;
  const auto refused = (*made)->allocate(1ULL << 45, engine::plan::MemoryPurpose::kWeights);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
  std::byte* ptr = (*made)->allocate(1 << 20, engine::plan::MemoryPurpose::kState).value();
  EXPECT_TRUE((*made)->synchronize());
  EXPECT_TRUE(static_cast<CudaBackend&>(**made).check_residency());
  (*made)->release(ptr);
}

}  // namespace
}  // namespace llorch::cuda_test
