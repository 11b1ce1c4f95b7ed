#include "engine/compute/cpu/host/memory_nodes.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace llorch::engine::compute::cpu::host {
namespace {

long policy_of(int& policy, const void* address) {
  return ::syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, address,
                   static_cast<unsigned long>(address == nullptr ? 0 : MPOL_F_ADDR));
}

class MemoryNodes : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 5 << 20;

  void SetUp() override {
    int policy = 0;
    if (policy_of(policy, nullptr) != 0) GTEST_SKIP() << "the system tells no policy: " << std::strerror(errno);
    if (policy != MPOL_DEFAULT) GTEST_SKIP() << "this process was given a policy";
    if (::syscall(SYS_mbind, memory_, kBytes, static_cast<unsigned long>(MPOL_DEFAULT), nullptr, 0UL, 0UL) != 0)
      GTEST_SKIP() << "the system takes no policy: " << std::strerror(errno);
  }
  ~MemoryNodes() override {
    ::syscall(SYS_set_mempolicy, static_cast<unsigned long>(MPOL_DEFAULT), nullptr, 0UL);
    ::munmap(memory_, kBytes);
  }

  std::byte* const memory_ =
      static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST_F(MemoryNodes, AreTakenInTurn) {
  interleave(memory_, kBytes);
  for (const std::size_t at : {std::size_t{0}, kBytes - 1}) {
    int policy = 0;
    ASSERT_EQ(policy_of(policy, memory_ + at), 0);
    EXPECT_EQ(policy, MPOL_INTERLEAVE);
  }
  std::memset(memory_, 1, kBytes);  // or the nodes are none that exist
}

TEST_F(MemoryNodes, StayAsTheProcessWasToldToTakeThem) {
  std::array<unsigned long, 16> nodes{1};
  if (::syscall(SYS_set_mempolicy, static_cast<unsigned long>(MPOL_BIND), nodes.data(), 1024UL) != 0)
    GTEST_SKIP() << "node 0 cannot be asked for: " << std::strerror(errno);
  interleave(memory_, kBytes);
  int policy = 0;
  ASSERT_EQ(policy_of(policy, memory_), 0);
  EXPECT_EQ(policy, MPOL_DEFAULT) << "of the mapping: that of the process holds";
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::host
