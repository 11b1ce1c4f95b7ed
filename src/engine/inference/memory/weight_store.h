#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/models/model.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference::memory {

struct DeviceWeight {
  void* ptr = nullptr;
  plan::TensorViewDesc view;  // dtype and shape as stored
  std::string name;
};

// A model's weights on a device. Releases them at the end.
class WeightStore {
 public:
  // All or none. `tensors` in the order of their numbers; their files stay open during the call.
  static base::Result<WeightStore> upload(std::span<const models::BoundTensor> tensors, plan::Backend& backend,
                                          const plan::UploadProgress& progress);
  // The same from packed bytes that were kept.
  static base::Result<WeightStore> upload_packed(std::span<const models::BoundTensor> tensors,
                                                 const plan::PackedSource& packed, plan::Backend& backend,
                                                 const plan::UploadProgress& progress);
  WeightStore() = default;
  WeightStore(WeightStore&& other) noexcept;
  WeightStore& operator=(WeightStore&& other) noexcept;
  ~WeightStore();

  const DeviceWeight& at(std::uint32_t tensor) const { return weights_.at(tensor); }
  std::span<const DeviceWeight> all() const { return weights_; }

 private:
  template <class Upload>
  static base::Result<WeightStore> make(std::span<const models::BoundTensor> tensors, plan::Backend& backend,
                                        const Upload& upload);
  plan::Backend* backend_ = nullptr;
  std::vector<DeviceWeight> weights_;  // by tensor number
};

}  // namespace llorch::engine::inference::memory
