#include "engine/compute/memory_ledger.h"

#include <gtest/gtest.h>

namespace llorch::engine::compute {
namespace {

using plan::MemoryPurpose;

constexpr MemoryLedger::Wording kWording{.memory = "bytes of slate", .advice = "Write smaller."};

TEST(MemoryLedger, CountsByPurposeAndForgets) {
  std::byte memory[3];
  MemoryLedger ledger(100, kWording);
  ledger.add(&memory[0], {60, MemoryPurpose::kWeights});
  ledger.add(&memory[1], {10, MemoryPurpose::kState});
  ledger.add(&memory[2], {5, MemoryPurpose::kState});
  EXPECT_EQ(ledger.used_bytes(), 75u);
  EXPECT_EQ(ledger.used_bytes(MemoryPurpose::kState), 15u);
  EXPECT_EQ(ledger.allocations().size(), 3u);
  EXPECT_EQ(ledger.remove(&memory[1]).bytes, 10u);
  EXPECT_EQ(ledger.used_bytes(MemoryPurpose::kState), 5u);
  EXPECT_EQ(ledger.remove(&memory[0]).purpose, MemoryPurpose::kWeights);
  ledger.remove(&memory[2]);
  EXPECT_EQ(ledger.used_bytes(), 0u);
}

TEST(MemoryLedger, RefusesWhatTheBudgetDoesNotCoverAndNotAByteLess) {
  std::byte memory;
  MemoryLedger ledger(100, kWording);
  ledger.add(&memory, {60, MemoryPurpose::kWeights});
  EXPECT_TRUE(ledger.check_budget(40, MemoryPurpose::kState));
  const auto refused = ledger.check_budget(41, MemoryPurpose::kState);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(
      refused.error().message,
      "41 bytes of slate for state: the device's budget does not cover it. Budget 100 bytes, 40 free, held: weights "
      "60. Write smaller.");
  ledger.remove(&memory);
}

TEST(MemoryLedgerDeathTest, NamesWhatWasNeverGivenBack) {
  std::byte memory;
  EXPECT_DEATH(MemoryLedger(100, kWording).remove(&memory), "never gave out");
  EXPECT_DEATH(MemoryLedger(100, kWording).add(&memory, {60, MemoryPurpose::kWeights}), "60 bytes still held");
}

}  // namespace
}  // namespace llorch::engine::compute
