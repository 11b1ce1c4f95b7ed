#pragma once
// How many descriptors (sockets, files) a process may have open.
#include <cstddef>

namespace llorch::base {

// Raises the soft limit, which a shell sets to 1024 for select(), to the hard one. A daemon of many sockets calls it first in main.
void raise_descriptor_limit();
// The soft limit that holds now.
std::size_t descriptor_limit();
// Sets the limit that raise_descriptor_limit() found, if it was called: other programs may use select(). Between fork and exec.
void restore_descriptor_limit();

}  // namespace llorch::base
