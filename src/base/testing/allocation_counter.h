#pragma once
#include <cstdint>

namespace llorch::base::testing {

// Heap allocations by this process since start, all threads. Linking allocation_counter.cpp replaces operator new.
std::uint64_t allocations_count();

}  // namespace llorch::base::testing
