// The logits of whole prompts through an engine without arithmetic: which rows, in which order, in what memory.
#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference {
namespace {

using base::TokenId;
using testing::Loaded;
using testing::many;

constexpr SequenceId kScored{1}, kOther{2};

// The recording head writes 1000 * position + token of its row.
float logit_of(std::uint32_t position) { return static_cast<float>(1000 * position + position % 40); }

TEST(PromptLogits, ComeOnceEachInOrderWhateverTheRoomForOutputs) {
  for (const std::uint32_t outputs : {0U, 5U, output_rows_of(2, 0)}) {
    Loaded loaded({.slots = 2, .prefill_chunk = 16, .output_rows_max = outputs});
    EXPECT_EQ(loaded.engine->memory_plan().total_bytes(), loaded.backend.memory_used_bytes());
    ContinuousBatch batch(*loaded.engine, {});
    const auto prompt = many(60);
    ASSERT_TRUE(batch.add({.id = kOther, .prompt = std::span(prompt).first(5), .tokens_max = 100}));
    ASSERT_TRUE(batch.add({.id = kScored, .prompt = prompt, .tokens_max = 61, .wants_prompt = true}));
    std::uint32_t other = 5, told = 0, drawn = 0;
    const LogitsSink sink = [&](SequenceId id, std::span<const float> logits) {
      if (id == kOther) {
        EXPECT_EQ(logits[0], logit_of(other - 1));
        return batch.append(id, TokenId{other++ % 40});
      }
      EXPECT_EQ(told, 59U) << "all others came before";
      EXPECT_EQ(logits[0], logit_of(59));
      ++drawn;
      batch.remove(id);
    };
    const PromptSink prompt_sink = [&](SequenceId id, std::uint32_t position, std::span<const float> logits) {
      EXPECT_EQ(id, kScored);
      EXPECT_EQ(position, told++);
      EXPECT_EQ(logits[0], logit_of(position));
    };
    ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
    ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
    const auto before = base::testing::allocations_count();
    std::uint32_t steps = 2;
    for (; told < 40; ++steps) ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
    EXPECT_EQ(base::testing::allocations_count(), before);
    for (; drawn == 0 && steps < 100; ++steps) ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
    EXPECT_EQ(drawn, 1U);
    if (outputs > 5) {
      EXPECT_LE(steps, 6U) << "many in a step";
    }
    EXPECT_GT(other, 5U) << "the other one goes on beside";
  }
}

// Who is removed while its rows are handed out is told no more of them.
TEST(PromptLogits, EndWithTheirSequence) {
  Loaded loaded({.slots = 1, .prefill_chunk = 16, .output_rows_max = 16});
  ContinuousBatch batch(*loaded.engine, {});
  ASSERT_TRUE(batch.add({.id = kScored, .prompt = many(30), .tokens_max = 40, .wants_prompt = true}));
  std::uint32_t told = 0;
  ASSERT_TRUE(batch.step(
      0, [](SequenceId, std::span<const float>) { ADD_FAILURE(); }, {},
      [&](SequenceId id, std::uint32_t, std::span<const float>) {
        if (++told == 3) batch.remove(id);
      }));
  EXPECT_EQ(told, 3U);
  EXPECT_FALSE(batch.knows(kScored));
}

// After a step that failed the rows come from where they were.
TEST(PromptLogits, GoOnBehindAStepThatFailed) {
  Loaded loaded({.slots = 1, .prefill_chunk = 16, .output_rows_max = 16});
  ContinuousBatch batch(*loaded.engine, {});
  ASSERT_TRUE(batch.add({.id = kScored, .prompt = many(30), .tokens_max = 40, .wants_prompt = true}));
  std::uint32_t told = 0, drawn = 0;
  const LogitsSink sink = [&](SequenceId id, std::span<const float> logits) {
    EXPECT_EQ(logits[0], logit_of(29));
    ++drawn;
    batch.remove(id);
  };
  const PromptSink prompt_sink = [&](SequenceId, std::uint32_t position, std::span<const float> logits) {
    EXPECT_EQ(position, told++);
    EXPECT_EQ(logits[0], logit_of(position));
  };
  ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
  EXPECT_EQ(told, 16U);
  loaded.backend.failing = plan::Opcode::kLmHead;
  EXPECT_FALSE(batch.step(0, sink, {}, prompt_sink));
  loaded.backend.failing = plan::Opcode::kMoe;  // which the model has not
  for (int i = 0; i < 5 && drawn == 0; ++i) ASSERT_TRUE(batch.step(0, sink, {}, prompt_sink));
  EXPECT_EQ(told, 29U);
  EXPECT_EQ(drawn, 1U);
}

}  // namespace
}  // namespace llorch::engine::inference
