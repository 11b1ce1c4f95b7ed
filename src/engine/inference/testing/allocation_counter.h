#pragma once
#include <cstdint>

namespace llorch::engine::inference::testing {

// Heap allocations by this process since start, all threads. Linking allocation_counter.cpp replaces operator new.
std::uint64_t allocations_count();

}  // namespace llorch::engine::inference::testing
