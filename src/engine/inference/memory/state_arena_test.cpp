#include "engine/inference/memory/state_arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/inference/testing/recording_backend.h"

namespace llorch::engine::inference::memory {
namespace {

using namespace plan;
using base::ErrorCode;
using testing::RecordingBackend;

constexpr StateDescriptor kKv{
    .id = 0, .kind = StateKind::kKv, .forkable = true, .bytes_per_token = 8, .size_bytes = 512};
constexpr StateDescriptor kRecurrent{.id = 2, .kind = StateKind::kSsm, .zero_init = true, .size_bytes = 100};
constexpr StateDescriptor kRequest{.id = 4, .lifecycle = StateLifecycle::kRequestScoped, .size_bytes = 64};
constexpr StateDescriptor kStep{.id = 5, .lifecycle = StateLifecycle::kStepScoped, .size_bytes = 64};
constexpr StateDescriptor kClone{.id = 6, .kind = StateKind::kConv, .forkable = true, .size_bytes = 64};
constexpr std::array kAll{kKv, kRecurrent, kRequest, kStep, kClone};
constexpr StateBlockHandle kPages{.id = 0, .size = 512, .pages_stride = 3};

struct Fixture {
  RecordingBackend backend;
  StateArena arena = StateArena::make({.descs = kAll, .paged = {&kPages, 1}, .slots = 3}, backend).value();

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

TEST(StateArena, PagesAreOthers) {
  Fixture f;
  EXPECT_EQ(f.arena.handles()[0].pages_stride, 3U);
  EXPECT_EQ(f.backend.bytes_by_purpose[MemoryPurpose::kState], 3U * (128 + 64 + 64 + 64));
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

TEST(StateArena, AForkCopiesOneSlotIntoAnother) {
  RecordingBackend backend;
  const std::array descs{kKv, kClone, kRequest};
  auto arena = StateArena::make({.descs = descs, .paged = {&kPages, 1}, .slots = 3}, backend).value();
  const auto block = [&](std::uint32_t slot) { return std::span(arena.handles()[1].ptr + slot * 64, 64); };
  for (std::uint32_t slot = 0; slot < 3; ++slot) std::ranges::fill(block(slot), std::byte(slot));
  ASSERT_TRUE(arena.fork({.from = 2, .to = 0}));
  EXPECT_TRUE(all(block(0), 2) && all(block(1), 1) && all(block(2), 2));
  std::ranges::fill(block(2), std::byte{9});
  EXPECT_TRUE(all(block(0), 2));
}

TEST(StateArena, ACheckpointIsPutBack) {
  RecordingBackend backend;
  const std::array descs{kKv, kClone, kRequest};
  auto arena =
      StateArena::make({.descs = descs, .paged = {&kPages, 1}, .slots = 3, .keeps_checkpoints = true}, backend).value();
  const auto block = [&](std::uint32_t slot) { return std::span(arena.handles()[1].ptr + slot * 64, 64); };
  for (std::uint32_t slot = 0; slot < 3; ++slot) std::ranges::fill(block(slot), std::byte(slot));
  arena.checkpoint(1);
  arena.checkpoint(2);
  for (std::uint32_t slot = 0; slot < 3; ++slot) std::ranges::fill(block(slot), std::byte{9});
  arena.restore(1);
  EXPECT_TRUE(all(block(0), 9) && all(block(1), 1) && all(block(2), 9));
  // State of a request is never taken back: images come before the first token.
  EXPECT_EQ(backend.bytes_by_purpose[MemoryPurpose::kState], 3U * (64 + 64 + 64));
}

TEST(StateArena, AForkOfWhatMayNotBeClonedDoesNothing) {
  RecordingBackend backend;
  const std::array descs{kClone, kRequest};
  auto arena = StateArena::make({.descs = descs, .paged = {}, .slots = 2}, backend).value();
  *arena.handles()[0].ptr = std::byte{7};
  const auto code = [&] {
    const auto result = arena.fork({.from = 0, .to = 1});
    return result ? ErrorCode{} : result.error().code;
  };
  for (std::uint32_t slot : {0, 1}) {
    ASSERT_TRUE(arena.apply(LifecycleAction::kAlloc, kRequest.id, slot));
    EXPECT_EQ(code(), ErrorCode::kInvalidStateLifecycleAction);
    ASSERT_TRUE(arena.apply(LifecycleAction::kDeinit, kRequest.id, slot));
  }
  EXPECT_EQ(arena.handles()[0].ptr[64], std::byte{0});
  EXPECT_EQ(code(), ErrorCode{});
  EXPECT_EQ(arena.handles()[0].ptr[64], std::byte{7});
  Fixture f;  // kRecurrent is not forkable
  EXPECT_EQ(f.arena.fork({.from = 0, .to = 1}).error().code, ErrorCode::kInvalidStateLifecycleAction);
}

TEST(StateArena, RequestStateIsZeroedAtAdmission) {
  Fixture f;
  std::ranges::fill(f.block(2, 1), std::byte{7});
  EXPECT_EQ(f.code(LifecycleAction::kAlloc, kRequest.id), ErrorCode{});
  EXPECT_TRUE(all(f.block(2, 1), 0));
}

}  // namespace
}  // namespace llorch::engine::inference::memory
