#include "engine/inference/memory/state_arena.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference::memory {
namespace {

using namespace plan;
using base::ErrorCode;

bool is_paged(const StateDescriptor& desc) { return desc.bytes_per_token > 0; }

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t align) { return (bytes + align - 1) / align * align; }

constexpr std::string_view kActionNames[] = {"alloc", "reset", "reuse", "evict", "clone_for_fork", "deinit"};

}  // namespace

std::uint64_t slot_state_bytes(const StateDescriptor& desc) {
  return is_paged(desc) ? 0 : round_up(desc.size_bytes, std::max<std::uint64_t>(desc.align_bytes, 64));
}

bool wants_checkpoint(const StateDescriptor& desc) {
  return desc.lifecycle == StateLifecycle::kSlotPersistent && !is_paged(desc);
}

base::Result<StateArena> StateArena::make(const StateInput& input, Backend& backend) {
  StateArena arena;
  arena.backend_ = &backend;
  for (const StateDescriptor& desc : input.descs) {
    State state{.desc = desc, .slot_bytes = slot_state_bytes(desc), .memory = {}, .checkpoints = {}, .allocated = {}};
    state.allocated.assign(input.slots, desc.lifecycle == StateLifecycle::kSlotPersistent);
    if (is_paged(desc)) {
      const auto handle = std::ranges::find(input.paged, desc.id, &StateBlockHandle::id);
      ASSERT(handle != input.paged.end() && !desc.zero_init, "state {} has no pages, or wants zeros", desc.id);
      arena.handles_.push_back(*handle);
    } else {
      state.memory = TRY(DeviceBuffer::allocate(backend, state.slot_bytes * input.slots, MemoryPurpose::kState));
      if (input.keeps_checkpoints && wants_checkpoint(desc)) {
        state.checkpoints = TRY(DeviceBuffer::allocate(backend, state.slot_bytes * input.slots, MemoryPurpose::kState));
      }
      arena.handles_.push_back(
          {.id = desc.id, .align_bytes = desc.align_bytes, .ptr = state.memory.data(), .size = state.slot_bytes});
    }
    arena.states_.push_back(std::move(state));
  }
  return arena;
}

base::Result<> StateArena::refuse(const State& state, LifecycleAction action, std::uint32_t slot) {
  return base::fail(
      ErrorCode::kInvalidStateLifecycleAction,
      fmt::format("{} of state {} (lifecycle {}, {}) in slot {}", kActionNames[static_cast<int>(action)], state.desc.id,
                  static_cast<int>(state.desc.lifecycle), state.allocated[slot] ? "allocated" : "not allocated", slot));
}

base::Result<> StateArena::apply(LifecycleAction action, std::uint8_t state_id, std::uint32_t slot) {
  ASSERT(action != LifecycleAction::kCloneForFork, "a fork needs two slots");
  const auto state = std::ranges::find_if(states_, [&](const State& s) { return s.desc.id == state_id; });
  if (state == states_.end())
    return base::fail(ErrorCode::kUnknownStateDescriptorId, fmt::format("no state has id {}", state_id));
  ASSERT(slot < state->allocated.size(), "slot={} slots={}", slot, state->allocated.size());
  const LifecyclePolicy rule = policy(state->desc.lifecycle, action);
  const bool allocates = action == LifecycleAction::kAlloc;
  const bool ends = action == LifecycleAction::kDeinit;
  if (!rule.allowed || (!ends && state->allocated[slot] == allocates)) return refuse(*state, action, slot);
  if (allocates || ends) state->allocated[slot] = allocates;
  const bool zeroing = allocates || action == LifecycleAction::kReset || action == LifecycleAction::kEvict;
  if (zeroing && (state->desc.zero_init || rule.zeroes)) backend_->zero(state->of(slot), state->slot_bytes);
  return {};
}

base::Result<> StateArena::apply_all(LifecycleAction action, std::uint32_t slot) {
  for (const State& state : states_) {
    if (state.desc.lifecycle == StateLifecycle::kSlotPersistent) TRY(apply(action, state.desc.id, slot));
  }
  return {};
}

void StateArena::checkpoint(std::uint32_t slot) {
  for (const State& state : states_) {
    if (state.checkpoints.data() == nullptr) continue;
    backend_->copy_on_device(state.checkpoints.data() + slot * state.slot_bytes, state.of(slot), state.slot_bytes);
  }
}

void StateArena::restore(std::uint32_t slot) {
  for (const State& state : states_) {
    if (state.checkpoints.data() == nullptr) continue;
    backend_->copy_on_device(state.of(slot), state.checkpoints.data() + slot * state.slot_bytes, state.slot_bytes);
  }
}

base::Result<> StateArena::fork(const SlotPair& slots) {
  const auto action = LifecycleAction::kCloneForFork;
  for (const State& state : states_) {
    const bool persistent = state.desc.lifecycle == StateLifecycle::kSlotPersistent;
    const bool may = policy(state.desc.lifecycle, action).allowed && state.desc.forkable;
    if (state.allocated[slots.from] ? !may : persistent) return refuse(state, action, slots.from);
    if (state.allocated[slots.to] != state.allocated[slots.from]) return refuse(state, action, slots.to);
  }
  for (const State& state : states_) {
    if (state.allocated[slots.from] && state.slot_bytes != 0)
      backend_->copy_on_device(state.of(slots.to), state.of(slots.from), state.slot_bytes);
  }
  return {};
}

}  // namespace llorch::engine::inference::memory
