#include "engine/inference/parallel/host_collective.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>

#include "base/testing/allocation_counter.h"
#include "base/testing/uneven_number.h"
#include "engine/inference/parallel/rank_threads.h"
#include "engine/inference/testing/recording_backend.h"

namespace llorch::engine::inference::parallel {
namespace {

using base::testing::uneven_number;
using plan::Status;
using testing::RecordingBackend;

constexpr std::uint64_t kValuesMax = 1000;

// Ranks with a buffer of values each, on devices without arithmetic.
struct Ranks {
  explicit Ranks(std::uint32_t count) : threads(count) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      backends.push_back(std::make_unique<RecordingBackend>());
      pointers.push_back(backends.back().get());
      buffers.push_back(
          plan::DeviceBuffer::allocate(*backends.back(), kValuesMax * sizeof(float), plan::MemoryPurpose::kActivations)
              .value());
    }
    collective = std::make_unique<HostCollective>(pointers);
    EXPECT_TRUE(collective->reserve(kValuesMax));
    EXPECT_TRUE(collective->begin());
  }
  float* values(std::uint32_t rank) { return reinterpret_cast<float*>(buffers[rank].data()); }

  RankThreads threads;
  std::vector<std::unique_ptr<RecordingBackend>> backends;
  std::vector<plan::Backend*> pointers;
  std::vector<plan::DeviceBuffer> buffers;
  std::unique_ptr<HostCollective> collective;
};

// Magnitudes differ so much that another order would have other bits; who comes when is different every time.
TEST(HostCollective, AddsInRankOrderWhoeverComesFirst) {
  for (std::uint32_t ranks : {2U, 3U, 4U}) {
    Ranks group(ranks);
    for (std::uint32_t round = 0; round < 20; ++round) {
      const std::uint64_t count = 1 + round * 37;
      group.threads.run([&](std::uint32_t rank) {
        for (std::uint64_t i = 0; i < count; ++i) group.values(rank)[i] = uneven_number(rank, i);
        std::this_thread::sleep_for(std::chrono::microseconds((rank + round) % ranks * 100));
        EXPECT_TRUE(group.collective->sum(rank, group.values(rank), count).is_ok());
      });
      std::uint64_t reordered = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        float expected = uneven_number(0, i), backwards = uneven_number(ranks - 1, i);
        for (std::uint32_t rank = 1; rank < ranks; ++rank) {
          expected += uneven_number(rank, i);
          backwards += uneven_number(ranks - 1 - rank, i);
        }
        reordered += expected != backwards ? 1 : 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(std::memcmp(&group.values(rank)[i], &expected, sizeof expected), 0) << rank << " " << i;
      }
      if (ranks > 2 && count > 100) {
        EXPECT_GT(reordered, 0U);  // else this test could not fail
      }
    }
  }
}

// Rows whose parts the ranks have made are whole on every rank, however little of them there is room for at a time.
TEST(HostCollective, JoinsRows) {
  for (const std::uint32_t ranks : {2U, 3U}) {
    Ranks group(ranks);
    for (const std::uint64_t room : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{16}, std::uint64_t{500}}) {
      ASSERT_TRUE(group.collective->reserve(room));
      constexpr std::uint64_t kRows = 5, kWidth = 11;
      std::vector<std::vector<float>> whole(ranks, std::vector<float>(kRows * kWidth * ranks));
      group.threads.run([&](std::uint32_t rank) {
        for (std::uint64_t i = 0; i < kRows * kWidth; ++i) group.values(rank)[i] = static_cast<float>(1000 * rank + i);
        const plan::RowParts rows{
            .part = group.values(rank), .whole = whole[rank].data(), .rows = kRows, .width = kWidth};
        EXPECT_TRUE(group.collective->join(rank, rows).is_ok());
        group.values(rank)[0] = -1;  // nobody reads it any more
      });
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        for (std::uint64_t i = 0; i < whole[rank].size(); ++i) {
          const std::uint64_t row = i / (kWidth * ranks), column = i % (kWidth * ranks);
          EXPECT_EQ(whole[rank][i], static_cast<float>(1000 * (column / kWidth) + row * kWidth + column % kWidth));
        }
    }
  }
}

TEST(HostCollective, OneSumAfterTheOther) {
  Ranks group(2);
  group.threads.run([&](std::uint32_t rank) {
    for (std::uint64_t i = 0; i < kValuesMax; ++i) group.values(rank)[i] = 1;
    for (int step = 0; step < 20; ++step)
      EXPECT_TRUE(group.collective->sum(rank, group.values(rank), kValuesMax).is_ok());
  });
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (std::uint64_t i = 0; i < kValuesMax; ++i) EXPECT_EQ(group.values(rank)[i], 1048576.0F);
}

TEST(HostCollective, NobodyWaitsForARankThatWillNotCome) {
  Ranks group(3);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(group.collective->begin());
    group.threads.run([&](std::uint32_t rank) {
      EXPECT_TRUE(group.collective->sum(rank, group.values(rank), 5).is_ok());
      if (rank == 1) {
        group.collective->abort();
      } else {
        EXPECT_EQ(group.collective->sum(rank, group.values(rank), 5).error(), base::ErrorCode::kCancelled);
      }
      EXPECT_FALSE(group.collective->sum(rank, group.values(rank), 5).is_ok());
    });
  }
}

TEST(HostCollective, ASumAllocatesNothing) {
  Ranks group(2);
  const auto add = [&](std::uint32_t rank) { (void)group.collective->sum(rank, group.values(rank), kValuesMax); };
  group.threads.run(add);
  const auto before = base::testing::allocations_count();
  group.threads.run(add);
  EXPECT_EQ(base::testing::allocations_count(), before);
}

}  // namespace
}  // namespace llorch::engine::inference::parallel
