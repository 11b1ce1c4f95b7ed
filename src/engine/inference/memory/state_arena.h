#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/contract/state.h"

namespace llorch::engine::inference::memory {

struct StateLimits {
  std::uint32_t slots = 1;
  std::uint32_t context_tokens = 0;
};

// Bytes one slot needs of a state: a fixed size, or whole pages for the context.
std::uint64_t slot_state_bytes(const contract::StateDescriptor& desc, std::uint32_t context_tokens);
// Bytes of the device's tables of page addresses.
std::uint64_t page_table_bytes(std::span<const contract::StateDescriptor> descs, const StateLimits& limits);

// The state memory of all slots, taken at start from a plan's descriptors. Every action on a slot's state goes through the
// lifecycle matrix. Not thread-safe.
class StateArena {
 public:
  // Errors: OUT_OF_DEVICE_MEMORY.
  static base::Result<StateArena> make(std::span<const contract::StateDescriptor> descs, const StateLimits& limits,
                                       contract::Backend& backend);

  // Does `action` to one state of one slot: checks the matrix and that the state is allocated (alloc: that it is not), zeroes
  // what the descriptor or the policy says. Slot-persistent states are allocated by make(); deinit twice is fine.
  // Errors: INVALID_STATE_LIFECYCLE_ACTION, UNKNOWN_STATE_DESCRIPTOR_ID. REQUIRES: action is not kCloneForFork.
  base::Result<> apply(contract::LifecycleAction action, std::uint8_t state_id, std::uint32_t slot);
  // The same for every slot-persistent state of the slot.
  base::Result<> apply_all(contract::LifecycleAction action, std::uint32_t slot);

  std::span<const contract::StateBlockHandle> handles() const { return handles_; }  // parallel to the descriptors

 private:
  struct State {
    contract::StateDescriptor desc;
    std::uint64_t slot_bytes = 0;
    contract::DeviceBuffer memory;  // [slots][slot_bytes]
    contract::DeviceBuffer pages;   // [slots][pages of the context]: addresses of a paged state's pages
    std::vector<bool> allocated;    // [slots]
  };
  base::Result<> make_page_table(State& state, const StateLimits& limits);

  contract::Backend* backend_ = nullptr;
  std::vector<State> states_;
  std::vector<contract::StateBlockHandle> handles_;
};

}  // namespace llorch::engine::inference::memory
