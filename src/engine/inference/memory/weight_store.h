#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/models/model.h"

namespace llorch::engine::inference::memory {

// Bytes of the file handed to the device so far, and in all.
using UploadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

struct DeviceWeight {
  std::uint32_t tensor = 0;
  void* ptr = nullptr;
  contract::TensorViewDesc view;  // dtype and shape as stored
};

// A model's weights on a device. Releases them at the end.
class WeightStore {
 public:
  static base::Result<WeightStore> upload(std::span<const models::BoundTensor> tensors, contract::Backend& backend,
                                          const UploadProgress& progress);
  WeightStore() = default;
  WeightStore(WeightStore&& other) noexcept;
  WeightStore& operator=(WeightStore&& other) noexcept;
  ~WeightStore();

  // REQUIRES: `tensor` was among the uploaded.
  const DeviceWeight& at(std::uint32_t tensor) const;

 private:
  contract::Backend* backend_ = nullptr;
  std::vector<DeviceWeight> weights_;  // ascending tensor number
};

}  // namespace llorch::engine::inference::memory
