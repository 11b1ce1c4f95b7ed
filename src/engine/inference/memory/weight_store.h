#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/models/model.h"

namespace llorch::engine::inference::memory {

// Bytes of weights handed to the device so far, and in all.
using UploadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

struct DeviceWeight {
  void* ptr = nullptr;
  contract::TensorViewDesc view;  // dtype and shape as stored
};

// A model's weights on a device. Releases them at the end.
class WeightStore {
 public:
  // Fetches one tensor after the other: beside the device only the largest of those that are not in the file as they are
  // wanted takes memory. `tensors` in the order of their numbers.
  static base::Result<WeightStore> upload(std::span<const models::BoundTensor> tensors, contract::Backend& backend,
                                          const UploadProgress& progress);
  WeightStore() = default;
  WeightStore(WeightStore&& other) noexcept;
  WeightStore& operator=(WeightStore&& other) noexcept;
  ~WeightStore();

  const DeviceWeight& at(std::uint32_t tensor) const { return weights_.at(tensor); }

 private:
  contract::Backend* backend_ = nullptr;
  std::vector<DeviceWeight> weights_;  // by tensor number
};

}  // namespace llorch::engine::inference::memory
