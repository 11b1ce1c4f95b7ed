// Sums over emulated GPUs, through the collective library's functions as they are opened at run time.
#include "engine/compute/cuda/collective/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/shared_library.h"
#include "base/testing/uneven_number.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/emulation/driver.h"

namespace llorch::engine::compute::cuda {
namespace {

using base::ErrorCode;
using base::testing::uneven_number;
using plan::DeviceBuffer;
using plan::MemoryPurpose;
using plan::Status;

constexpr std::uint64_t kValuesMax = 1000;

struct Gpus {
  explicit Gpus(std::uint32_t count, std::uint64_t memory_bytes = 1u << 24) {
    std::vector<std::uint32_t> numbers;
    std::vector<CudaCollective::Gpu> gpus;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      numbers.push_back(rank);
      backends.push_back(emulation::make_backend({.memory_bytes = memory_bytes, .backwards = rank % 2 != 0}));
      gpus.push_back({.backend = backends.back().get()});
    }
    auto nccl = Nccl::open(LLORCH_FAKE_NCCL, numbers);
    EXPECT_TRUE(nccl) << nccl.error().message;
    collective = std::make_unique<CudaCollective>(gpus, *std::move(nccl));
  }
  // Runs `job` on a thread per rank.
  template <class Job>
  void run(Job&& job) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < backends.size(); ++rank) threads.emplace_back([&job, rank] { job(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<CudaBackend>> backends;
  std::unique_ptr<CudaCollective> collective;
};

// This thread has begun a group of calls and not ended it; ends it.
bool in_a_group() {
  base::SharedLibrary library(LLORCH_FAKE_NCCL);
  int (*group_end)() = nullptr;
  EXPECT_TRUE(library.load(group_end, "ncclGroupEnd"));
  return group_end() == 0;
}

// SYS-6.3.3
TEST(CudaCollective, AddsInRankOrderOnEveryGpu) {
  for (std::uint32_t ranks : {2U, 4U}) {
    Gpus gpus(ranks);
    ASSERT_TRUE(gpus.collective->reserve(kValuesMax));
    std::vector<std::array<float, kValuesMax>> sums(ranks);
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{300}, kValuesMax}) {
      ASSERT_TRUE(gpus.collective->begin());
      gpus.run([&](std::uint32_t rank) {
        CudaBackend& backend = *gpus.backends[rank];
        for (std::uint64_t i = 0; i < count; ++i) sums[rank][i] = uneven_number(rank, i);
        const auto bytes = std::as_writable_bytes(std::span(sums[rank]).first(count));
        const DeviceBuffer buffer = DeviceBuffer::allocate(backend, bytes.size(), MemoryPurpose::kActivations).value();
        backend.copy_to_device(buffer.data(), bytes);
        EXPECT_TRUE(gpus.collective->sum(rank, reinterpret_cast<float*>(buffer.data()), count).is_ok());
        backend.copy_to_host(bytes, buffer.data());
      });
      for (std::uint64_t i = 0; i < count; ++i) {
        float expected = uneven_number(0, i);
        for (std::uint32_t rank = 1; rank < ranks; ++rank) expected += uneven_number(rank, i);
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
          ASSERT_EQ(std::memcmp(&sums[rank][i], &expected, sizeof expected), 0) << rank << " of " << ranks << ", " << i;
      }
    }
    gpus.collective->release();
  }
}

// What was held comes before the sum, and the step goes on behind it. What lies on either side becomes a graph, on each GPU when
// it pleases: the second one makes none.
TEST(CudaCollective, ASumIsInTheMiddleOfAStep) {
  for (const auto mode : {plan::ExecutionMode::kDecode, plan::ExecutionMode::kPrefill}) {
    Gpus gpus(2);
    ASSERT_TRUE(gpus.collective->reserve(1));
    for (const auto& backend : gpus.backends) backend->time_steps(true);
    gpus.backends[1]->limit_graphs({.steps_max = 0});
    gpus.run([&](std::uint32_t rank) {
      CudaBackend& backend = *gpus.backends[rank];
      const DeviceBuffer buffer = DeviceBuffer::allocate(backend, sizeof(float), MemoryPurpose::kActivations).value();
      auto* const value = reinterpret_cast<float*>(buffer.data());
      const auto& stream = *static_cast<const CudaStream*>(backend.stream().ptr);
      const auto doubled = [&] {
        stream.launch<kernels::ResidualAdd>({1}, {.a = value, .b = value, .y = value, .count = 1});
      };
      for (int step = 0; step < 4; ++step) {
        const float one = 1;
        backend.copy_to_device(buffer.data(), std::as_bytes(std::span(&one, 1)));
        backend.begin_step({.mode = mode, .total_rows = 1});
        doubled();
        EXPECT_TRUE(gpus.collective->sum(rank, value, 1).is_ok());
        doubled();
        backend.end_step();
        float eight = 0;
        backend.copy_to_host(std::as_writable_bytes(std::span(&eight, 1)), buffer.data());
        EXPECT_EQ(eight, 8.0F);
      }
      const StepTimes::Sum times = backend.take_step_times();
      EXPECT_EQ(times.steps, 4U);
      EXPECT_NEAR(times.seconds, 12e-6, 1e-9);  // three kernels each
      const bool replays = mode == plan::ExecutionMode::kDecode && rank == 0;
      EXPECT_EQ(backend.graphs().counters(),
                replays ? (GraphCounters{.made = 2, .replayed = 4, .eager = 4}) : GraphCounters{});
    });
    gpus.collective->release();
  }
}

// Rows whose parts the GPUs have made are whole on each, more of them than the library is given at once.
TEST(CudaCollective, JoinsRows) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kRows = 130, kWidth = 7;
  Gpus gpus(kRanks);
  gpus.run([&](std::uint32_t rank) {
    CudaBackend& backend = *gpus.backends[rank];
    std::vector<float> part(kRows * kWidth), whole(kRows * kWidth * kRanks);
    for (std::uint64_t i = 0; i < part.size(); ++i) part[i] = static_cast<float>(1000 * rank + i);
    const auto buffer = [&](std::span<float> values) {
      return DeviceBuffer::allocate(backend, values.size_bytes(), MemoryPurpose::kActivations).value();
    };
    const DeviceBuffer own = buffer(part), all = buffer(whole);
    backend.copy_to_device(own.data(), std::as_bytes(std::span(part)));
    const plan::RowParts rows{.part = reinterpret_cast<const float*>(own.data()),
                              .whole = reinterpret_cast<float*>(all.data()),
                              .rows = kRows,
                              .width = kWidth};
    EXPECT_TRUE(gpus.collective->join(rank, rows).is_ok());
    backend.copy_to_host(std::as_writable_bytes(std::span(whole)), all.data());
    for (std::uint64_t i = 0; i < whole.size(); ++i) {
      const std::uint64_t row = i / (kWidth * kRanks), column = i % (kWidth * kRanks);
      EXPECT_EQ(whole[i], static_cast<float>(1000 * (column / kWidth) + row * kWidth + column % kWidth));
    }
  });
}

TEST(CudaCollective, ItsRoomIsPredictedAndTakenOnAllGpusOrNone) {
  Gpus gpus(2);
  ASSERT_TRUE(gpus.collective->reserve(kValuesMax));
  for (const auto& backend : gpus.backends)
    EXPECT_EQ(backend->memory_used_bytes(), backend->sum_bytes({.ranks = 2, .values_max = kValuesMax}));
  gpus.collective->release();
  for (const auto& backend : gpus.backends) EXPECT_EQ(backend->memory_used_bytes(), 0U);

  const DeviceBuffer taken =
      DeviceBuffer::allocate(*gpus.backends[1], gpus.backends[1]->memory_budget_bytes(), MemoryPurpose::kWeights)
          .value();
  EXPECT_EQ(gpus.collective->reserve(kValuesMax).error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(gpus.backends[0]->memory_used_bytes(), 0U);
}

// A rank in a sum is let go, whichever it waits in, and the collective says what has happened from then on.
TEST(CudaCollective, NobodyWaitsForAGpuThatFailed) {
  for (const std::uint32_t failing : {0U, 1U, 2U}) {
    Gpus gpus(3);
    ASSERT_TRUE(gpus.collective->reserve(kValuesMax));
    gpus.run([&](std::uint32_t rank) {
      if (rank == failing) return gpus.collective->abort();
      const DeviceBuffer buffer = DeviceBuffer::allocate(*gpus.backends[rank], 64, MemoryPurpose::kActivations).value();
      auto* const values = reinterpret_cast<float*>(buffer.data());
      EXPECT_FALSE(gpus.collective->sum(rank, values, 4).is_ok());
      EXPECT_FALSE(gpus.collective->join(rank, {.part = values, .whole = values + 4, .rows = 1, .width = 4}).is_ok());
      EXPECT_FALSE(in_a_group());
    });
    EXPECT_EQ(gpus.collective->begin().error().code, ErrorCode::kCudaError);
    gpus.collective->abort();  // twice is fine
    gpus.collective->release();
  }
}

// What the connections take of a GPU is gone before anybody asks what is free.
TEST(Nccl, ConnectsWhenItIsOpened) {
  ASSERT_EQ(::setenv("NCCL_RUNTIME_CONNECT", "1", 1), 0);
  ASSERT_TRUE(Nccl::open(LLORCH_FAKE_NCCL, {0, 1}));
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "1");  // the operator's word
  ASSERT_EQ(::unsetenv("NCCL_RUNTIME_CONNECT"), 0);
  ASSERT_TRUE(Nccl::open(LLORCH_FAKE_NCCL, {0, 1}));
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "0");
}

TEST(Nccl, WhatCannotBeOpenedIsSaid) {
  const auto absent = Nccl::open("libno-such-nccl.so", {0, 1});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kGpuUnavailable);
  EXPECT_NE(absent.error().message.find("libno-such-nccl.so cannot be opened"), std::string::npos);
  EXPECT_EQ(Nccl::open("libdl.so.2", {0, 1}).error().code, ErrorCode::kGpuUnavailable);
  const auto twice = Nccl::open(LLORCH_FAKE_NCCL, {1, 1});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kCudaError);
  EXPECT_NE(twice.error().message.find("invalid argument"), std::string::npos);
}

TEST(ParseDevices, TakesAListAndNoGpuTwice) {
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(parse_devices("0").value(), Numbers{0});
  EXPECT_EQ(parse_devices("0,1").value(), (Numbers{0, 1}));
  EXPECT_EQ(parse_devices("cuda:2,0,cuda:1").value(), (Numbers{2, 0, 1}));
  for (const char* text : {"", ",", "0,", "0,,1", "0,x", "0,1,0"})
    EXPECT_EQ(parse_devices(text).error().code, ErrorCode::kGpuUnavailable) << text;
}

}  // namespace
}  // namespace llorch::engine::compute::cuda
