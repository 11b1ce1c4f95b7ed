#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/models/model.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference::memory {

struct DeviceWeight {
  void* ptr = nullptr;
  plan::TensorViewDesc view;  // dtype and shape as stored
};

// A model's weights on a device. Releases them at the end.
class WeightStore {
 public:
  // All or none. `tensors` in the order of their numbers; their files stay open during the call.
  static base::Result<WeightStore> upload(std::span<const models::BoundTensor> tensors, plan::Backend& backend,
                                          const plan::UploadProgress& progress);
  WeightStore() = default;
  WeightStore(WeightStore&& other) noexcept;
  WeightStore& operator=(WeightStore&& other) noexcept;
  ~WeightStore();

  const DeviceWeight& at(std::uint32_t tensor) const { return weights_.at(tensor); }

 private:
  plan::Backend* backend_ = nullptr;
  std::vector<DeviceWeight> weights_;  // by tensor number
};

}  // namespace llorch::engine::inference::memory
