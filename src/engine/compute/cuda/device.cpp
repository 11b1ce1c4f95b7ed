#include "engine/compute/cuda/device.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cuda/adapters/tables.h"
#include "engine/compute/cuda/device_sampler.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cuda {

using base::ErrorCode;
using base::fail;
using base::Result;
using plan::MemoryPurpose;
using plan::StoredTensor;

namespace {

std::string_view place_name(Residency residency) {
  switch (residency) {
    case Residency::kThisDevice: return "this device";
    case Residency::kOtherDevice: return "another device";
    case Residency::kManaged: return "managed memory";
    case Residency::kHost: return "host memory";
    case Residency::kUnknown: return "no memory the driver knows";
  }
  return "?";
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<Driver> driver, std::uint64_t memory_budget_bytes)
    : driver_(std::move(driver)),
      device_class_(fmt::format("{} sm_{}{}", driver_->info().name, driver_->info().compute_major,
                                driver_->info().compute_minor)),
      ledger_(
          memory_budget_bytes,
          {.memory = "bytes of VRAM",
           .advice = "Nothing is moved to host memory; use a smaller model, context or KV type, or free the device."}),
      stream_(*driver_),
      graphs_(*driver_) {}

const plan::AdapterTables& CudaBackend::tables() const { return adapters::kCudaTables; }

// Prefill comes in shapes that seldom come again, and its kernels are long: nothing is gained by holding it.
void CudaBackend::begin_step(const plan::ExecutionContext& ctx) noexcept {
  send_held();
  stream_.count_step(ctx.total_rows);
  stream_.forget_staged();
  if (ctx.mode == plan::ExecutionMode::kDecode && graphs_.is_on()) {
    graphs_.begin_step();
    stream_.hold(&graphs_.record());
  } else if (times_) {
    times_->begin();
  }
}
void CudaBackend::end_step() noexcept {
  end_stretch();
  stream_.hold(nullptr);
  if (times_) times_->end();
}
void CudaBackend::end_stretch() noexcept {
  if (!stream_.holds()) return;
  if (times_) times_->begin();
  graphs_.send();
}
void CudaBackend::send_held() noexcept {
  if (!stream_.holds()) return;
  stream_.hold(nullptr);
  if (times_) times_->begin();
  graphs_.send_plainly();
}
void CudaBackend::time_steps(bool on) {
  times_.reset();
  if (on) times_.emplace(*driver_);
}
void CudaBackend::limit_graphs(const GraphLimits& limits) {
  send_held();
  graphs_.limit(limits);
}
Result<> CudaBackend::synchronize() { return driver().synchronize(); }

std::size_t CudaBackend::allocations_count(MemoryPurpose purpose) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(ledger_.allocations(), [&](const auto& entry) { return entry.second.purpose == purpose; }));
}

Result<std::byte*> CudaBackend::allocate(std::uint64_t bytes, MemoryPurpose purpose) {
  TRY(ledger_.check_budget(bytes, purpose));
  graphs_.new_epoch();
  std::byte* ptr = driver().malloc(bytes);
  if (ptr == nullptr)
    return fail(ledger_.refusal(
        bytes, purpose,
        fmt::format("the device has {} bytes left; other processes use it too", driver_->free_memory_bytes())));
  driver().zero(ptr, bytes);
  ledger_.add(ptr, {bytes, purpose});
  return ptr;
}

void CudaBackend::release(std::byte* ptr) noexcept {
  if (ptr == nullptr) return;
  ledger_.remove(ptr);
  graphs_.new_epoch();
  driver().free(ptr);
}

Result<> CudaBackend::check_weight(const StoredTensor& tensor) const {
  Result<> checked = check_tensor(tensor, {.device = "CUDA", .matrix_types = adapters::kMatrixTypes});
  if (!checked) return fail(named(tensor, std::move(checked).error()));
  return {};
}

std::uint64_t CudaBackend::packed_weight_bytes(const StoredTensor& tensor) const {
  if (is_vector(tensor)) return elements_of(tensor) * sizeof(float);
  return matrix_bytes(matrix_shape(tensor)) * stack_count(tensor);
}

Result<> CudaBackend::upload_weights(std::span<const StoredTensor> tensors, std::span<void*> weights,
                                     const plan::UploadProgress& progress) {
  std::ranges::fill(weights, nullptr);
  const Result<> uploaded = fill_weights(tensors, weights, progress);
  if (uploaded) return {};
  for (void* weight : weights) release_weight(weight);
  std::ranges::fill(weights, nullptr);
  return uploaded;
}

void CudaBackend::count_matrix(plan::DType dtype, std::int32_t by) {
  matrices_by_form_[static_cast<std::size_t>(form_of(dtype))] += by;
  const auto of = [&](Form form) { return matrices_by_form_[static_cast<std::size_t>(form)]; };
  const Form most = of(Form::kBytes) > of(Form::kHalves) ? Form::kBytes : Form::kHalves;
  stream_.prefer(of(most) != 0 ? most : Form::kFloat);
}

// All memory is taken before any byte is read.
Result<> CudaBackend::fill_weights(std::span<const StoredTensor> tensors, std::span<void*> weights,
                                   const plan::UploadProgress& progress) {
  std::vector<std::byte*> memory;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    TRY(check_weight(tensor));
    Result<std::byte*> taken = allocate(packed_weight_bytes(tensor), MemoryPurpose::kWeights);
    if (!taken) return fail(named(tensor, std::move(taken).error()));
    memory.push_back(*taken);
    auto weight = std::make_unique<CudaWeight>();
    weight->dtype = tensor.dtype;
    weight->memory = *taken;
    if (is_vector(tensor)) {
      weight->vector = reinterpret_cast<const float*>(*taken);
    } else {
      const cpu::MatrixShape shape = matrix_shape(tensor);
      weight->matrix = {.data = *taken,
                        .row_bytes = unit_bytes(shape),
                        .stack_bytes = matrix_bytes(shape),
                        .n = shape.rows,
                        .k = shape.cols};
      weight->stack_count = stack_count(tensor);
      count_matrix(tensor.dtype, 1);
    }
    weights[i] = weight.release();
  }
  return loading::load_weights(
      {.backend = *this, .driver = driver(), .stream = stream_, .tensors = tensors, .memory = memory}, load_limits_,
      progress);
}

void CudaBackend::release_weight(void* weight) noexcept {
  if (weight == nullptr) return;
  const std::unique_ptr<CudaWeight> owned(static_cast<CudaWeight*>(weight));
  if (owned->vector == nullptr) count_matrix(owned->dtype, -1);
  release(owned->memory);
}

void CudaBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept {
  if (!host.empty()) driver().copy_to_device(device, host);
}
void CudaBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept {
  if (!host.empty()) driver().copy_to_host(host, device);
}
void CudaBackend::zero(std::byte* device, std::uint64_t bytes) noexcept {
  if (bytes != 0) driver().zero(device, bytes);
}
void CudaBackend::copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (bytes != 0) driver().copy_on_device(to, from, bytes);
}

std::uint64_t CudaBackend::device_sampler_bytes(const plan::DrawLimits& limits) const {
  return CudaDeviceSampler::device_bytes(limits);
}
Result<std::unique_ptr<plan::DeviceSampler>> CudaBackend::make_device_sampler(const plan::DrawLimits& limits) {
  return TRY(CudaDeviceSampler::make(limits, *this, *driver_, stream_));
}

Result<> CudaBackend::check_residency() {
  for (const auto& [ptr, allocation] : ledger_.allocations()) {
    // Both ends: an allocation is one piece, but the check must not take that for granted.
    for (const std::uint64_t offset : {std::uint64_t{0}, allocation.bytes - 1}) {
      const Residency residency = driver_->residency(ptr + offset);
      if (residency == Residency::kThisDevice) continue;
      return fail(base::Error{
          ErrorCode::kCudaError,
          fmt::format("{} bytes of {} are in {} instead of the memory of {}", allocation.bytes,
                      plan::memory_purpose_name(allocation.purpose), place_name(residency), device_class_),
          {}}.with("purpose", std::string(plan::memory_purpose_name(allocation.purpose))));
    }
  }
  return {};
}

}  // namespace llorch::engine::compute::cuda
