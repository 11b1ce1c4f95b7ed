#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/plan/backend.h"
#include "engine/plan/state.h"

namespace llorch::engine::inference::memory {

// Bytes one slot needs of a state of fixed size; 0 for a paged one, whose pages are others' (kv_cache/).
std::uint64_t slot_state_bytes(const plan::StateDescriptor& desc);
// Whether a slot's state is more than pages, so that it can only go back to where a copy was made.
bool wants_checkpoint(const plan::StateDescriptor& desc);

struct StateInput {
  std::span<const plan::StateDescriptor> descs;
  std::span<const plan::StateBlockHandle> paged;  // of the paged ones among them
  std::uint32_t slots = 1;
  bool keeps_checkpoints = false;  // room for a copy of every slot-persistent state of fixed size
};

struct SlotPair {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

// The states of all slots, taken at start from a plan's descriptors, and the memory of those of fixed size. Every action on
// a slot's state goes through the lifecycle matrix. Not thread-safe.
class StateArena {
 public:
  // Errors: OUT_OF_DEVICE_MEMORY.
  static base::Result<StateArena> make(const StateInput& input, plan::Backend& backend);

  // Does `action` to one state of one slot: checks the matrix and that the state is allocated (alloc: that it is not), zeroes
  // what the descriptor or the policy says. Slot-persistent states are allocated by make(); deinit twice is fine.
  // Errors: INVALID_STATE_LIFECYCLE_ACTION, UNKNOWN_STATE_DESCRIPTOR_ID. REQUIRES: action is not kCloneForFork.
  base::Result<> apply(plan::LifecycleAction action, std::uint8_t state_id, std::uint32_t slot);
  // The same for every slot-persistent state of the slot.
  base::Result<> apply_all(plan::LifecycleAction action, std::uint32_t slot);
  // kCloneForFork of every state that `slots.from` has: those of fixed size are copied, pages are others'.
  // Errors: INVALID_STATE_LIFECYCLE_ACTION (a state of either slot forbids it), with nothing done.
  base::Result<> fork(const SlotPair& slots);

  // Copies what a slot holds besides pages, and puts the copy back. REQUIRES: keeps_checkpoints.
  void checkpoint(std::uint32_t slot);
  void restore(std::uint32_t slot);

  std::span<const plan::StateBlockHandle> handles() const { return handles_; }  // parallel to the descriptors

 private:
  struct State {
    plan::StateDescriptor desc;
    std::uint64_t slot_bytes = 0;    // 0: paged
    plan::DeviceBuffer memory;       // [slots][slot_bytes]
    plan::DeviceBuffer checkpoints;  // the same; none without keeps_checkpoints
    std::vector<bool> allocated;     // [slots]

    std::byte* of(std::uint32_t slot) const { return memory.data() + slot * slot_bytes; }
  };
  static base::Result<> refuse(const State& state, plan::LifecycleAction action, std::uint32_t slot);

  plan::Backend* backend_ = nullptr;
  std::vector<State> states_;
  std::vector<plan::StateBlockHandle> handles_;
};

}  // namespace llorch::engine::inference::memory
