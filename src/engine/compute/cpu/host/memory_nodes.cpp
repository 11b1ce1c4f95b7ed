#include "engine/compute/cpu/host/memory_nodes.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>

namespace llorch::engine::compute::cpu::host {
namespace {

constexpr unsigned long kNodesMost = 1024;  // of any Linux
constexpr unsigned long kWordBits = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kNodesMost / kWordBits>;

bool has_processor_of(const cpu_set_t& processors, unsigned long node) {
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &processors)) continue;
    const std::string path =
        "/sys/devices/system/node/node" + std::to_string(node) + "/cpu" + std::to_string(processor);
    if (::access(path.c_str(), F_OK) == 0) return true;
  }
  return false;
}

// Empty: the system does not say.
NodeMask nodes_of_thread() {
  NodeMask nodes{};
  cpu_set_t processors;
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0 ||
      ::syscall(SYS_get_mempolicy, nullptr, nodes.data(), kNodesMost, nullptr,
                static_cast<unsigned long>(MPOL_F_MEMS_ALLOWED)) != 0)
    return {};
  for (unsigned long node = 0; node < kNodesMost; ++node) {
    unsigned long& word = nodes[node / kWordBits];
    const unsigned long bit = 1UL << node % kWordBits;
    if ((word & bit) != 0 && !has_processor_of(processors, node)) word &= ~bit;
  }
  return nodes;
}

}  // namespace

void interleave(std::byte* memory, std::uint64_t bytes) {
  int policy = 0;
  if (::syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, nullptr, 0UL) != 0 || policy != MPOL_DEFAULT) return;
  const NodeMask nodes = nodes_of_thread();
  // The system takes one bit off what it is told of the mask.
  ::syscall(SYS_mbind, memory, bytes, static_cast<unsigned long>(MPOL_INTERLEAVE), nodes.data(), kNodesMost + 1, 0UL);
}

}  // namespace llorch::engine::compute::cpu::host
