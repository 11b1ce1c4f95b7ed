#include "engine/inference/memory/state_arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/inference/testing/recording_backend.h"

namespace llorch::engine::inference::memory {
namespace {

using namespace contract;
using base::ErrorCode;
using testing::RecordingBackend;

constexpr StateDescriptor kKv{.id = 0, .kind = StateKind::kKv, .bytes_per_token = 8, .size_bytes = 512};
constexpr StateDescriptor kRecurrent{.id = 2, .kind = StateKind::kSsm, .zero_init = true, .size_bytes = 100};
constexpr StateDescriptor kRequest{.id = 4, .lifecycle = StateLifecycle::kRequestScoped, .size_bytes = 64};
constexpr StateDescriptor kStep{.id = 5, .lifecycle = StateLifecycle::kStepScoped, .size_bytes = 64};
constexpr std::array kAll{kKv, kRecurrent, kRequest, kStep};

struct Fixture {
  RecordingBackend backend;
  StateArena arena = StateArena::make(kAll, {.slots = 3, .context_tokens = 130}, backend).value();

  std::span<std::byte> block(std::size_t descriptor, std::uint32_t slot) {
    const StateBlockHandle& handle = arena.handles()[descriptor];
    return {handle.ptr + slot * handle.size, handle.size};
  }
  ErrorCode code(LifecycleAction action, std::uint8_t id) {
    const auto result = arena.apply(action, id, 1);
    return result ? ErrorCode{} : result.error().code;
  }
};

bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(value); });
}

TEST(StateArena, PagesOfSlotsAreDisjointAndAligned) {
  Fixture f;
  const StateBlockHandle& kv = f.arena.handles()[0];
  EXPECT_EQ(kv.pages_stride, 3U);
  std::vector<std::byte*> pages(kv.pages, kv.pages + 9);
  std::ranges::sort(pages);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages[i]) % 64, 0U);
    if (i > 0) {
      EXPECT_GE(pages[i] - pages[i - 1], 512);
    }
  }
}

// Every pair of the matrix, from the state in which only the matrix can forbid it.
TEST(StateArena, FollowsTheLifecycleMatrix) {
  for (const StateDescriptor& desc : kAll) {
    for (int a = 0; a < static_cast<int>(kLifecycleActionCount); ++a) {
      const auto action = static_cast<LifecycleAction>(a);
      if (action == LifecycleAction::kCloneForFork) continue;
      Fixture f;
      const bool persistent = desc.lifecycle == StateLifecycle::kSlotPersistent;
      const bool allocates = action == LifecycleAction::kAlloc;
      if (persistent == allocates) {
        const auto prelude = allocates ? LifecycleAction::kDeinit : LifecycleAction::kAlloc;
        ASSERT_EQ(f.code(prelude, desc.id), ErrorCode{});
      }
      const bool allowed = policy(desc.lifecycle, action).allowed;
      EXPECT_EQ(f.code(action, desc.id), allowed ? ErrorCode{} : ErrorCode::kInvalidStateLifecycleAction)
          << "state " << int{desc.id} << " action " << a;
    }
  }
}

TEST(StateArena, NothingButDeinitWithoutAllocation) {
  Fixture f;
  EXPECT_EQ(f.code(LifecycleAction::kEvict, kRequest.id), ErrorCode::kInvalidStateLifecycleAction);
  EXPECT_EQ(f.code(LifecycleAction::kAlloc, kKv.id), ErrorCode::kInvalidStateLifecycleAction);  // make() did it
  EXPECT_EQ(f.code(LifecycleAction::kDeinit, kKv.id), ErrorCode{});
  EXPECT_EQ(f.code(LifecycleAction::kDeinit, kKv.id), ErrorCode{});  // twice is fine
  EXPECT_EQ(f.code(LifecycleAction::kReset, kKv.id), ErrorCode::kInvalidStateLifecycleAction);
  EXPECT_EQ(f.code(LifecycleAction::kReset, 9), ErrorCode::kUnknownStateDescriptorId);
}

TEST(StateArena, ZeroesOneSlotWhenAsked) {
  Fixture f;
  for (std::uint32_t slot = 0; slot < 3; ++slot) std::ranges::fill(f.block(1, slot), std::byte{7});
  ASSERT_TRUE(f.arena.apply_all(LifecycleAction::kReuse, 1));
  EXPECT_TRUE(all(f.block(1, 1), 7));  // reuse never zeroes
  ASSERT_TRUE(f.arena.apply_all(LifecycleAction::kReset, 1));
  EXPECT_TRUE(all(f.block(1, 1), 0));
  EXPECT_TRUE(all(f.block(1, 0), 7) && all(f.block(1, 2), 7));
}

TEST(StateArena, CachePagesAreNotZeroedOnReset) {
  Fixture f;
  std::byte* const page = f.arena.handles()[0].pages[1 * 3];
  *page = std::byte{7};
  ASSERT_TRUE(f.arena.apply_all(LifecycleAction::kReset, 1));
  EXPECT_EQ(*page, std::byte{7});
}

TEST(StateArena, RequestStateIsZeroedAtAdmission) {
  Fixture f;
  std::ranges::fill(f.block(2, 1), std::byte{7});
  EXPECT_EQ(f.code(LifecycleAction::kAlloc, kRequest.id), ErrorCode{});
  EXPECT_TRUE(all(f.block(2, 1), 0));
}

}  // namespace
}  // namespace llorch::engine::inference::memory
