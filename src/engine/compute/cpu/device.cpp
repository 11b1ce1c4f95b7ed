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
#include "engine/compute/cpu/choose_isa.h"
#include "engine/compute/cpu/host/memory_nodes.h"
#include "engine/compute/cpu/sampler/cpu_sampler.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cpu {

using base::ErrorCode;
using base::fail;
using base::Result;
using plan::MemoryPurpose;
using plan::StoredTensor;

void touch_pages(std::byte* memory, std::uint64_t bytes) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < bytes; at += page_bytes)
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(memory + at), 0, __ATOMIC_RELAXED);
}

namespace {

// From here on the kernel is asked for 2 MiB pages: weights are read end to end for every row, and 4 KiB pages would
// spend the time in TLB misses.
constexpr std::uint64_t kHugePageBytes = 2u << 20;

// Huge pages of packed weights that a thread fills before the load says how far it is.
constexpr std::uint64_t kPagesTogether = 16;

// Of a stored tensor that is packed at a time: it stays in the cache of the processor that reads it. Whole elements of a vector.
constexpr std::size_t kReadBytes = 512u << 10;

std::uint64_t all_stored_bytes(std::span<const StoredTensor> tensors) {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += stored_bytes(tensor);
  return bytes;
}

// Where a weight may begin in the memory that weights share.
constexpr std::uint64_t kWeightAlignment = 64;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

// Address space, of 2 MiB and more where a huge page may begin; null: the system has none left.
std::byte* map_aligned(std::uint64_t bytes) {
  const std::uint64_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  if (bytes > SIZE_MAX - slack) return nullptr;
  void* mapped = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* memory = static_cast<std::byte*>(mapped);
  host::interleave(memory, bytes + slack);
  if (slack == 0) return memory;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)),
             address = reinterpret_cast<std::uintptr_t>(memory), before = round_up(address, slack) - address,
             used = before + round_up(bytes, page_bytes), mapped_bytes = round_up(bytes + slack, page_bytes);
  if (before != 0) ::munmap(memory, before);
  if (used < mapped_bytes) ::munmap(memory + used, mapped_bytes - used);
  memory += before;
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: refusal costs speed, nothing else
  return memory;
}

// Every page there; what they hold stays. Kernels before 5.14 cannot be asked; there, touching does.
bool populate(std::byte* memory, std::uint64_t bytes) {
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  touch_pages(memory, bytes);
  return true;
}

// A weight without its contents, in memory for them.
std::unique_ptr<CpuWeight> weight_in(const StoredTensor& tensor, std::shared_ptr<std::byte> memory,
                                     std::uint64_t bytes) {
  auto weight = std::make_unique<CpuWeight>();
  weight->memory = std::move(memory);
  weight->bytes = bytes;
  if (is_vector(tensor)) {
    weight->vector = reinterpret_cast<const float*>(weight->memory.get());
    return weight;
  }
  const MatrixShape shape = matrix_shape(tensor);
  weight->matrix = packed_view(shape, weight->memory.get());
  weight->stack_count = stack_count(tensor);
  weight->stack_stride_bytes = cpu::packed_bytes(shape);
  return weight;
}

const CpuWeight& weight_at(std::span<void* const> weights, std::size_t i) {
  return *static_cast<const CpuWeight*>(weights[i]);
}

// A piece of a packed source and where it goes.
struct Piece {
  std::size_t tensor = 0, piece = 0;
  std::uint64_t begin = 0;  // in the memory of all weights
  std::span<std::byte> to;
};
std::vector<Piece> pieces_of(std::span<void* const> weights, const std::byte* memory) {
  constexpr std::uint64_t kBytes = plan::PackedSource::kPieceBytes;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const CpuWeight& weight = weight_at(weights, i);
    for (std::uint64_t at = 0; at < weight.bytes; at += kBytes) {
      std::byte* to = weight.memory.get() + at;
      pieces.push_back({.tensor = i,
                        .piece = static_cast<std::size_t>(at / kBytes),
                        .begin = static_cast<std::uint64_t>(to - memory),
                        .to = {to, static_cast<std::size_t>(std::min(kBytes, weight.bytes - at))}});
    }
  }
  return pieces;
}

}  // namespace

CpuBackend::CpuBackend(const Options& options)
    : ledger_(options.memory_budget_bytes,
              {.memory = "bytes", .advice = "Raise devices.cpu_memory_bytes, or use a smaller model or context."}),
      pool_(options.threads_count),
      stream_{kernels(options.isa), pool_} {}

const plan::AdapterTables& CpuBackend::tables() const { return adapters::kCpuTables; }

// All of it there from the start: the process never grows beyond what was counted, and what the system does not have fails
// a load instead of killing whoever touches it first.
Result<std::byte*> CpuBackend::allocate(std::uint64_t bytes, MemoryPurpose purpose) {
  TRY(ledger_.check_budget(bytes, purpose));
  std::byte* memory = map_aligned(bytes);
  if (memory == nullptr || !make_resident(memory, bytes)) {
    if (memory != nullptr) ::munmap(memory, bytes);
    return fail(no_memory(bytes, purpose));
  }
  ledger_.add(memory, {bytes, purpose});
  return memory;
}

// Zeroing pages takes as long as reading a cached file, so all threads do it.
bool CpuBackend::make_resident(std::byte* memory, std::uint64_t bytes) {
  std::atomic<bool> resident = true;
  pool_.run(static_cast<std::size_t>((bytes + kHugePageBytes - 1) / kHugePageBytes), 1, [&](Range range, std::size_t) {
    const std::uint64_t begin = range.begin * kHugePageBytes, end = std::min(bytes, range.end * kHugePageBytes);
    if (!populate(memory + begin, end - begin)) resident = false;
  });
  return resident;
}

base::Error CpuBackend::no_memory(std::uint64_t bytes, MemoryPurpose purpose) const {
  return ledger_.refusal(bytes, purpose, "the system has no memory left");
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
  return upload(tensors, weights, [&](std::span<std::byte> memory) -> Result<> {
    if (!make_resident(memory.data(), memory.size())) return fail(no_memory(memory.size(), MemoryPurpose::kWeights));
    const std::uint64_t total = all_stored_bytes(tensors);
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (Result<> packed = pack(tensors[i], weight_at(weights, i)); !packed)
        return fail(named(tensors[i], std::move(packed).error()));
      done += stored_bytes(tensors[i]);
      if (progress) progress(done, total);
    }
    return {};
  });
}

// A thread makes a huge page resident and fills it at once, while the second-level cache has its zeros.
Result<> CpuBackend::upload_packed(std::span<const StoredTensor> tensors, const plan::PackedSource& packed,
                                   std::span<void*> weights, const plan::UploadProgress& progress) {
  return upload(tensors, weights, [&](std::span<std::byte> memory) -> Result<> {
    const std::vector<Piece> pieces = pieces_of(weights, memory.data());
    // Pieces that begin in a page; the last one may reach into the next.
    const auto fill_page = [&](std::uint64_t begin, std::uint64_t end) -> Result<> {
      const auto first = std::ranges::lower_bound(pieces, begin, {}, &Piece::begin);
      const auto last = std::ranges::lower_bound(first, pieces.end(), end, {}, &Piece::begin);
      if (first != last) end = std::max(end, std::prev(last)->begin + std::prev(last)->to.size());
      if (!populate(memory.data() + begin, end - begin)) return fail(no_memory(memory.size(), MemoryPurpose::kWeights));
      for (auto piece = first; piece != last; ++piece) {
        if (Result<> read = packed.read(piece->tensor, piece->piece, piece->to); !read)
          return fail(named(tensors[piece->tensor], std::move(read).error()));
      }
      return {};
    };
    const std::uint64_t bytes = memory.size(), together = kPagesTogether * pool_.threads_count() * kHugePageBytes;
    const double stored = static_cast<double>(all_stored_bytes(tensors));
    for (std::uint64_t begin = 0, end = 0; begin < bytes; begin = end) {
      end = std::min(bytes, begin + together);
      TRY(run_parts(static_cast<std::size_t>((end - begin + kHugePageBytes - 1) / kHugePageBytes),
                    [&](Range pages) -> Result<> {
                      for (std::size_t page = pages.begin; page < pages.end; ++page) {
                        const std::uint64_t at = begin + page * kHugePageBytes;
                        TRY(fill_page(at, std::min(end, at + kHugePageBytes)));
                      }
                      return {};
                    }));
      const double share = static_cast<double>(end) / static_cast<double>(bytes);
      if (progress) progress(static_cast<std::uint64_t>(stored * share), static_cast<std::uint64_t>(stored));
    }
    return {};
  });
}

// All weights lie in one piece of memory, which goes with the last of them. What aligns them is not counted.
Result<> CpuBackend::upload(std::span<const StoredTensor> tensors, std::span<void*> weights, const FillWeights& fill) {
  std::ranges::fill(weights, nullptr);
  std::uint64_t counted = 0, mapped = 0;
  for (const StoredTensor& tensor : tensors) {
    TRY(check_weight(tensor));
    counted += packed_weight_bytes(tensor);
    mapped = round_up(mapped, kWeightAlignment) + packed_weight_bytes(tensor);
  }
  if (counted == 0) return {};
  TRY(ledger_.check_budget(counted, MemoryPurpose::kWeights));
  std::byte* address = map_aligned(mapped);
  if (address == nullptr) return fail(no_memory(counted, MemoryPurpose::kWeights));
  const std::shared_ptr<std::byte> memory(address, [this, mapped](std::byte* ptr) {
    if (ledger_.allocations().contains(ptr)) ledger_.remove(ptr);
    ::munmap(ptr, mapped);
  });
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = packed_weight_bytes(tensors[i]);
    at = round_up(at, kWeightAlignment);
    weights[i] = weight_in(tensors[i], {memory, address + at}, bytes).release();
    at += bytes;
  }
  if (Result<> filled = fill({address, static_cast<std::size_t>(mapped)}); !filled) {
    for (void* weight : weights) release_weight(weight);
    std::ranges::fill(weights, nullptr);
    return filled;
  }
  ledger_.add(address, {counted, MemoryPurpose::kWeights});
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
    widen(tensor.dtype, stored, reinterpret_cast<float*>(weight.memory.get()) + begin / element_bytes);
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
    pack_groups(part, stored.data(),
                weight.memory.get() + i * weight.stack_stride_bytes + first * weight.matrix.group_bytes, 0,
                last - first);
    begin += last - first;
  }
  return {};
}

void CpuBackend::release_weight(void* weight) noexcept { delete static_cast<CpuWeight*>(weight); }

// The layout of pack.h; instruction sets share it.
std::string_view CpuBackend::packed_layout() const { return "r16-2"; }

std::span<const std::byte> CpuBackend::packed_bytes(const void* weight) const {
  const auto& of = *static_cast<const CpuWeight*>(weight);
  return {of.memory.get(), of.bytes};
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

namespace {

std::string isa_of_environment() {
  const char* name = std::getenv("LLORCH_ISA");
  return name != nullptr ? name : "";
}

}  // namespace

Result<std::string_view> processor_isa() {
  return host::isa_name(TRY(choose_isa(host::detect_cpu_features(), isa_of_environment())));
}

void interleave(std::byte* memory, std::uint64_t bytes) { host::interleave(memory, bytes); }

Result<std::unique_ptr<plan::Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  const std::string wanted = options.isa.empty() ? isa_of_environment() : options.isa;
  const host::Isa isa = TRY(choose_isa(host::detect_cpu_features(), wanted));
  if (options.threads_count == 0) return fail(ErrorCode::kConfigInvalid, "the CPU device needs at least one thread");
  if (options.memory_budget_bytes == 0)
    return fail(ErrorCode::kConfigInvalid, "the CPU device needs a memory budget; set devices.cpu_memory_bytes");
  return std::make_unique<CpuBackend>(CpuBackend::Options{
      .isa = isa, .threads_count = options.threads_count, .memory_budget_bytes = options.memory_budget_bytes});
}

}  // namespace llorch::engine::compute::cpu
