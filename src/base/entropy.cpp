#include "base/entropy.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/philox.h"

namespace llorch::base {

std::uint64_t Entropy::next_u64() {
  std::uint64_t value = 0;
  fill(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void SystemEntropy::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    ASSERT(n > 0, "getrandom: {}", std::strerror(errno));
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

void SeededEntropy::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const PhiloxBlock block = philox(seed_, {.position = block_++, .purpose = PhiloxPurpose::kEntropy});
    const std::size_t n = std::min(out.size(), sizeof(block));
    std::memcpy(out.data(), block.data(), n);
    out = out.subspan(n);
  }
}

}  // namespace llorch::base
