#include "engine/compute/cpu/host/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace llorch::engine::compute::cpu::host {
namespace {

TEST(ThreadPool, RangesCoverEveryUnitOnceInOrder) {
  for (std::size_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    for (std::size_t count = 0; count < 40; ++count) {
      for (std::size_t grain : {0u, 1u, 7u}) {
        std::vector<int> seen(count);  // plain ints: overlapping ranges are a race the thread sanitizer reports
        std::vector<Range> ranges(threads);
        pool.run(count, grain, [&](Range range, std::size_t thread) {
          ranges[thread] = range;
          for (std::size_t i = range.begin; i < range.end; ++i) ++seen[i];
        });
        EXPECT_EQ(seen, std::vector<int>(count, 1)) << threads << " threads, grain " << grain;
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
