#include "engine/inference/parallel/rank_threads.h"

#include <gtest/gtest.h>

#include <array>

#include "base/testing/allocation_counter.h"

namespace llorch::engine::inference::parallel {
namespace {

TEST(RankThreads, EveryRankRunsOnceOnAThreadOfItsOwn) {
  for (std::uint32_t ranks : {1U, 2U, 5U}) {
    RankThreads threads(ranks);
    ASSERT_EQ(threads.ranks(), ranks);
    std::array<std::thread::id, 5> first{};
    for (int round = 0; round < 200; ++round) {
      std::array<std::thread::id, 5> ids{};  // written by the ranks, read here: a race would show under tsan
      std::array<int, 5> runs{};
      threads.run([&](std::uint32_t rank) {
        ids[rank] = std::this_thread::get_id();
        ++runs[rank];
      });
      for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(runs[rank], 1);
      EXPECT_EQ(ids[0], std::this_thread::get_id());
      for (std::uint32_t rank = 1; rank < ranks; ++rank)
        for (std::uint32_t other = 0; other < rank; ++other) EXPECT_NE(ids[rank], ids[other]);
      if (round == 0) first = ids;
      EXPECT_EQ(ids, first);
    }
  }
}

TEST(RankThreads, ARunAllocatesNothing) {
  RankThreads threads(3);
  std::array<int, 3> runs{};
  threads.run([&](std::uint32_t rank) { ++runs[rank]; });
  const auto before = base::testing::allocations_count();
  threads.run([&](std::uint32_t rank) { ++runs[rank]; });
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_EQ(runs, (std::array<int, 3>{2, 2, 2}));
}

}  // namespace
}  // namespace llorch::engine::inference::parallel
