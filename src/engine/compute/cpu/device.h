#pragma once
// The backend object of the CPU device, as the adapters see it.
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/compute/cpu/host/thread_pool.h"
#include "engine/compute/cpu/kernels.h"
#include "engine/compute/memory_ledger.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cpu {

// A weight on the device; Backend::upload_weights gives one of these. Either packed matrices or a plain f32 vector.
struct CpuWeight {
  PackedMatrix matrix;                 // the first of the stack
  std::uint32_t stack_count = 1;       // matrices of one shape, one after the other
  std::size_t stack_stride_bytes = 0;  // from one to the next
  const float* vector = nullptr;
  std::shared_ptr<std::byte> memory;  // its place in what the weights of an upload share
  std::uint64_t bytes = 0;

  // REQUIRES: i < stack_count.
  PackedMatrix matrix_at(std::size_t i) const {
    PackedMatrix view = matrix;
    view.data += i * stack_stride_bytes;
    return view;
  }
};

// Makes every page of an allocation resident by touching it; what they hold stays, whoever writes there meanwhile.
void touch_pages(std::byte* memory, std::uint64_t bytes);

// What ExecutionContext::stream points to. Adapters run synchronously on it.
struct CpuStream {
  const Kernels& kernels;
  host::ThreadPool& pool;
};

class CpuBackend final : public plan::Backend {
 public:
  struct Options {
    host::Isa isa = host::Isa::kAvx2;
    std::uint32_t threads_count = 1;
    std::uint64_t memory_budget_bytes = 0;
  };
  explicit CpuBackend(const Options& options);
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  std::string_view device_class() const override { return "cpu-x86"; }
  std::string_view numerics() const override { return "cpu-2"; }
  std::string_view implementation() const override { return host::isa_name(stream_.kernels.isa); }
  const plan::AdapterTables& tables() const override;
  plan::StreamHandle stream() override { return {&stream_}; }

  base::Result<std::byte*> allocate(std::uint64_t bytes, plan::MemoryPurpose purpose) override;
  void release(std::byte* ptr) noexcept override;
  std::uint64_t memory_budget_bytes() const override { return ledger_.budget_bytes(); }
  std::uint64_t memory_used_bytes() const override { return ledger_.used_bytes(); }

  base::Result<> check_weight(const plan::StoredTensor& tensor) const override;
  std::uint64_t packed_weight_bytes(const plan::StoredTensor& tensor) const override;
  base::Result<> upload_weights(std::span<const plan::StoredTensor> tensors, std::span<void*> weights,
                                const plan::UploadProgress& progress) override;
  void release_weight(void* weight) noexcept override;
  std::string_view packed_layout() const override;
  std::span<const std::byte> packed_bytes(const void* weight) const override;
  base::Result<> upload_packed(std::span<const plan::StoredTensor> tensors, const plan::PackedSource& packed,
                               std::span<void*> weights, const plan::UploadProgress& progress) override;

  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override;
  void zero(std::byte* device, std::uint64_t bytes) noexcept override;
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override;
  base::Result<> synchronize() override { return {}; }
  std::uint64_t device_sampler_bytes(const plan::DrawLimits& limits) const override;
  base::Result<std::unique_ptr<plan::DeviceSampler>> make_device_sampler(const plan::DrawLimits& limits) override;
  base::Result<> check_residency() override { return {}; }  // all memory it has is host memory, by name

  std::size_t threads_count() const { return pool_.threads_count(); }

 private:
  // Fills the memory of all weights, of which nothing is resident yet.
  using FillWeights = std::function<base::Result<>(std::span<std::byte> memory)>;
  base::Result<> upload(std::span<const plan::StoredTensor> tensors, std::span<void*> weights, const FillWeights& fill);
  bool make_resident(std::byte* memory, std::uint64_t bytes);
  base::Error no_memory(std::uint64_t bytes, plan::MemoryPurpose purpose) const;
  base::Result<> run_parts(std::size_t count, const std::function<base::Result<>(Range range)>& part);
  base::Result<> pack(const plan::StoredTensor& tensor, const CpuWeight& weight);
  base::Result<> pack_part(const plan::StoredTensor& tensor, const CpuWeight& weight, Range groups);

  MemoryLedger ledger_;
  host::ThreadPool pool_;
  CpuStream stream_;
};

}  // namespace llorch::engine::compute::cpu
