#include "engine/inference/memory/weight_store.h"

#include <utility>

namespace llorch::engine::inference::memory {
namespace {

plan::TensorViewDesc view_of(const plan::StoredTensor& tensor) {
  return {.dtype = tensor.dtype, .rank = tensor.rank, .shape = tensor.shape};
}

}  // namespace

template <class Upload>
base::Result<WeightStore> WeightStore::make(std::span<const models::BoundTensor> tensors, plan::Backend& backend,
                                            const Upload& upload) {
  std::vector<plan::StoredTensor> sources;
  for (const models::BoundTensor& tensor : tensors) sources.push_back(tensor.as_source());
  std::vector<void*> weights(sources.size());
  TRY(upload(std::span<const plan::StoredTensor>(sources), std::span<void*>(weights)));
  WeightStore store;
  store.backend_ = &backend;
  for (std::size_t i = 0; i < weights.size(); ++i)
    store.weights_.push_back({.ptr = weights[i], .view = view_of(sources[i]), .name = std::string(sources[i].name)});
  return store;
}

base::Result<WeightStore> WeightStore::upload(std::span<const models::BoundTensor> tensors, plan::Backend& backend,
                                              const plan::UploadProgress& progress) {
  return make(tensors, backend, [&](std::span<const plan::StoredTensor> sources, std::span<void*> weights) {
    return backend.upload_weights(sources, weights, progress);
  });
}

base::Result<WeightStore> WeightStore::upload_packed(std::span<const models::BoundTensor> tensors,
                                                     const plan::PackedSource& packed, plan::Backend& backend,
                                                     const plan::UploadProgress& progress) {
  return make(tensors, backend, [&](std::span<const plan::StoredTensor> sources, std::span<void*> weights) {
    return backend.upload_packed(sources, packed, weights, progress);
  });
}

WeightStore::WeightStore(WeightStore&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)), weights_(std::move(other.weights_)) {}

WeightStore& WeightStore::operator=(WeightStore&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(weights_, other.weights_);
  return *this;
}

WeightStore::~WeightStore() {
  if (backend_ == nullptr) return;
  for (const DeviceWeight& weight : weights_) backend_->release_weight(weight.ptr);
}

}  // namespace llorch::engine::inference::memory
