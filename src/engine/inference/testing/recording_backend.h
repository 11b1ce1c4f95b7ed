#pragma once
// A backend without arithmetic: host memory, exact accounting, and adapters that record what was launched on which rows.
// The head writes, for output row i, position * 1000 + id in element 0 and the slot in element 1, so tests can tell which
// row came out where.
#include <map>
#include <string>
#include <vector>

#include "engine/plan/backend.h"

namespace llorch::engine::inference::testing {

struct Launch {
  plan::Opcode opcode{};
  std::uint32_t rows = 0;
  std::uint32_t batch_size = 0;
  const void* output = nullptr;
};

class RecordingBackend : public plan::Backend {
 public:
  struct Options {
    std::uint64_t memory_bytes_max = 1ULL << 30;
    bool batches = true;
    plan::Opcode without = plan::Opcode::kMoe;    // an opcode this backend lacks
    plan::Opcode refuses = plan::Opcode::kMoe;    // an opcode whose parameters it takes none of
    std::uint32_t context_tokens_max = 1U << 31;  // of a step's limits
    std::uint64_t matrix_types = plan::dtype_bit(plan::DType::kF32) | plan::dtype_bit(plan::DType::kF16) |
                                 plan::dtype_bit(plan::DType::kBF16) | plan::dtype_bit(plan::DType::kQ8_0) |
                                 plan::dtype_bit(plan::DType::kQ4_0);
  };
  static constexpr std::uint64_t kWorkspaceBytesPerRow = 256;

  RecordingBackend() : RecordingBackend(Options{}) {}
  explicit RecordingBackend(const Options& options);
  ~RecordingBackend() override;

  std::string_view device_class() const override { return "recording"; }
  std::string_view numerics() const override { return "recording-1"; }
  std::string_view implementation() const override { return "none"; }
  const plan::AdapterTables& tables() const override { return tables_; }
  plan::StreamHandle stream() override { return {this}; }
  base::Result<std::byte*> allocate(std::uint64_t bytes, plan::MemoryPurpose purpose) override;
  void release(std::byte* ptr) noexcept override;
  std::uint64_t memory_budget_bytes() const override { return options_.memory_bytes_max; }
  std::uint64_t memory_used_bytes() const override { return used_; }
  std::uint64_t packed_weight_bytes(const plan::StoredTensor& tensor) const override;
  base::Result<> upload_weights(std::span<const plan::StoredTensor> tensors, std::span<void*> weights,
                                const plan::UploadProgress& progress) override;
  void release_weight(void* weight) noexcept override { release(static_cast<std::byte*>(weight)); }
  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override;
  void zero(std::byte* device, std::uint64_t bytes) noexcept override;
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override;
  base::Result<> synchronize() override { return {}; }
  base::Result<> check_residency() override { return {}; }

  std::uint32_t context_tokens_max() const { return options_.context_tokens_max; }
  void record(const Launch& launch) { launches.push_back(launch); }

  std::vector<Launch> launches;  // capacity for many steps is reserved, so recording allocates nothing
  std::vector<std::uint8_t> upload_uses;
  std::map<plan::MemoryPurpose, std::uint64_t> bytes_by_purpose;  // ever allocated
  plan::Opcode failing = plan::Opcode::kMoe;                      // an opcode whose adapter fails
  base::ErrorCode failure = base::ErrorCode::kCudaError;          // with this

 protected:
  base::Error out_of_memory(std::uint64_t bytes, plan::MemoryPurpose purpose) const;

 private:
  Options options_;
  plan::AdapterTables tables_;
  std::map<std::byte*, std::uint64_t> allocations_;
  std::uint64_t used_ = 0;
};

}  // namespace llorch::engine::inference::testing
