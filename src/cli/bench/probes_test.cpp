#include "cli/bench/probes.h"

#include <gtest/gtest.h>

#include "engine/compute/cpu/backend.h"

namespace llorch::cli::bench {
namespace {

TEST(Probes, FindALimit) {
  const ReadProbe reads(1 << 22);
  EXPECT_EQ(reads.bytes(), 1U << 22);
  for (const std::uint32_t threads : {1U, 2U, 3U}) EXPECT_GT(reads.bytes_per_s(threads), 0);
  const auto isa = engine::compute::cpu::processor_isa();
  ASSERT_TRUE(isa) << isa.error().message;
  EXPECT_GT(multiply_adds_per_s(*isa, Product::kInteger, 1), 0);
  EXPECT_GT(multiply_adds_per_s(*isa, Product::kFloat, 2), 0);
  EXPECT_GT(multiply_adds_per_s("avx2", Product::kInteger, 2), multiply_adds_per_s("avx2", Product::kFloat, 2) / 8)
      << "as many bytes as floats, give or take what else the machine does";
  EXPECT_GE(read_probe_bytes(), std::uint64_t{16} << 20);
  EXPECT_GT(memory_available_bytes(), std::uint64_t{1} << 20);
}

TEST(Probes, SeeWhoRunsOnTheCore) {
  const auto mean = mean_core_share();
  ASSERT_TRUE(mean);
  for (const double share : {*mean, core_share()}) {
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
  }
}

TEST(Probes, ReadWhatProcessorsDid) {
  EXPECT_EQ(busy_ticks("cpu  10 1 5 9000 70 2 3 4 0 0\ncpu0 1 1 1 1\n"), 25U) << "not idle, not waiting for a disk";
  EXPECT_EQ(busy_ticks("cpu  10 1 5 9000 70 2 3 4"), 25U);
  EXPECT_EQ(busy_ticks("cpu  10 1 5\n"), std::nullopt) << "another system's";
  EXPECT_EQ(busy_ticks("cpu0 10 1 5 9000 70 2 3 4 0 0\n"), std::nullopt);
  EXPECT_EQ(busy_ticks(""), std::nullopt);
  const OthersMeter others;
  const auto busy = others.processors_busy();
  EXPECT_GE(busy.value_or(0), 0);
}

}  // namespace
}  // namespace llorch::cli::bench
