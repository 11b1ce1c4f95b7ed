// The emulated machine shows what a device would: it is worth as much as the mistakes it lets pass are few.
#include "engine/compute/cuda/emulation/driver.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/compute/cuda/stream.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

// y[i] = a[i] + b[i], where y is a, one element further: a sum that leans on the order of threads and blocks.
std::vector<float> chained(const EmulationOptions& options, std::uint32_t count) {
  const auto driver = make_driver(options);
  std::vector<float> a(count + 1, 1.0f);
  const std::vector<float> b(count, 1.0f);
  CudaStream(*driver).launch<kernels::ResidualAdd>(
      {(count + kernels::ResidualAdd::kThreads - 1) / kernels::ResidualAdd::kThreads},
      {.a = a.data(), .b = b.data(), .y = a.data() + 1, .count = count});
  return a;
}

TEST(Emulation, ShowsWhatLeansOnAnOrder) {
  constexpr std::uint32_t kCount = 8 * kernels::ResidualAdd::kThreads;
  std::vector<float> expected(kCount + 1);
  std::iota(expected.begin(), expected.end(), 1.0f);
  const std::vector<float> backwards = chained({.backwards = true}, kCount), mixed = chained({.seed = 1}, kCount);
  EXPECT_EQ(backwards, [&] {
    std::vector<float> twos(kCount + 1, 2.0f);
    twos[0] = 1.0f;
    return twos;
  }());
  EXPECT_NE(mixed, expected);
  EXPECT_NE(mixed, backwards);
  EXPECT_NE(mixed, chained({.seed = 2}, kCount));
  EXPECT_EQ(mixed, chained({.seed = 1}, kCount)) << "what a seed showed can be shown again";
}

// Every thread of every block runs once, whatever the order and on however many host threads.
TEST(Emulation, RunsEveryThreadOnce) {
  constexpr std::uint32_t kCount = 37 * kernels::ScaleSoftcap::kThreads + 5;
  for (const std::uint32_t host_threads : {1u, 2u, 5u})
    for (const std::uint32_t seed : {0u, 1u, 77u}) {
      const auto driver = make_driver({.seed = seed, .host_threads = host_threads});
      std::vector<float> y(kCount);
      std::iota(y.begin(), y.end(), 0.0f);
      CudaStream(*driver).launch<kernels::ScaleSoftcap>({38}, {.y = y.data(), .count = kCount, .scale = 2.0f});
      for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 2.0f * static_cast<float>(i));
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasApart = false;
#else
constexpr bool kHasApart = true;
#endif

// A thread of a block gets as far as the next barrier before another one begins.
TEST(Emulation, ThreadsApartRunToTheirBarriers) {
  if (!kHasApart) GTEST_SKIP() << "sanitizers do not know of these stacks";
  constexpr std::uint32_t kCount = 3 * kernels::ScaleSoftcap::kThreads + 5;
  const auto driver = make_driver({.apart = true});
  std::vector<float> y(kCount);
  std::iota(y.begin(), y.end(), 0.0f);
  CudaStream(*driver).launch<kernels::ScaleSoftcap>({4}, {.y = y.data(), .count = kCount, .scale = 2.0f});
  for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 2.0f * static_cast<float>(i));
  // Sums over lanes, what a phase leaves in shared memory for the next one: the bits of a block run phase by phase.
  std::vector<float> x(5000), weight(x.size(), 0.5f), got(x.size()), expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i + 1);
  kernels::NormArgs args{.x = x.data(),
                         .weight = weight.data(),
                         .y = got.data(),
                         .x_stride = x.size(),
                         .y_stride = x.size(),
                         .width = static_cast<std::uint32_t>(x.size()),
                         .eps = 1e-5f};
  CudaStream(*driver).launch<kernels::LayerNorm>({1, 1}, args);
  args.y = expected.data();
  CudaStream(*make_driver({})).launch<kernels::LayerNorm>({1, 1}, args);
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
