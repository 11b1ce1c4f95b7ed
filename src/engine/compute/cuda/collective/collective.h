#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/compute/cuda/collective/nccl.h"
#include "engine/compute/cuda/device.h"
#include "engine/plan/backend.h"
#include "engine/plan/collective.h"

namespace llorch::engine::compute::cuda {

// Sums over GPUs: every GPU gets what all have, [ranks][count], and adds it up in rank order. A step only enqueues.
class CudaCollective final : public plan::Collective {
 public:
  // A CUDA backend, and the machine's own name of the stream it enqueues on; null where there is none.
  struct Gpu {
    CudaBackend* backend = nullptr;
    void* native_stream = nullptr;
  };
  // The backends, in the rank order of `nccl`, outlive this.
  CudaCollective(std::vector<Gpu> gpus, std::unique_ptr<Nccl> nccl);

  std::uint32_t ranks() const override { return static_cast<std::uint32_t>(gpus_.size()); }
  base::Result<> reserve(std::uint64_t values_max) override;
  void release() noexcept override { gathered_.clear(); }
  base::Result<> begin() override;
  plan::Status sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept override;
  plan::Status join(std::uint32_t rank, const plan::RowParts& rows) noexcept override;
  void abort() noexcept override { nccl_->abort(); }

 private:
  std::vector<Gpu> gpus_;
  std::unique_ptr<Nccl> nccl_;
  std::vector<plan::DeviceBuffer> gathered_;  // by rank: [ranks][values_max]
};

}  // namespace llorch::engine::compute::cuda
