#include "engine/compute/cuda/collective/collective.h"

#include <utility>

#include "base/assert.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/stream.h"

namespace llorch::engine::compute::cuda {

using plan::DeviceBuffer;
using plan::Status;

CudaCollective::CudaCollective(std::vector<Gpu> gpus, std::unique_ptr<Nccl> nccl)
    : gpus_(std::move(gpus)), nccl_(std::move(nccl)) {
  ASSERT(nccl_->ranks() == ranks(), "{} devices, {} connected", ranks(), nccl_->ranks());
}

base::Result<> CudaCollective::reserve(std::uint64_t values_max) {
  std::vector<DeviceBuffer> gathered;
  for (const Gpu& gpu : gpus_) {
    const std::uint64_t bytes = gpu.backend->sum_bytes({.ranks = ranks(), .values_max = values_max});
    gathered.push_back(TRY(DeviceBuffer::allocate(*gpu.backend, bytes, plan::MemoryPurpose::kWorkspace)));
  }
  gathered_ = std::move(gathered);
  return {};
}

base::Result<> CudaCollective::begin() {
  if (!nccl_->is_aborted()) return {};
  return base::fail(base::ErrorCode::kCudaError,
                    "a GPU failed in an earlier step and the others no longer wait for it; start the process again");
}

Status CudaCollective::sum(std::uint32_t rank, float* values, std::uint64_t count) noexcept {
  const Gpu& gpu = gpus_[rank];
  auto* const all = reinterpret_cast<float*>(gathered_[rank].data());
  ASSERT(count * ranks() * sizeof(float) <= gathered_[rank].size_bytes(), "a sum of {} values, {} bytes are reserved",
         count, gathered_[rank].size_bytes());
  gpu.backend->end_stretch();  // comes before: the stream's order is the plan's
  const Status gathered =
      nccl_->all_gather(rank, {.mine = values, .all = all, .count = count, .times = 1}, gpu.native_stream);
  if (!gathered.is_ok()) return gathered;
  const CudaStream& stream = *static_cast<const CudaStream*>(gpu.backend->stream().ptr);
  for (std::uint32_t r = 1; r < ranks(); ++r) {
    // fma(1, b, a) is a + b, rounded once.
    const kernels::ResidualAddArgs args{
        .a = r == 1 ? all : values, .b = all + r * count, .y = values, .count = count, .scale = 1};
    stream.launch<kernels::ResidualAdd>({adapters::blocks_of(count, kernels::ResidualAdd::kThreads)}, args);
  }
  return stream.status();
}

// Row by row: what is gathered of one is that row, whole.
Status CudaCollective::join(std::uint32_t rank, const plan::RowParts& rows) noexcept {
  const Gpu& gpu = gpus_[rank];
  gpu.backend->end_stretch();
  return nccl_->all_gather(rank, {.mine = rows.part, .all = rows.whole, .count = rows.width, .times = rows.rows},
                           gpu.native_stream);
}

}  // namespace llorch::engine::compute::cuda
