#include "engine/inference/memory/state_arena.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference::memory {
namespace {

using namespace contract;
using base::ErrorCode;

bool is_paged(const StateDescriptor& desc) { return desc.bytes_per_token > 0; }

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t align) { return (bytes + align - 1) / align * align; }

constexpr std::string_view kActionNames[] = {"alloc", "reset", "reuse", "evict", "clone_for_fork", "deinit"};

}  // namespace

std::uint64_t slot_state_bytes(const StateDescriptor& desc, std::uint32_t context_tokens) {
  const std::uint64_t bytes = is_paged(desc) ? pages_of(context_tokens) * desc.size_bytes : desc.size_bytes;
  return round_up(bytes, std::max<std::uint64_t>(desc.align_bytes, 64));
}

std::uint64_t page_table_bytes(std::span<const StateDescriptor> descs, const StateLimits& limits) {
  return std::ranges::any_of(descs, is_paged) ? limits.slots * pages_of(limits.context_tokens) * sizeof(std::byte*) : 0;
}

base::Result<StateArena> StateArena::make(std::span<const StateDescriptor> descs, const StateLimits& limits,
                                          Backend& backend) {
  StateArena arena;
  arena.backend_ = &backend;
  for (const StateDescriptor& desc : descs) {
    State state{
        .desc = desc, .slot_bytes = slot_state_bytes(desc, limits.context_tokens), .memory = {}, .allocated = {}};
    state.memory = TRY(DeviceBuffer::allocate(backend, state.slot_bytes * limits.slots, MemoryPurpose::kState));
    state.allocated.assign(limits.slots, desc.lifecycle == StateLifecycle::kSlotPersistent);
    arena.handles_.push_back({.id = desc.id,
                              .align_bytes = desc.align_bytes,
                              .ptr = is_paged(desc) ? nullptr : state.memory.data(),
                              .size = is_paged(desc) ? desc.size_bytes : state.slot_bytes});
    arena.states_.push_back(std::move(state));
  }
  TRY(arena.make_page_table(limits));
  return arena;
}

base::Result<> StateArena::make_page_table(const StateLimits& limits) {
  const auto paged = std::ranges::find_if(states_, [](const State& state) { return is_paged(state.desc); });
  if (paged == states_.end()) return {};
  pages_per_slot_ = static_cast<std::uint32_t>(pages_of(limits.context_tokens));
  std::vector<std::byte*> table;
  for (std::uint32_t slot = 0; slot < limits.slots; ++slot) {
    for (std::uint32_t page = 0; page < pages_per_slot_; ++page) {
      table.push_back(paged->memory.data() + slot * paged->slot_bytes + page * paged->desc.size_bytes);
    }
  }
  const auto bytes = std::as_bytes(std::span(table));
  page_table_ = TRY(DeviceBuffer::allocate(*backend_, bytes.size(), MemoryPurpose::kTables));
  backend_->copy_to_device(page_table_.data(), bytes);
  return {};
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
  if (!rule.allowed || (!ends && state->allocated[slot] == allocates)) {
    return base::fail(
        ErrorCode::kInvalidStateLifecycleAction,
        fmt::format("{} of state {} (lifecycle {}, {}) in slot {}", kActionNames[static_cast<int>(action)], state_id,
                    static_cast<int>(state->desc.lifecycle), state->allocated[slot] ? "allocated" : "not allocated",
                    slot));
  }
  if (allocates || ends) state->allocated[slot] = allocates;
  const bool zeroing = allocates || action == LifecycleAction::kReset || action == LifecycleAction::kEvict;
  if (zeroing && (state->desc.zero_init || rule.zeroes)) {
    backend_->zero(state->memory.data() + slot * state->slot_bytes, state->slot_bytes);
  }
  return {};
}

base::Result<> StateArena::apply_all(LifecycleAction action, std::uint32_t slot) {
  for (const State& state : states_) {
    if (state.desc.lifecycle == StateLifecycle::kSlotPersistent) TRY(apply(action, state.desc.id, slot));
  }
  return {};
}

}  // namespace llorch::engine::inference::memory
