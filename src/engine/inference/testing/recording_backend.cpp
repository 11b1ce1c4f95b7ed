#include "engine/inference/testing/recording_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace llorch::engine::inference::testing {
namespace {

using namespace plan;

constexpr std::array kSupported{Opcode::kEmbedding, Opcode::kRmsNorm,     Opcode::kMultiheadAttention,
                                Opcode::kSwiglu,    Opcode::kResidualAdd, Opcode::kLmHead};

Status record_launch(ExecutionContext& ctx, const PreparedInsn& prepared) noexcept {
  auto& backend = *static_cast<RecordingBackend*>(ctx.stream.ptr);
  const Opcode opcode = prepared.insn->opcode;
  backend.record(
      {.opcode = opcode, .rows = ctx.total_rows, .batch_size = ctx.batch_size, .output = prepared.output<void>(0)});
  if (opcode == backend.failing) return Status::failed(backend.failure);
  if (opcode != Opcode::kLmHead) return Status::ok();
  const std::uint32_t vocab = prepared.param<LmHeadParams>().rows;
  for (std::size_t i = 0; i < ctx.output_rows.size(); ++i) {
    float* logits = prepared.output<float>(0) + i * vocab;
    const std::uint32_t row = ctx.output_rows[i];
    std::fill_n(logits, vocab, 0.0F);
    logits[0] = static_cast<float>(ctx.positions[row] * 1000 + ctx.row_ids[row]);
    logits[1] = static_cast<float>(ctx.slot_of_row[row]);
  }
  return Status::ok();
}

base::Result<> accept(const PrepareArgs& args) {
  const std::uint32_t most = static_cast<const RecordingBackend&>(args.backend).context_tokens_max();
  if (args.limits.context_tokens_max <= most) return {};
  return base::fail(base::ErrorCode::kUnsupportedOpcode, fmt::format("a context beyond {}", most));
}
base::Result<> refuse_all(const PrepareArgs&) {
  return base::fail(base::ErrorCode::kUnsupportedOpcode, "parameters that this device has no kernel for");
}

std::uint64_t workspace(const ParamBlock& params, const StepLimits& limits, const Backend&) noexcept {
  return params.opcode == Opcode::kSwiglu ? limits.rows_max * RecordingBackend::kWorkspaceBytesPerRow : 0;
}

}  // namespace

RecordingBackend::RecordingBackend(const Options& options) : options_(options) {
  launches.reserve(1 << 16);
  for (Opcode opcode : kSupported) {
    if (opcode == options.without) continue;
    const auto row = static_cast<std::size_t>(opcode);
    tables_.run[row] = record_launch;
    tables_.prepare[row] = opcode == options.refuses ? refuse_all : accept;
    tables_.workspace_bytes[row] = workspace;
    tables_.capabilities[row] = {.supports_batch = options.batches,
                                 .may_alias_output = opcode == Opcode::kResidualAdd,
                                 .dtype_mask_weights = options.matrix_types};
  }
}

RecordingBackend::~RecordingBackend() {
  ASSERT(allocations_.empty(), "{} allocations were never released", allocations_.size());
}

base::Result<std::byte*> RecordingBackend::allocate(std::uint64_t bytes, MemoryPurpose purpose) {
  if (used_ + bytes > options_.memory_bytes_max) return base::fail(out_of_memory(bytes, purpose));
  auto* ptr = static_cast<std::byte*>(::operator new (bytes + 1, std::align_val_t{64}));
  std::memset(ptr, 0, bytes);
  allocations_[ptr] = bytes;
  used_ += bytes;
  bytes_by_purpose[purpose] += bytes;
  return ptr;
}

base::Error RecordingBackend::out_of_memory(std::uint64_t bytes, MemoryPurpose purpose) const {
  return base::Error{
      base::ErrorCode::kOutOfDeviceMemory, fmt::format("{} bytes for {}", bytes, memory_purpose_name(purpose)), {}}
      .with("required_bytes", static_cast<std::int64_t>(bytes))
      .with("free_bytes", static_cast<std::int64_t>(options_.memory_bytes_max - used_))
      .with("purpose", std::string(memory_purpose_name(purpose)));
}

void RecordingBackend::release(std::byte* ptr) noexcept {
  if (ptr == nullptr) return;
  const auto found = allocations_.find(ptr);
  ASSERT(found != allocations_.end(), "released twice");
  used_ -= found->second;
  allocations_.erase(found);
  ::operator delete (ptr, std::align_val_t{64});
}

std::uint64_t RecordingBackend::packed_weight_bytes(const StoredTensor& tensor) const {
  std::uint64_t elements = 1;
  for (std::uint8_t d = 0; d < tensor.rank; ++d) elements *= tensor.shape[d];
  const DTypeInfo info = dtype_info(tensor.dtype);
  return elements / info.block_elements * info.block_bytes;
}

base::Result<> RecordingBackend::upload_weights(std::span<const StoredTensor> tensors, std::span<void*> weights,
                                                const UploadProgress& progress) {
  const auto upload = [&](const StoredTensor& tensor, void*& weight) -> base::Result<> {
    const std::uint64_t bytes = packed_weight_bytes(tensor);
    std::byte* ptr = TRY(allocate(bytes, MemoryPurpose::kWeights));
    weight = ptr;
    upload_uses.push_back(tensor.uses);
    return tensor.read(0, {ptr, bytes});
  };
  std::ranges::fill(weights, nullptr);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (base::Result<> uploaded = upload(tensors[i], weights[i]); !uploaded) {
      for (void* weight : weights) release_weight(weight);
      return uploaded;
    }
    if (progress) progress(i + 1, tensors.size());
  }
  return {};
}

void RecordingBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept {
  std::memcpy(device, host.data(), host.size());
}
void RecordingBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}
void RecordingBackend::zero(std::byte* device, std::uint64_t bytes) noexcept { std::memset(device, 0, bytes); }
void RecordingBackend::copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

}  // namespace llorch::engine::inference::testing
