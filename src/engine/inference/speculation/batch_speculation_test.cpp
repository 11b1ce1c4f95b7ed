// Steps with proposals through an engine without arithmetic: rows, slots, memory and allocations.
#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "engine/inference/continuous_batch.h"
#include "engine/inference/speculation/draft_model.h"
#include "engine/inference/testing/tiny_engine.h"

namespace llorch::engine::inference::speculation {
namespace {

using base::TokenId;
using testing::Loaded;
using testing::many;

constexpr SequenceId kOne{1};

TEST(BatchSpeculation, ItsMemoryIsPredicted) {
  for (const std::uint32_t rows : {0u, 5u, 1000u}) {
    const EngineOptions options{.slots = 3, .prefill_chunk = 16, .proposal_rows_max = rows};
    Loaded loaded(options);
    EXPECT_EQ(loaded.engine->facts().proposal_rows_max, std::min(rows, 13u));
    EXPECT_EQ(loaded.engine->memory_plan().total_bytes(), loaded.backend.memory_used_bytes());
  }
}

// A text that repeats itself: several tokens a step, each from the row of its position, and nothing is allocated.
TEST(BatchSpeculation, AStepDrawsWhatItForesawAndAllocatesNothing) {
  Loaded loaded({.slots = 2, .prefill_chunk = 16, .proposal_rows_max = 6});
  ContinuousBatch batch(*loaded.engine, {.speculation = {.proposals_max = 4, .always = true}});
  const auto prompt = many(5);
  ASSERT_TRUE(batch.add({.id = kOne, .prompt = prompt, .tokens_max = 60}));
  std::uint32_t known = 5;
  const LogitsSink sink = [&](SequenceId id, std::span<const float> logits) {
    // The recording head writes 1000 * position + token of its row.
    EXPECT_EQ(logits[0], static_cast<float>(1000 * (known - 1) + (known - 1) % 5));
    if (known < 60) batch.append(id, TokenId{known++ % 5});
  };
  std::uint32_t steps = 0;
  for (; known < 12; ++steps) ASSERT_TRUE(batch.step(0, sink));
  const auto before = base::testing::allocations_count();
  for (; known < 58; ++steps) ASSERT_TRUE(batch.step(0, sink));
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_LT(steps, 20u);
  const auto counts = batch.proposals(kOne);
  EXPECT_GT(counts.accepted, 30u);
  EXPECT_EQ(batch.usage().counts.proposals.accepted, counts.accepted);
}

// Wrong ones leave nothing behind: the slot stands at what was drawn.
TEST(BatchSpeculation, WrongProposalsLeaveNothing) {
  class Wrong final : public ProposalSource {
   public:
    bool propose(std::span<Request> requests) override {
      for (Request& request : requests) {
        std::ranges::fill(request.proposals, TokenId{39});
        request.count = static_cast<std::uint32_t>(request.proposals.size());
      }
      return true;
    }
    void remove(SequenceId id) override { removed.push_back(id); }
    std::vector<SequenceId> removed;
  } wrong;
  Loaded loaded({.slots = 1, .prefill_chunk = 16, .proposal_rows_max = 6});
  ContinuousBatch batch(*loaded.engine, {.speculation = {.source = &wrong, .proposals_max = 4, .always = true}});
  ASSERT_TRUE(batch.add({.id = kOne, .prompt = many(63), .tokens_max = 100}));
  std::uint32_t known = 63;
  const LogitsSink sink = [&](SequenceId id, std::span<const float> logits) {
    EXPECT_EQ(logits[0], static_cast<float>(1000 * (known - 1) + (known < 64 ? known - 1 : known - 61) % 40));
    batch.append(id, TokenId{(known++ - 60) % 40});
  };
  while (known == 63) ASSERT_TRUE(batch.step(0, sink));  // the prompt, chunk by chunk
  while (known < 70) {
    ASSERT_TRUE(batch.step(0, sink));
    EXPECT_EQ(loaded.engine->length(0), known - 1);
    EXPECT_EQ(loaded.engine->pages().pages_held(0, 0), (known - 1 + 63) / 64) << "pages behind are given back";
  }
  EXPECT_EQ(batch.proposals(kOne).accepted, 0u);
  EXPECT_GT(batch.proposals(kOne).proposed, 20u);
  batch.remove(kOne);
  EXPECT_EQ(wrong.removed, std::vector<SequenceId>{kOne});
}

// A larger model may draw a row that the draft's table lacks: who has it is proposed nothing, and the others are.
TEST(DraftModel, ATokenThatItDoesNotHaveStopsNobodyElse) {
  Loaded loaded({.slots = 2, .prefill_chunk = 64});
  const std::uint32_t vocab = loaded.engine->facts().vocab;
  DraftModel draft(*loaded.engine, vocab,
                   [](SequenceId, std::span<const TokenId>, std::span<const float>) { return TokenId{1}; });
  const auto known = many(8);
  auto foreign = known;
  foreign.push_back(TokenId{vocab});
  std::vector<TokenId> proposals(4);
  std::array<ProposalSource::Request, 2> requests{
      {{.id = kOne, .slot = 0, .tokens = foreign, .proposals = std::span(proposals).first(2)},
       {.id = SequenceId{2}, .slot = 1, .tokens = known, .proposals = std::span(proposals).last(2)}}};
  draft.propose(requests);
  EXPECT_EQ(requests[0].count, 0U);
  EXPECT_EQ(requests[1].count, 2U);
}

// A step in which the draft computes what it is behind says nothing about what proposals cost.
TEST(DraftModel, SaysWhetherItHadToCatchUp) {
  Loaded loaded({.slots = 1, .prefill_chunk = 64});
  DraftModel draft(*loaded.engine, loaded.engine->facts().vocab,
                   [](SequenceId, std::span<const TokenId>, std::span<const float>) { return TokenId{1}; });
  auto tokens = many(30);
  std::vector<TokenId> proposals(2);
  const auto is_steady = [&] {
    std::vector<ProposalSource::Request> requests{{.id = kOne, .tokens = tokens, .proposals = proposals}};
    const bool steady = draft.propose(requests);
    EXPECT_EQ(requests[0].count, 2u);
    return steady;
  };
  EXPECT_FALSE(is_steady()) << "the prompt";
  tokens.push_back(TokenId{2});
  EXPECT_TRUE(is_steady()) << "the first proposal was wrong";
  for (const std::uint32_t token : {1U, 1U, 3U}) tokens.push_back(TokenId{token});
  EXPECT_TRUE(is_steady()) << "both were right";
  for (std::uint32_t i = 0; i < 6; ++i) tokens.push_back(TokenId{4});
  EXPECT_FALSE(is_steady()) << "it was not asked for a while";
}

}  // namespace
}  // namespace llorch::engine::inference::speculation
