#pragma once
// The CPU device with one fault, the one the matrix is there to find: its norms sum the squares of a row in as many parts
// as the step has rows, as a kernel does that splits a reduction by how much of the device the batch leaves idle. The
// values are right to the last bit or two; only which bits depends on the company.
#include <memory>
#include <utility>

#include "engine/plan/backend.h"

namespace llorch::determinism {

// Behaves like `inner` in everything else. One at a time lives in a process.
class BatchDependentBackend final : public engine::plan::Backend {
 public:
  explicit BatchDependentBackend(std::unique_ptr<engine::plan::Backend> inner);

  std::string_view device_class() const override { return inner_->device_class(); }
  std::string_view numerics() const override { return inner_->numerics(); }
  std::string_view implementation() const override { return inner_->implementation(); }
  const engine::plan::AdapterTables& tables() const override { return tables_; }
  engine::plan::StreamHandle stream() override { return inner_->stream(); }
  base::Result<std::byte*> allocate(std::uint64_t bytes, engine::plan::MemoryPurpose purpose) override {
    return inner_->allocate(bytes, purpose);
  }
  void release(std::byte* ptr) noexcept override { inner_->release(ptr); }
  std::uint64_t memory_budget_bytes() const override { return inner_->memory_budget_bytes(); }
  std::uint64_t memory_used_bytes() const override { return inner_->memory_used_bytes(); }
  std::uint64_t packed_weight_bytes(const engine::plan::StoredTensor& tensor) const override {
    return inner_->packed_weight_bytes(tensor);
  }
  base::Result<> upload_weights(std::span<const engine::plan::StoredTensor> tensors, std::span<void*> weights,
                                const engine::plan::UploadProgress& progress) override {
    return inner_->upload_weights(tensors, weights, progress);
  }
  void release_weight(void* weight) noexcept override { inner_->release_weight(weight); }
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override {
    inner_->copy_to_device(device, host);
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    inner_->copy_to_host(host, device);
  }
  void zero(std::byte* device, std::uint64_t bytes) noexcept override { inner_->zero(device, bytes); }
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override {
    inner_->copy_on_device(to, from, bytes);
  }
  base::Result<> synchronize() override { return inner_->synchronize(); }
  base::Result<> check_residency() override { return inner_->check_residency(); }

  engine::plan::Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<engine::plan::Backend> inner_;
  engine::plan::AdapterTables tables_;
};

}  // namespace llorch::determinism
