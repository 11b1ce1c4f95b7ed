#include "engine/inference/memory/weight_store.h"

#include <fmt/format.h>

namespace llorch::engine::inference::memory {
namespace {

contract::TensorViewDesc view_of(const contract::StoredTensor& tensor) {
  contract::TensorViewDesc view{.dtype = tensor.dtype,
                                .rank = tensor.rank,
                                .layout = contract::TensorLayout::kBackendNative,
                                .shape = tensor.shape,
                                .stride_elems = {}};
  std::uint32_t stride = 1;
  for (std::uint8_t d = tensor.rank; d-- > 0;) {
    view.stride_elems[d] = stride;
    stride *= tensor.shape[d];
  }
  return view;
}

}  // namespace

base::Result<WeightStore> WeightStore::upload(std::span<const models::BoundTensor> tensors, contract::Backend& backend,
                                              const UploadProgress& progress) {
  WeightStore store;
  store.backend_ = &backend;
  store.weights_.reserve(tensors.size());
  std::uint64_t bytes_total = 0;
  for (const models::BoundTensor& tensor : tensors) bytes_total += tensor.bytes_count();
  std::uint64_t bytes_done = 0;
  models::FetchScratch scratch;
  for (const models::BoundTensor& tensor : tensors) {
    base::Result<void*> ptr = backend.upload_weight(tensor.fetch(scratch));
    if (!ptr) {
      base::Error error = std::move(ptr).error();
      error.message = fmt::format("tensor {}: {}", tensor.name, error.message);
      return base::fail(std::move(error));
    }
    store.weights_.push_back({.ptr = *ptr, .view = view_of(tensor.stored)});
    bytes_done += tensor.bytes_count();
    if (progress) progress(bytes_done, bytes_total);
  }
  return store;
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
