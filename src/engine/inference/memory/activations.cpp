#include "engine/inference/memory/activations.h"

#include <algorithm>
#include <array>

namespace llorch::engine::inference::memory {
namespace {

using namespace plan;

// Position in `specs` of the n-th buffer with this row domain; specs.size() when there are fewer.
std::size_t nth_of(std::span<const PhysicalSpec> specs, RowDomain rows, std::size_t n) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].rows == rows && n-- == 0) return i;
  }
  return specs.size();
}

}  // namespace

std::vector<PhysicalSpec> shared_buffers(std::span<const PhysicalMapping> mappings) {
  std::vector<PhysicalSpec> shared;
  for (const PhysicalMapping& mapping : mappings) {
    std::array<std::size_t, 2> seen{};
    for (const PhysicalSpec& spec : mapping.physical_specs) {
      const std::size_t at = nth_of(shared, spec.rows, seen[static_cast<std::size_t>(spec.rows)]++);
      if (at == shared.size()) shared.push_back(spec);
      shared[at].size_bytes = std::max(shared[at].size_bytes, spec.size_bytes);
      shared[at].align_bytes = std::max(shared[at].align_bytes, spec.align_bytes);
    }
  }
  return shared;
}

base::Result<Activations> Activations::make(std::span<const PhysicalSpec> specs, Backend& backend) {
  Activations activations;
  activations.specs_.assign(specs.begin(), specs.end());
  for (const PhysicalSpec& spec : specs) {
    activations.buffers_.push_back(TRY(DeviceBuffer::allocate(backend, spec.size_bytes, MemoryPurpose::kActivations)));
  }
  return activations;
}

std::vector<std::byte*> Activations::of(const PhysicalMapping& mapping) const {
  std::array<std::size_t, 2> seen{};
  std::vector<std::byte*> result;
  for (const PhysicalSpec& spec : mapping.physical_specs) {
    const std::size_t at = nth_of(specs_, spec.rows, seen[static_cast<std::size_t>(spec.rows)]++);
    result.push_back(buffers_[at].data());
  }
  return result;
}

}  // namespace llorch::engine::inference::memory
