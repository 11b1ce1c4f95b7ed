#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/contract/plan.h"

namespace llorch::engine::inference::memory {

// One set of buffers that serves several plans, each large enough for the largest of them. The n-th buffer of a row domain
// in one plan is the n-th of that domain in every plan.
std::vector<contract::PhysicalSpec> shared_buffers(std::span<const contract::PhysicalMapping> mappings);

class Activations {
 public:
  static base::Result<Activations> make(std::span<const contract::PhysicalSpec> specs, contract::Backend& backend);
  // The buffers of one plan, by physical index.
  std::vector<std::byte*> of(const contract::PhysicalMapping& mapping) const;

 private:
  std::vector<contract::PhysicalSpec> specs_;
  std::vector<contract::DeviceBuffer> buffers_;
};

}  // namespace llorch::engine::inference::memory
