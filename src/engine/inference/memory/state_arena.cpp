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
  return static_cast<std::uint64_t>(std::ranges::count_if(descs, is_paged)) * limits.slots *
         pages_of(limits.context_tokens) * sizeof(std::byte*);
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
    StateBlockHandle handle{.id = desc.id, .align_bytes = desc.align_bytes};
    if (is_paged(desc)) {
      TRY(arena.make_page_table(state, limits));
      handle.size = desc.size_bytes;
      handle.pages = reinterpret_cast<std::byte* const*>(state.pages.data());
      handle.pages_stride = static_cast<std::uint32_t>(pages_of(limits.context_tokens));
    } else {
      handle.ptr = state.memory.data();
      handle.size = state.slot_bytes;
    }
    arena.handles_.push_back(handle);
    arena.states_.push_back(std::move(state));
  }
  return arena;
}

base::Result<> StateArena::make_page_table(State& state, const StateLimits& limits) {
  std::vector<std::byte*> table;
  for (std::uint32_t slot = 0; slot < limits.slots; ++slot) {
    for (std::uint64_t page = 0; page < pages_of(limits.context_tokens); ++page) {
      table.push_back(state.memory.data() + slot * state.slot_bytes + page * state.desc.size_bytes);
    }
  }
  const auto bytes = std::as_bytes(std::span(table));
  state.pages = TRY(DeviceBuffer::allocate(*backend_, bytes.size(), MemoryPurpose::kTables));
  backend_->copy_to_device(state.pages.data(), bytes);
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
