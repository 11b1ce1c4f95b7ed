#include "engine/compute/cpu/host/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace llorch::engine::compute::cpu::host {
namespace {

TEST(ThreadPool, RangesCoverEveryUnitOnce) {
  for (std::size_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    for (std::size_t count = 0; count < 40; ++count) {
      for (std::size_t grain : {0u, 1u, 7u}) {
        std::vector<int> seen(count);  // plain ints: overlapping ranges are a race the thread sanitizer reports
        pool.run(count, grain, [&](Range range, std::size_t thread) {
          EXPECT_LT(thread, threads);
          for (std::size_t i = range.begin; i < range.end; ++i) ++seen[i];
        });
        EXPECT_EQ(seen, std::vector<int>(count, 1)) << threads << " threads, grain " << grain;
      }
    }
  }
}

// Every range is a share of what the ranges before it left, in whole grains: the last are one grain long.
TEST(ThreadPool, RangesShrinkTowardsTheEnd) {
  for (const std::size_t threads : {2u, 3u, 8u}) {
    ThreadPool pool(threads);
    for (const std::size_t grain : {1u, 3u}) {
      for (const std::size_t count : {2u, 7u, 64u, 4099u, 70'000u}) {
        std::vector<int> seen(count);
        std::vector<std::size_t> lengths(count);  // where a range begins; plain, as above
        pool.run(count, grain, [&](Range range, std::size_t) {
          lengths[range.begin] = range.end - range.begin;
          for (std::size_t i = range.begin; i < range.end; ++i) ++seen[i];
        });
        ASSERT_EQ(seen, std::vector<int>(count, 1)) << threads << " threads, grain " << grain;
        for (std::size_t begin = 0; begin < count; begin += lengths[begin]) {
          const std::size_t grains_left = (count - begin + grain - 1) / grain;
          const std::size_t share = std::max<std::size_t>(1, grains_left / (ThreadPool::kSharesPerThread * threads));
          const std::size_t expected = count <= grain ? count : std::min(count - begin, share * grain);
          ASSERT_EQ(lengths[begin], expected)
              << threads << " threads, grain " << grain << ", " << begin << " of " << count;
        }
      }
    }
  }
}

TEST(ThreadPool, ARegionSeesWhatTheOneBeforeWrote) {
  ThreadPool pool(4);
  std::vector<std::size_t> values(64);
  for (std::size_t round = 0; round < 2000; ++round)
    pool.run(values.size(), 1, [&](Range range, std::size_t) {
      for (std::size_t i = range.begin; i < range.end; ++i) values[i] += 1 + values[i] % 3;
    });
  for (std::size_t value : values) EXPECT_EQ(value, values[0]);
}

// Threads that come late take nothing of a region that is over: many more threads than cores, regions of almost no work.
TEST(ThreadPool, LateThreadsTakeNothingTwice) {
  ThreadPool pool(16);
  std::vector<std::size_t> owners(16);
  for (std::size_t round = 1; round <= 5000; ++round) {
    const std::size_t count =
        round % 2 == 0 ? 2 + round % 15 : 32 * (1 + round % 5);  // ranges of one unit, and of several
    std::vector<std::size_t> done(count);  // plain: a range run twice or after the end is a race or a wrong sum
    pool.run(count, 1, [&](Range range, std::size_t thread) {
      owners[thread] = round;
      for (std::size_t i = range.begin; i < range.end; ++i) done[i] += round;
    });
    ASSERT_EQ(done, std::vector<std::size_t>(count, round));
  }
}

// A thread that does not get a core in time holds up nobody: its parts are done by those that run. Here the worker sleeps
// when a region of almost no work begins.
TEST(ThreadPool, ASleeperHoldsUpNobody) {
  ThreadPool pool(2);
  std::size_t alone = 0;
  for (int round = 0; round < 100; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::array<std::size_t, 2> parts{};
    pool.run(2, 1, [&](Range, std::size_t thread) { ++parts[thread]; });
    ASSERT_EQ(parts[0] + parts[1], 2u);
    alone += parts[0] == 2;
  }
  EXPECT_GT(alone, 0u);
}

TEST(ThreadPool, AGrainKeepsSmallWorkOnTheCaller) {
  ThreadPool pool(4);
  std::size_t calls = 0;
  pool.run(100, 100, [&](Range range, std::size_t thread) {
    EXPECT_EQ(thread, 0u);
    EXPECT_EQ(range.end, 100u);
    ++calls;
  });
  EXPECT_EQ(calls, 1u);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::host
