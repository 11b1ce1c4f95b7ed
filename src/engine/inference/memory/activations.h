#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/plan/backend.h"
#include "engine/plan/plan.h"

namespace llorch::engine::inference::memory {

// One set of buffers that serves several plans, each large enough for the largest of them. The n-th buffer of a row domain
// in one plan is the n-th of that domain in every plan.
std::vector<plan::PhysicalSpec> shared_buffers(std::span<const plan::PhysicalMapping> mappings);

class Activations {
 public:
  static base::Result<Activations> make(std::span<const plan::PhysicalSpec> specs, plan::Backend& backend);
  // The buffers of one plan, by physical index.
  std::vector<std::byte*> of(const plan::PhysicalMapping& mapping) const;

 private:
  std::vector<plan::PhysicalSpec> specs_;
  std::vector<plan::DeviceBuffer> buffers_;
};

}  // namespace llorch::engine::inference::memory
