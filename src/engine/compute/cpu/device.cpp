#include "engine/compute/cpu/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cpu/adapters/tables.h"
#include "engine/compute/cpu/backend.h"
#include "engine/compute/cpu/sampler/cpu_sampler.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cpu {

using base::ErrorCode;
using base::fail;
using base::Result;
using plan::MemoryPurpose;
using plan::StoredTensor;

namespace {

// From here on the kernel is asked for 2 MiB pages: weights are read end to end for every row, and 4 KiB pages would
// spend the time in TLB misses.
constexpr std::uint64_t kHugePageBytes = 2u << 20;

// Of a stored tensor that is packed at a time: it stays in the cache of the processor that reads it. Whole elements of a vector.
constexpr std::size_t kReadBytes = 512u << 10;

// Memory that one thread makes resident at a time.
constexpr std::uint64_t kResidentBytes = 8u << 20;

// Every page there, zeroed. Kernels before 5.14 cannot be asked; there, touching does.
bool populate(std::byte* memory, std::uint64_t bytes) {
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < bytes; at += page_bytes)
    *static_cast<volatile std::byte*>(memory + at) = std::byte{0};
  return true;
}

// A weight without its contents, in memory for them.
std::unique_ptr<CpuWeight> weight_in(const StoredTensor& tensor, std::byte* memory, std::uint64_t bytes) {
  auto weight = std::make_unique<CpuWeight>();
  weight->memory = memory;
  weight->bytes = bytes;
  if (is_vector(tensor)) {
    weight->vector = reinterpret_cast<const float*>(memory);
    return weight;
  }
  const MatrixShape shape = matrix_shape(tensor);
  weight->matrix = packed_view(shape, memory);
  weight->stack_count = stack_count(tensor);
  weight->stack_stride_bytes = cpu::packed_bytes(shape);
  return weight;
}

}  // namespace

CpuBackend::CpuBackend(const Options& options)
    : ledger_(options.memory_budget_bytes,
              {.memory = "bytes", .advice = "Raise devices.cpu_memory_bytes, or use a smaller model or context."}),
      pool_(options.threads_count),
      stream_{kernels(options.isa), pool_} {}

const plan::AdapterTables& CpuBackend::tables() const { return adapters::kCpuTables; }

Result<std::byte*> CpuBackend::allocate(std::uint64_t bytes, MemoryPurpose purpose) {
  TRY(ledger_.check_budget(bytes, purpose));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(ledger_.refusal(bytes, purpose, "the system has no memory left"));
  if (bytes >= kHugePageBytes)
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: refusal costs speed, nothing else
  auto* ptr = static_cast<std::byte*>(memory);
  if (!make_resident(ptr, bytes)) {
    ::munmap(memory, bytes);
    return fail(ledger_.refusal(bytes, purpose, "the system has no memory left"));
  }
  ledger_.add(ptr, {bytes, purpose});
  return ptr;
}

// All of it there from the start: the process never grows beyond what was counted, and what the system does not have fails
// a load instead of killing whoever touches it first. Zeroing pages takes as long as reading a cached file, so all
// threads do it.
bool CpuBackend::make_resident(std::byte* memory, std::uint64_t bytes) {
  std::atomic<bool> resident = true;
  pool_.run(static_cast<std::size_t>((bytes + kResidentBytes - 1) / kResidentBytes), 1, [&](Range range, std::size_t) {
    const std::uint64_t begin = range.begin * kResidentBytes, end = std::min(bytes, range.end * kResidentBytes);
    if (!populate(memory + begin, end - begin)) resident = false;
  });
  return resident;
}

void CpuBackend::release(std::byte* ptr) noexcept {
  if (ptr == nullptr) return;
  ::munmap(ptr, ledger_.remove(ptr).bytes);
}

Result<> CpuBackend::check_weight(const StoredTensor& tensor) const {
  Result<> checked = check_tensor(tensor, {.device = "CPU", .matrix_types = adapters::kMatrixTypes});
  if (!checked) return fail(named(tensor, std::move(checked).error()));
  return {};
}

std::uint64_t CpuBackend::packed_weight_bytes(const StoredTensor& tensor) const {
  if (is_vector(tensor)) return elements_of(tensor) * sizeof(float);
  return cpu::packed_bytes(matrix_shape(tensor)) * stack_count(tensor);
}

Result<> CpuBackend::upload_weights(std::span<const StoredTensor> tensors, std::span<void*> weights,
                                    const plan::UploadProgress& progress) {
  return upload(tensors, weights, progress,
                [&](std::size_t i, const CpuWeight& weight) { return pack(tensors[i], weight); });
}

Result<> CpuBackend::upload_packed(std::span<const StoredTensor> tensors, const plan::PackedSource& packed,
                                   std::span<void*> weights, const plan::UploadProgress& progress) {
  constexpr std::uint64_t kPiece = plan::PackedSource::kPieceBytes;
  return upload(tensors, weights, progress, [&](std::size_t i, const CpuWeight& weight) {
    return run_parts(static_cast<std::size_t>((weight.bytes + kPiece - 1) / kPiece), [&, i](Range pieces) -> Result<> {
      for (std::size_t piece = pieces.begin; piece < pieces.end; ++piece) {
        const std::uint64_t begin = piece * kPiece;
        TRY(packed.read(i, piece, {weight.memory + begin, std::min(kPiece, weight.bytes - begin)}));
      }
      return {};
    });
  });
}

Result<> CpuBackend::upload(std::span<const StoredTensor> tensors, std::span<void*> weights,
                            const plan::UploadProgress& progress, const FillWeight& fill) {
  std::ranges::fill(weights, nullptr);
  std::uint64_t bytes_total = 0, bytes_done = 0;
  for (const StoredTensor& tensor : tensors) {
    TRY(check_weight(tensor));
    bytes_total += stored_bytes(tensor);
  }
  const auto upload_one = [&](std::size_t i) -> Result<> {
    const std::uint64_t bytes = packed_weight_bytes(tensors[i]);
    std::byte* memory = TRY(allocate(bytes, MemoryPurpose::kWeights));
    CpuWeight* weight = weight_in(tensors[i], memory, bytes).release();
    weights[i] = weight;
    return fill(i, *weight);
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (Result<> uploaded = upload_one(i); !uploaded) {
      for (void* weight : weights) release_weight(weight);
      std::ranges::fill(weights, nullptr);
      return fail(named(tensors[i], std::move(uploaded).error()));
    }
    bytes_done += stored_bytes(tensors[i]);
    if (progress) progress(bytes_done, bytes_total);
  }
  return {};
}

// On all threads; the first failure of a part.
Result<> CpuBackend::run_parts(std::size_t count, const std::function<Result<>(Range range)>& part) {
  std::mutex mutex;
  Result<> first;
  pool_.run(count, 1, [&](Range range, std::size_t) {
    if (Result<> done = part(range); !done) {
      const std::scoped_lock lock(mutex);
      if (first) first = std::move(done);
    }
  });
  return first;
}

Result<> CpuBackend::pack(const StoredTensor& tensor, const CpuWeight& weight) {
  if (weight.vector == nullptr)
    return run_parts(weight.matrix.groups() * weight.stack_count,
                     [&](Range range) { return pack_part(tensor, weight, range); });
  const std::uint64_t bytes = stored_bytes(tensor), element_bytes = bytes / elements_of(tensor);
  std::vector<std::byte> stored;
  for (std::uint64_t begin = 0; begin < bytes; begin += stored.size()) {
    stored.resize(std::min<std::uint64_t>(kReadBytes, bytes - begin));
    TRY(tensor.read(begin, stored));
    widen(tensor.dtype, stored, reinterpret_cast<float*>(weight.memory) + begin / element_bytes);
  }
  return {};
}

// Groups are numbered through the stack. Read some at a time, few enough to be packed out of a cache.
Result<> CpuBackend::pack_part(const StoredTensor& tensor, const CpuWeight& weight, Range range) {
  const MatrixShape shape = matrix_shape(tensor);
  const std::size_t groups = weight.matrix.groups(), row_bytes = stored_bytes(tensor) / weight.stack_count / shape.rows;
  const std::size_t at_once = std::max<std::size_t>(1, kReadBytes / (row_bytes * kPackRows));
  std::vector<std::byte> stored;
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::size_t i = begin / groups, first = begin % groups;
    const std::size_t last = std::min({first + at_once, groups, first + range.end - begin});
    const std::size_t row = first * kPackRows, rows = std::min<std::size_t>(last * kPackRows, shape.rows) - row;
    stored.resize(rows * row_bytes);
    TRY(tensor.read((i * shape.rows + row) * row_bytes, stored));
    const MatrixShape part{.dtype = shape.dtype, .rows = static_cast<std::uint32_t>(rows), .cols = shape.cols};
    pack_groups(part, stored.data(), weight.memory + i * weight.stack_stride_bytes + first * weight.matrix.group_bytes,
                0, last - first);
    begin += last - first;
  }
  return {};
}

void CpuBackend::release_weight(void* weight) noexcept {
  if (weight == nullptr) return;
  const std::unique_ptr<CpuWeight> owned(static_cast<CpuWeight*>(weight));
  release(owned->memory);
}

// The layout of pack.h; instruction sets share it.
std::string_view CpuBackend::packed_layout() const { return "r16-2"; }

std::span<const std::byte> CpuBackend::packed_bytes(const void* weight) const {
  const auto& of = *static_cast<const CpuWeight*>(weight);
  return {of.memory, of.bytes};
}

void CpuBackend::copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
}
void CpuBackend::copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}
void CpuBackend::zero(std::byte* device, std::uint64_t bytes) noexcept {
  if (bytes != 0) std::memset(device, 0, bytes);
}
void CpuBackend::copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

std::uint64_t CpuBackend::device_sampler_bytes(const plan::DrawLimits& limits) const {
  return sampler::CpuSampler::bytes(limits, pool_.threads_count());
}

Result<std::unique_ptr<plan::DeviceSampler>> CpuBackend::make_device_sampler(const plan::DrawLimits& limits) {
  return TRY(sampler::CpuSampler::make(*this, stream_, limits));
}

Result<std::string_view> processor_isa() {
  return host::isa_name(TRY(host::select_isa(host::detect_cpu_features(), "")));
}

Result<std::unique_ptr<plan::Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  const char* environment = std::getenv("LLORCH_ISA");
  const std::string wanted = options.isa.empty() && environment != nullptr ? environment : options.isa;
  const host::Isa isa = TRY(host::select_isa(host::detect_cpu_features(), wanted));
  if (options.threads_count == 0) return fail(ErrorCode::kConfigInvalid, "the CPU device needs at least one thread");
  if (options.memory_budget_bytes == 0)
    return fail(ErrorCode::kConfigInvalid, "the CPU device needs a memory budget; set devices.cpu_memory_bytes");
  return std::make_unique<CpuBackend>(CpuBackend::Options{
      .isa = isa, .threads_count = options.threads_count, .memory_budget_bytes = options.memory_budget_bytes});
}

}  // namespace llorch::engine::compute::cpu
