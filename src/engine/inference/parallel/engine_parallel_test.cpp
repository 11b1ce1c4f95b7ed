// An engine over several devices without arithmetic: memory, failures, and what every device is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <future>

#include "base/testing/allocation_counter.h"
#include "engine/inference/engine.h"
#include "engine/inference/parallel/host_collective.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference::parallel {
namespace {

using base::ErrorCode;
using base::TokenId;
using models::testing::TinyLlama;
using plan::Opcode;
using testing::FaultyBackend;
using testing::many;
using testing::ModelFile;

// Two devices and how they all-reduce.
struct Pair {
  explicit Pair(std::uint64_t first_bytes = 1ULL << 30, std::uint64_t second_bytes = 1ULL << 30)
      : backends{FaultyBackend({.memory_bytes_max = first_bytes}), FaultyBackend({.memory_bytes_max = second_bytes})} {}
  Devices devices() { return {.backends = {&backends[0], &backends[1]}, .collective = &collective}; }
  std::uint64_t used() const { return backends[0].memory_used_bytes() + backends[1].memory_used_bytes(); }

  std::array<FaultyBackend, 2> backends;
  HostCollective collective{std::array<plan::Backend*, 2>{&backends[0], &backends[1]}};
};

// Joins nothing.
class UnjoinedCollective final : public plan::Collective {
 public:
  explicit UnjoinedCollective(plan::Collective& sums) : sums_(sums) {}
  std::uint32_t ranks() const override { return sums_.ranks(); }
  base::Result<> reserve(std::uint64_t values_max) override { return sums_.reserve(values_max); }
  void release() noexcept override { sums_.release(); }
  base::Result<> begin() override { return sums_.begin(); }
  plan::Status sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept override {
    return sums_.sum(rank, values, count);
  }
  plan::Status join(std::uint32_t, const plan::RowParts&) noexcept override {
    return plan::Status::failed(ErrorCode::kCudaError);
  }
  void abort() noexcept override { sums_.abort(); }

 private:
  plan::Collective& sums_;
};

// SYS-6.3.3
TEST(EngineParallel, EveryDeviceHasItsPartAndIsAccountedFor) {
  const ModelFile file(TinyLlama{.layers = 3, .tied = false});
  const EngineOptions options{.slots = 2};
  Pair pair;
  const auto predicted = Engine::predict(file.path(), options, pair.devices());
  ASSERT_TRUE(predicted) << predicted.error().message;
  ASSERT_EQ(predicted->size(), 2U);
  FaultyBackend alone;
  const auto whole = Engine::predict(file.path(), options, alone).value();
  const auto engine = Engine::load(file.path(), options, pair.devices());
  ASSERT_TRUE(engine) << engine.error().message;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ((*predicted)[rank].total_bytes(), pair.backends[rank].memory_used_bytes());
    EXPECT_EQ((*engine)->memory_plan(rank).total_bytes(), pair.backends[rank].memory_used_bytes());
    EXPECT_EQ(2 * (*predicted)[rank].kv_bytes, whole.kv_bytes);
    EXPECT_LT((*predicted)[rank].weights_bytes, whole.weights_bytes);
  }
  EXPECT_EQ((*engine)->facts().devices, 2U);
  EXPECT_EQ((*engine)->facts().numerics, "recording-1/tp2");
  EXPECT_EQ((*engine)->facts().device_class, "recording");
}

// Does something before it takes weights and behind it.
class OrderedBackend final : public FaultyBackend {
 public:
  base::Result<> upload_weights(std::span<const plan::StoredTensor> tensors, std::span<void*> weights,
                                const plan::UploadProgress& progress) override {
    before();
    auto uploaded = FaultyBackend::upload_weights(tensors, weights, progress);
    behind();
    return uploaded;
  }
  std::function<void()> before = [] {}, behind = [] {};
};

// M0-W-1621: a model on several devices is as far as the slowest of them.
TEST(EngineParallel, ProgressIsThatOfAllDevices) {
  const ModelFile file(TinyLlama{.layers = 3});
  for (const bool first_is_late : {true, false}) {
    OrderedBackend late, other;
    std::vector<plan::Backend*> backends{&late, &other};
    if (!first_is_late) std::swap(backends[0], backends[1]);
    HostCollective collective(backends);
    std::vector<unsigned> seen;
    std::size_t seen_before = 0;
    std::promise<void> may_begin;
    late.before = [&] { may_begin.get_future().wait(); };
    other.behind = [&] {
      seen_before = seen.size();
      may_begin.set_value();
    };
    const auto engine = Engine::load(file.path(), {}, {.backends = backends, .collective = &collective},
                                     [&](unsigned percent) { seen.push_back(percent); });
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(seen_before, 1U) << "nothing was reached but the begin";
    EXPECT_EQ(seen, (std::vector<unsigned>{0, 25, 50, 75, 100}));
  }
}

TEST(EngineParallel, EveryDeviceRunsTheSameRowsAndPagesMatch) {
  const ModelFile file;
  Pair pair;
  const auto engine = Engine::load(file.path(), {.slots = 2, .prefill_chunk = 32}, pair.devices()).value();
  const auto logits = engine->prefill(1, many(70));
  ASSERT_TRUE(logits) << logits.error().message;
  EXPECT_EQ((*logits)[0], 69 * 1000 + 69 % 40);
  ASSERT_TRUE(engine->decode(1, TokenId{3}));
  ASSERT_EQ(pair.backends[0].launches.size(), pair.backends[1].launches.size());
  for (std::size_t i = 0; i < pair.backends[0].launches.size(); ++i) {
    EXPECT_EQ(pair.backends[0].launches[i].opcode, pair.backends[1].launches[i].opcode);
    EXPECT_EQ(pair.backends[0].launches[i].rows, pair.backends[1].launches[i].rows);
  }
}

// A head that is shared out: every device makes its part of each row, and the rows are handed out whole.
TEST(EngineParallel, RowsOfLogitsAreJoined) {
  const ModelFile file(TinyLlama{.tied = false});
  Pair pair;
  const auto engine =
      Engine::load(file.path(), {.slots = 3, .prefill_chunk = 32, .output_rows_max = 9}, pair.devices()).value();
  const std::vector<TokenId> tokens = many(30);
  const std::array<SlotRows, 2> requests{
      {{0, tokens, RowsWanted::kLast}, {2, std::span(tokens).first(2), RowsWanted::kAll}}};
  const auto output = engine->step(requests);
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_EQ(output->width, 40U);
  ASSERT_EQ(output->rows(), 3U);
  for (const std::size_t row : {0U, 1U, 2U}) {
    const std::uint32_t position = row == 0 ? 29 : static_cast<std::uint32_t>(row) - 1;
    std::vector<float> part(20);
    part[0] = static_cast<float>(position * 1001);
    part[1] = row == 0 ? 0 : 2;
    std::vector<float> whole = part;
    whole.insert(whole.end(), part.begin(), part.end());
    EXPECT_TRUE(std::ranges::equal(output->row(row), whole)) << row;
  }
  // A step that nobody wants rows of joins none.
  EXPECT_TRUE(engine->step(std::array<SlotRows, 1>{{{1, std::span(tokens).first(3), RowsWanted::kNone}}}));
}

// Every instruction has run by then: none is to blame.
TEST(EngineParallel, RowsOfLogitsThatAreNotJoinedAreSaidToBe) {
  const ModelFile file(TinyLlama{.tied = false});
  Pair pair;
  UnjoinedCollective unjoined(pair.collective);
  Devices devices = pair.devices();
  devices.collective = &unjoined;
  const auto engine = Engine::load(file.path(), {}, devices).value();
  const auto failed = engine->prefill(0, many(5));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCudaError);
  EXPECT_NE(failed.error().message.find("the rows of logits could not be joined on recording"), std::string::npos)
      << failed.error().message;
}

// SYS-6.3.3: whatever fails while a model is loaded, on whichever device, gives back what all of them had taken.
TEST(EngineParallel, EveryAllocationOfALoadMayFailOnEveryDevice) {
  const ModelFile file(TinyLlama{.layers = 2, .tied = false});
  for (const std::size_t failing : {0U, 1U}) {
    for (std::uint64_t n = 1;; ++n) {
      Pair pair;
      pair.backends[failing].fail_from = n;
      const auto engine = Engine::load(file.path(), {.slots = 2}, pair.devices());
      if (engine) {
        EXPECT_GT(n, 10U);
        break;
      }
      EXPECT_EQ(engine.error().code, ErrorCode::kOutOfDeviceMemory) << engine.error().message;
      EXPECT_NE(engine.error().message.find("of 2: "), std::string::npos) << engine.error().message;
      EXPECT_EQ(pair.used(), 0U) << "allocation " << n << " of device " << failing;
      ASSERT_LT(n, 1000U);
    }
  }
}

// The load is refused when any device is short, before a weight is read.
TEST(EngineParallel, OneDeviceThatIsShortIsEnough) {
  const ModelFile file;
  std::uint64_t needed = 0;
  {
    Pair probe;
    needed = Engine::predict(file.path(), {}, probe.devices()).value()[1].total_bytes();
  }
  EXPECT_TRUE([&] {
    Pair exact(needed, needed);
    return Engine::load(file.path(), {}, exact.devices()).has_value();
  }());
  Pair pair(needed, needed - 1);
  const auto refused = Engine::load(file.path(), {}, pair.devices());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_TRUE(refused.error().message.starts_with("device 1 of 2: ")) << refused.error().message;
  EXPECT_NE(refused.error().message.find(std::to_string(needed)), std::string::npos);
  EXPECT_EQ(pair.backends[0].allocations_count + pair.backends[1].allocations_count, 0U);
}

// With floors the shape both devices have room for is found.
TEST(EngineParallel, TheLadderServesAllDevices) {
  const ModelFile file;
  std::uint64_t four = 0;
  {
    Pair probe;
    four = Engine::predict(file.path(), {.slots = 4}, probe.devices()).value()[0].total_bytes();
  }
  Pair pair(1ULL << 30, four);
  const auto engine = Engine::load(file.path(), {.slots = 8, .floors = {.slots = 1}}, pair.devices());
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->facts().slots, 4U);
  EXPECT_EQ(pair.backends[0].memory_used_bytes(), four);
}

// A device that fails in the middle of a step ends it for all: a typed error, no wait, and the next step is as good as any.
TEST(EngineParallel, OneDeviceThatFailsEndsTheStepForAll) {
  const ModelFile file(TinyLlama{.layers = 3, .tied = false});
  for (const std::size_t failing : {0U, 1U}) {
    for (const Opcode opcode : {Opcode::kEmbedding, Opcode::kMultiheadAttention, Opcode::kSwiglu, Opcode::kLmHead}) {
      Pair pair;
      const auto engine = Engine::load(file.path(), {.slots = 2}, pair.devices()).value();
      ASSERT_TRUE(engine->prefill(0, many(10)));
      pair.backends[failing].failing = opcode;
      const auto failed = engine->decode(0, TokenId{1});
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().code, ErrorCode::kCudaError);
      EXPECT_TRUE(failed.error().message.starts_with("device " + std::to_string(failing) + " of 2: "))
          << failed.error().message;
      EXPECT_EQ(engine->length(0), 10U);
      pair.backends[failing].failing = Opcode::kMoe;
      const auto logits = engine->decode(0, TokenId{1});
      ASSERT_TRUE(logits) << logits.error().message;
      EXPECT_EQ((*logits)[0], 10 * 1000 + 1);
    }
  }
}

// Growth that one device refuses is growth nobody gets; what was grown goes back on all of them.
TEST(EngineParallel, TheCacheGrowsOnAllDevicesOrOnNone) {
  const ModelFile file;
  Pair pair;
  const EngineOptions options{
      .context_tokens = 192, .slots = 4, .prefill_chunk = 64, .kv_tokens = 192, .kv_tokens_max = 768};
  const auto engine = Engine::load(file.path(), options, pair.devices()).value();
  ASSERT_TRUE(engine->prefill(0, many(192)));
  const std::uint64_t used = pair.used();
  pair.backends[1].fail_from = 0;
  EXPECT_EQ(engine->prefill(1, many(64)).error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(pair.used(), used);
  pair.backends[1].fail_from = ~std::uint64_t{0};
  ASSERT_TRUE(engine->prefill(1, many(64)));
  EXPECT_GT(pair.used(), used);
  EXPECT_EQ(pair.backends[0].memory_used_bytes(), pair.backends[1].memory_used_bytes());
  for (std::uint32_t slot = 0; slot < 4; ++slot) EXPECT_TRUE(engine->reset(slot));
  EXPECT_GT(engine->kv().release_idle(), 0U);
  EXPECT_EQ(pair.used(), used);
}

TEST(EngineParallel, AStepAllocatesNothing) {
  const ModelFile file(TinyLlama{.tied = false});
  Pair pair;
  const auto engine = Engine::load(file.path(), {.prefill_chunk = 16}, pair.devices()).value();
  ASSERT_TRUE(engine->prefill(0, many(40)));
  const auto before = base::testing::allocations_count();
  const bool fine = engine->decode(0, TokenId{1}).has_value();
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_TRUE(fine);
}

TEST(EngineParallel, WhatCannotShareAModelIsRefused) {
  const ModelFile file;
  std::array<FaultyBackend, 3> backends;
  HostCollective collective{std::array<plan::Backend*, 3>{&backends[0], &backends[1], &backends[2]}};
  const Devices three{.backends = {&backends[0], &backends[1], &backends[2]}, .collective = &collective};
  EXPECT_EQ(Engine::load(file.path(), {}, three).error().code, ErrorCode::kModelIncompatible);
  EXPECT_EQ(Engine::load(file.path(), {}, Devices{}).error().code, ErrorCode::kInvalidParams);
}

}  // namespace
}  // namespace llorch::engine::inference::parallel
