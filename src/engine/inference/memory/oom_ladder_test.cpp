#include "engine/inference/memory/oom_ladder.h"

#include <gtest/gtest.h>

namespace llorch::engine::inference::memory {
namespace {

constexpr LoadShape kAsked{.context_tokens = 1000, .slots = 4, .prefill_chunk = 512, .kv_tokens_max = 9000};

std::vector<std::string> actions(LoadShape shape, const LoadFloors& floors) {
  std::vector<std::string> result;
  while (const auto step = next_step(shape, floors)) {
    result.push_back(step->action);
    shape = step->shape;
    if (result.size() > 100) break;
  }
  return result;
}

TEST(OomLadder, GivesUpNothingUnlessAllowed) { EXPECT_FALSE(next_step(kAsked, {})); }

// Cache room, rows of a step, slots, then the sequence; each halved down to its floor.
TEST(OomLadder, HalvesInOrderDownToEveryFloor) {
  EXPECT_EQ(actions(kAsked, {.context_tokens = 300, .slots = 1, .prefill_chunk = 100, .kv_tokens = 1}),
            (std::vector<std::string>{"kv_tokens 4000 -> 2000", "kv_tokens 2000 -> 1000", "prefill_chunk 512 -> 256",
                                      "prefill_chunk 256 -> 128", "prefill_chunk 128 -> 100", "slots 4 -> 2",
                                      "slots 2 -> 1", "context_tokens 1000 -> 500", "kv_tokens 1000 -> 500",
                                      "context_tokens 500 -> 300", "kv_tokens 500 -> 300"}));
}

TEST(OomLadder, OneFloorAllowsOneThing) {
  EXPECT_EQ(actions(kAsked, {.slots = 3}), (std::vector<std::string>{"slots 4 -> 3"}));
  EXPECT_EQ(actions(kAsked, {.prefill_chunk = 512}), std::vector<std::string>{});
}

TEST(OomLadder, GivesUpGrowthWithTheRoomOfTheCache) {
  const auto step = next_step(kAsked, {.kv_tokens = 3500});
  ASSERT_TRUE(step);
  EXPECT_EQ(step->shape, (LoadShape{.context_tokens = 1000, .slots = 4, .prefill_chunk = 512, .kv_tokens = 3500}));
  EXPECT_FALSE(next_step(step->shape, {.kv_tokens = 3500}));
}

TEST(OomLadder, RecordsWhatTheErrorSays) {
  const auto error = base::Error{base::ErrorCode::kOutOfDeviceMemory, "", {}}
                         .with("required_bytes", 700)
                         .with("free_bytes", 64)
                         .with("purpose", "workspace");
  const OomRecord record = record_of(error, "load", "refused");
  EXPECT_EQ(record.requested_bytes, 700U);
  EXPECT_EQ(record.free_bytes, 64U);
  EXPECT_EQ(record.purpose, "workspace");
  EXPECT_EQ(record.action, "refused");
}

}  // namespace
}  // namespace llorch::engine::inference::memory
