// Slots that begin, fork and end; pages that run out; devices with too little memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/testing/allocation_counter.h"
#include "engine/inference/engine.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference {
namespace {

using base::ErrorCode;
using base::TokenId;
using models::testing::TinyLlama;
using testing::FaultyBackend;
using testing::Loaded;
using testing::many;
using testing::ModelFile;

// Every allocation of a load from the n-th on fails: nothing stays behind, and the error says what was wanted and what there
// was, whether the load may go on smaller or not.
TEST(EngineOom, EveryAllocationOfALoadMayFail) {
  const ModelFile file(TinyLlama{.layers = 3});
  const auto has = [](const base::Error& error, std::string_view key) {
    return std::ranges::any_of(error.details, [&](const auto& detail) { return detail.first == key; });
  };
  for (const memory::LoadFloors& floors :
       {memory::LoadFloors{}, memory::LoadFloors{.context_tokens = 64, .slots = 1, .prefill_chunk = 16}}) {
    for (std::uint64_t n = 1;; ++n) {
      FaultyBackend backend;
      backend.fail_from = n;
      const auto engine = Engine::load(file.path(), {.slots = 3, .floors = floors}, backend);
      if (engine) {
        EXPECT_GT(n, 10U);
        EXPECT_LT(backend.allocations_count, n);
        break;
      }
      EXPECT_EQ(engine.error().code, ErrorCode::kOutOfDeviceMemory) << engine.error().message;
      EXPECT_EQ(backend.memory_used_bytes(), 0U) << "allocation " << n;
      EXPECT_TRUE(has(engine.error(), "required_bytes") && has(engine.error(), "free_bytes")) << engine.error().message;
      ASSERT_LT(n, 1000U);
    }
  }
}

// A file cut short while it is loaded is an error and no signal, and nothing of it stays.
TEST(EngineOom, AFileMayBeCutShort) {
  const ModelFile file(TinyLlama{.layers = 3});
  auto files = io::ModelFiles::open(file.path()).value();
  auto model = models::compile_model(files, plan::DType::kF16).value();
  std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) / 2);
  FaultyBackend backend;
  const auto engine = Engine::load(std::move(files), std::move(model), {}, backend);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::kIoError);
  EXPECT_NE(engine.error().message.find("changed meanwhile"), std::string::npos) << engine.error().message;
  EXPECT_EQ(backend.memory_used_bytes(), 0U);
}

// With floors, one failure costs one step of the ladder; what is loaded then works and says what it gave up.
TEST(EngineOom, ALoadGoesOnSmallerWhereItMay) {
  const ModelFile file(TinyLlama{.layers = 3});
  std::uint64_t weights = 0, all = 0;
  {
    FaultyBackend probe;
    ASSERT_TRUE(Engine::load(file.path(), {.slots = 3}, probe));
    weights = probe.upload_uses.size();
    all = probe.allocations_count;
  }
  const EngineOptions options{.slots = 3, .prefill_chunk = 64, .floors = {.slots = 1, .prefill_chunk = 16}};
  for (std::uint64_t n = 1; n <= all; ++n) {
    FaultyBackend backend;
    backend.fail_from = n;
    backend.fail_to = n + 1;
    const auto engine = Engine::load(file.path(), options, backend);
    if (n <= weights) {
      EXPECT_FALSE(engine);  // no shape has fewer weights
      continue;
    }
    ASSERT_TRUE(engine) << engine.error().message;
    const EngineFacts& facts = (*engine)->facts();
    ASSERT_EQ(facts.oom.size(), 1U);
    EXPECT_EQ(facts.oom[0].action, "prefill_chunk 64 -> 32");
    EXPECT_EQ(facts.oom[0].stage, "load");
    EXPECT_GT(facts.oom[0].requested_bytes, 0U);
    EXPECT_EQ(facts.rows_max, 32U);
    EXPECT_EQ((*engine)->memory_plan().total_bytes(), backend.memory_used_bytes());
    EXPECT_TRUE((*engine)->prefill(2, many(100)));
  }
}

TEST(EngineOom, TheLadderEndsAtTheFloors) {
  const ModelFile file;
  FaultyBackend backend;
  const EngineOptions floors{.slots = 4,
                             .prefill_chunk = 64,
                             .floors = {.context_tokens = 64, .slots = 1, .prefill_chunk = 16, .kv_tokens = 1}};
  {
    const auto engine = Engine::load(file.path(), floors, backend);
    ASSERT_TRUE(engine);
  }
  backend.fail_from = backend.allocations_count + backend.upload_uses.size() + 1;
  const auto refused = Engine::load(file.path(), floors, backend);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_NE(refused.error().message.find("tried context_tokens 96 -> 64"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(backend.memory_used_bytes(), 0U);
}

// What does not fit the budget is known, and made smaller, before anything is touched.
TEST(EngineOom, TheBudgetIsMetByTheLadderToo) {
  const ModelFile file;
  const EngineOptions asked{.slots = 8, .floors = {.slots = 1}};
  std::uint64_t four = 0;
  {
    FaultyBackend probe;
    four = Engine::predict(file.path(), {.slots = 4}, probe)->total_bytes();
  }
  FaultyBackend backend({.memory_bytes_max = four});
  const auto engine = Engine::load(file.path(), asked, backend);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->facts().slots, 4U);
  ASSERT_EQ((*engine)->facts().oom.size(), 1U);
  EXPECT_EQ((*engine)->facts().oom[0].action, "slots 8 -> 4");
  EXPECT_EQ(backend.memory_used_bytes(), four);
}

TEST(EnginePages, AStepTakesWhatItsRowsNeed) {
  Loaded loaded({.context_tokens = 192, .slots = 2, .prefill_chunk = 64});
  EXPECT_EQ(loaded.engine->pages().counts(0).used, 0U);
  ASSERT_TRUE(loaded.engine->prefill(0, many(65)));
  EXPECT_EQ(loaded.engine->pages().counts(0).used, 2U);
  ASSERT_TRUE(loaded.engine->reset(0));
  EXPECT_EQ(loaded.engine->pages().counts(0).used, 0U);
}

TEST(EnginePages, WhatRunsOutIsRefusedAndWhatIsFreedServesAgain) {
  Loaded loaded({.context_tokens = 192, .slots = 2, .prefill_chunk = 64, .kv_tokens = 192});
  ASSERT_TRUE(loaded.engine->prefill(0, many(128)));
  const auto refused = loaded.engine->prefill(1, many(65));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(loaded.engine->length(1), 64U);  // the chunk that fitted
  ASSERT_TRUE(loaded.engine->reset(0));
  EXPECT_TRUE(loaded.engine->prefill(1, many(65)));
}

// Every allocation of growth fails once: the step is refused, the engine goes on.
TEST(EnginePages, GrowthMayFail) {
  Loaded loaded({.context_tokens = 192, .slots = 4, .prefill_chunk = 64, .kv_tokens = 192, .kv_tokens_max = 768});
  ASSERT_TRUE(loaded.engine->prefill(0, many(192)));
  for (std::uint32_t slot = 1; slot < 4; ++slot) {
    for (std::uint32_t at = 0; at < 192; at += 64) {
      const std::uint64_t used = loaded.backend.memory_used_bytes();
      loaded.backend.fail_from = 0;
      const bool grown = loaded.engine->pages().counts(0).takeable() > 0;
      const auto step = loaded.engine->prefill(slot, many(64));
      loaded.backend.fail_from = ~std::uint64_t{0};
      ASSERT_EQ(step.has_value(), grown);
      if (step) continue;
      EXPECT_EQ(step.error().code, ErrorCode::kOutOfDeviceMemory);
      EXPECT_EQ(loaded.backend.memory_used_bytes(), used);
      EXPECT_TRUE(loaded.engine->prefill(slot, many(64)));
    }
  }
  EXPECT_EQ(loaded.engine->pages().counts(0).total, 12U);
  for (std::uint32_t slot = 0; slot < 4; ++slot) EXPECT_TRUE(loaded.engine->reset(slot));
  EXPECT_GT(loaded.engine->kv().release_idle(), 0U);
  EXPECT_EQ(loaded.backend.memory_used_bytes(), loaded.engine->memory_plan().total_bytes());
}

TEST(EngineFork, TheChildHoldsWhatTheParentHolds) {
  Loaded loaded({.context_tokens = 192, .slots = 3, .prefill_chunk = 64});
  Engine& engine = *loaded.engine;
  ASSERT_TRUE(engine.prefill(0, many(100)));
  std::vector<paging::PageCopy> copies;
  ASSERT_TRUE(engine.pages().fork(0, 2, engine.length(0), copies));
  engine.kv().copy(copies);
  ASSERT_TRUE(engine.fork({.from = 0, .to = 2}));
  EXPECT_EQ(engine.length(2), 100U);
  EXPECT_EQ(engine.pages().counts(0).used, 3U);  // one shared, the one begun copied
  const auto logits = engine.decode(2, TokenId{7});
  ASSERT_TRUE(logits);
  EXPECT_EQ((*logits)[0], 100 * 1000 + 7);
  EXPECT_EQ(engine.length(0), 100U);
  EXPECT_EQ(engine.fork({.from = 0, .to = 1, .tokens_max = 99}).error().code, ErrorCode::kInvalidParams);
}

TEST(EngineStart, GoesOnFromAdoptedPages) {
  Loaded loaded({.context_tokens = 192, .slots = 2, .prefill_chunk = 64});
  Engine& engine = *loaded.engine;
  ASSERT_TRUE(engine.prefill(0, many(130)));
  const std::array<paging::PageKey, 2> keys{paging::PageKey{1}, paging::PageKey{2}};
  for (std::uint32_t page = 0; page < 2; ++page) engine.pages().publish(0, page, keys[page], 0);
  ASSERT_TRUE(engine.reset(0));
  const std::uint32_t held = engine.pages().adopt(1, keys, 0);
  EXPECT_EQ(held, 128U);
  ASSERT_TRUE(engine.start(1, {.tokens_max = 130, .held = held}));
  EXPECT_EQ(engine.length(1), 128U);
  const auto before = base::testing::allocations_count();
  const auto logits = engine.decode(1, TokenId{3});
  EXPECT_EQ(base::testing::allocations_count(), before);
  ASSERT_TRUE(logits);
  EXPECT_EQ((*logits)[0], 128 * 1000 + 3);
  EXPECT_TRUE(engine.decode(1, TokenId{3}));
  EXPECT_EQ(engine.decode(1, TokenId{3}).error().code, ErrorCode::kContextExhausted);
}

}  // namespace
}  // namespace llorch::engine::inference
