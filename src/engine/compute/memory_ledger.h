#pragma once
// What a device has given out, by purpose, and how it refuses more. The memory itself is the device's affair.
// Thread rule: one at a time.
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "engine/plan/backend.h"

namespace llorch::engine::compute {

class MemoryLedger {
 public:
  struct Allocation {
    std::uint64_t bytes = 0;
    plan::MemoryPurpose purpose{};
  };
  // What a refusal says of the device.
  struct Wording {
    std::string_view memory;  // "bytes of VRAM"
    std::string_view advice;  // whole sentences
  };
  MemoryLedger(std::uint64_t budget_bytes, const Wording& wording) : budget_bytes_(budget_bytes), wording_(wording) {}
  ~MemoryLedger();  // REQUIRES: all of it was given back
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Errors: OUT_OF_DEVICE_MEMORY. REQUIRES: bytes > 0.
  base::Result<> check_budget(std::uint64_t bytes, plan::MemoryPurpose purpose) const;
  // OUT_OF_DEVICE_MEMORY with all the numbers.
  base::Error refusal(std::uint64_t bytes, plan::MemoryPurpose purpose, std::string_view why) const;

  void add(std::byte* ptr, const Allocation& allocation);
  // What was at `ptr`, which is forgotten. REQUIRES: added before.
  Allocation remove(std::byte* ptr);

  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint64_t used_bytes() const;
  std::uint64_t used_bytes(plan::MemoryPurpose purpose) const { return used_bytes_[static_cast<std::size_t>(purpose)]; }
  const std::unordered_map<std::byte*, Allocation>& allocations() const { return allocations_; }

 private:
  std::uint64_t budget_bytes_;
  Wording wording_;
  std::array<std::uint64_t, plan::kMemoryPurposesCount> used_bytes_{};  // by MemoryPurpose
  std::unordered_map<std::byte*, Allocation> allocations_;
};

}  // namespace llorch::engine::compute
