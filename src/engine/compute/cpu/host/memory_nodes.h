#pragma once
// Where memory lies on a machine of several NUMA nodes.
#include <cstddef>
#include <cstdint>

namespace llorch::engine::compute::cpu::host {

// Has the pages of a mapping lie in turn on the nodes whose processors and memory the calling thread may use, so that everything is
// read from the controllers of all of them, whichever thread reads it. Call before the first touch; `memory` begins a page. Does
// nothing where the thread has a policy of memory already. Advice only: a system that refuses costs speed, nothing else.
void interleave(std::byte* memory, std::uint64_t bytes);

}  // namespace llorch::engine::compute::cpu::host
