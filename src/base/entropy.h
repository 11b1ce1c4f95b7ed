#pragma once
// Randomness as a parameter: ids, keys, nonces, seeds of unseeded requests. Sampling never uses it (see philox.h).
#include <cstddef>
#include <cstdint>
#include <span>

namespace llorch::base {

class Entropy {
 public:
  virtual ~Entropy() = default;
  virtual void fill(std::span<std::byte> out) = 0;
  std::uint64_t next_u64();
};

// getrandom(2); aborts if the kernel has none to give.
class SystemEntropy final : public Entropy {
 public:
  void fill(std::span<std::byte> out) override;
};

// Repeatable; for tests and simulation only.
class SeededEntropy final : public Entropy {
 public:
  explicit SeededEntropy(std::uint64_t seed) : seed_(seed) {}
  void fill(std::span<std::byte> out) override;

 private:
  std::uint64_t seed_;
  std::uint32_t block_ = 0;
};

}  // namespace llorch::base
