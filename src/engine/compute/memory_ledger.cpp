#include "engine/compute/memory_ledger.h"

#include <fmt/core.h>

#include <numeric>
#include <string>

#include "base/assert.h"

namespace llorch::engine::compute {

using base::fail;
using base::Result;
using plan::MemoryPurpose;

MemoryLedger::~MemoryLedger() {
  ASSERT(allocations_.empty(), "{} allocations, {} bytes still held", allocations_.size(), used_bytes());
}

std::uint64_t MemoryLedger::used_bytes() const {
  return std::accumulate(used_bytes_.begin(), used_bytes_.end(), std::uint64_t{0});
}

Result<> MemoryLedger::check_budget(std::uint64_t bytes, MemoryPurpose purpose) const {
  ASSERT(bytes > 0, "an allocation of nothing for {}", plan::memory_purpose_name(purpose));
  if (bytes > budget_bytes_ - used_bytes())
    return fail(refusal(bytes, purpose, "the device's budget does not cover it"));
  return {};
}

base::Error MemoryLedger::refusal(std::uint64_t bytes, MemoryPurpose purpose, std::string_view why) const {
  const std::string_view name = plan::memory_purpose_name(purpose);
  const std::uint64_t free = budget_bytes_ - used_bytes();
  std::string held;
  for (std::size_t i = 0; i < used_bytes_.size(); ++i)
    if (used_bytes_[i] != 0)
      held += fmt::format("{}{} {}", held.empty() ? "" : ", ", plan::memory_purpose_name(static_cast<MemoryPurpose>(i)),
                          used_bytes_[i]);
  return base::Error{base::ErrorCode::kOutOfDeviceMemory,
                     fmt::format("{} {} for {}: {}. Budget {} bytes, {} free, held: {}. {}", bytes, wording_.memory,
                                 name, why, budget_bytes_, free, held.empty() ? "nothing" : held, wording_.advice),
                     {}}
      .with("required_bytes", static_cast<std::int64_t>(bytes))
      .with("free_bytes", static_cast<std::int64_t>(free))
      .with("budget_bytes", static_cast<std::int64_t>(budget_bytes_))
      .with("purpose", std::string(name));
}

void MemoryLedger::add(std::byte* ptr, const Allocation& allocation) {
  const bool is_new = allocations_.emplace(ptr, allocation).second;
  ASSERT(is_new, "memory that was given out already");
  used_bytes_[static_cast<std::size_t>(allocation.purpose)] += allocation.bytes;
}

MemoryLedger::Allocation MemoryLedger::remove(std::byte* ptr) {
  const auto it = allocations_.find(ptr);
  ASSERT(it != allocations_.end(), "memory this device never gave out, or twice released");
  const Allocation allocation = it->second;
  allocations_.erase(it);
  used_bytes_[static_cast<std::size_t>(allocation.purpose)] -= allocation.bytes;
  return allocation;
}

}  // namespace llorch::engine::compute
