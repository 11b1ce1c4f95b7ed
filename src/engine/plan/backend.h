#pragma once
// The door between the engine and a device. Used at load and between steps; the step itself goes through the adapter tables.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "engine/plan/adapter.h"
#include "engine/plan/draw.h"
#include "engine/plan/tensor.h"

namespace llorch::engine::plan {

// What memory is for; errors and reports name it.
enum class MemoryPurpose : std::uint8_t { kWeights, kState, kActivations, kWorkspace, kTables, kStaging };
inline constexpr std::size_t kMemoryPurposesCount = 6;
constexpr std::string_view memory_purpose_name(MemoryPurpose purpose) {
  switch (purpose) {
    case MemoryPurpose::kWeights: return "weights";
    case MemoryPurpose::kState: return "state";
    case MemoryPurpose::kActivations: return "activations";
    case MemoryPurpose::kWorkspace: return "workspace";
    case MemoryPurpose::kTables: return "tables";
    case MemoryPurpose::kStaging: return "staging";  // while weights are loaded
  }
  return "?";
}

// Reads the bytes of a tensor that are not in memory. Thread rule: any number of threads at once.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // Bytes [begin, begin + out.size()) of the tensor. REQUIRES: both ends lie between blocks of its type.
  // Errors: IO_ERROR (also when the file has become shorter).
  virtual base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const = 0;
};

// A tensor as stored in the file. Shape row-major, last dimension contiguous; blocks run along the last dimension.
struct StoredTensor {
  DType dtype = DType::kF32;
  std::uint8_t rank = 0;
  std::array<std::uint32_t, kTensorRankMax> shape{};
  std::span<const std::byte> bytes;      // any alignment; valid only during the call
  std::uint8_t uses = 0;                 // union of WeightUse bits of all slots bound to this tensor
  const TensorSource* source = nullptr;  // has the bytes when `bytes` is empty; likewise valid only during the call
  std::string_view name;                 // for errors

  base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const {
    if (source != nullptr) return source->read(begin, out);
    std::memcpy(out.data(), bytes.data() + begin, out.size());
    return {};
  }
};

// A sum that devices which share a model take together.
struct SumLimits {
  std::uint32_t ranks = 1;
  std::uint64_t values_max = 0;
};

// Device memory, kStaging, beside the weights while they are loaded. As much host memory is locked meanwhile.
struct StagingBytes {
  std::uint64_t wanted = 0;  // what a load takes where there is room
  std::uint64_t least = 0;   // what it makes do with; where even that is not left, it is refused
  bool operator==(const StagingBytes&) const = default;
};

// Packed bytes of weights that were kept, in the order of the tensors. Thread rule: any number of threads at once.
class PackedSource {
 public:
  static constexpr std::size_t kPieceBytes = 256u << 10;  // the last piece of a tensor may be shorter
  virtual ~PackedSource() = default;
  // The `piece`-th piece of a tensor, as it was kept. Errors: IO_ERROR, CORRUPT_FILE.
  virtual base::Result<> read(std::size_t tensor, std::size_t piece, std::span<std::byte> out) const = 0;
};

// Bytes of stored tensors that have come as far as the device, about, and in all; what has come never shrinks and ends with all.
using UploadProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

// Thread rule: one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view device_class() const = 0;  // "cpu-x86", or GPU name and sm
  virtual std::string_view numerics() const = 0;      // "cpu-2"
  virtual std::string_view implementation()
      const = 0;  // which kernels were chosen: "avx2", "avxvnni", "avx512", "amx"; never changes a bit
  virtual const AdapterTables& tables() const = 0;  // same object for the backend's life
  virtual StreamHandle stream() = 0;

  // Around the instructions of a step. In between the backend may hold back what the adapters enqueue; end_step() sends it, and
  // every function below that touches device memory or waits sends it first. A step that failed is ended too.
  virtual void begin_step(const ExecutionContext&) noexcept {}
  virtual void end_step() noexcept {}

  // Device memory: zero-filled, resident, aligned to 64 bytes. Accounting counts exactly `bytes`. REQUIRES: bytes > 0.
  // Errors: OUT_OF_DEVICE_MEMORY with required_bytes, free_bytes, budget_bytes and the purpose.
  virtual base::Result<std::byte*> allocate(std::uint64_t bytes, MemoryPurpose purpose) = 0;
  virtual void release(std::byte* ptr) noexcept = 0;  // of allocate; null is fine
  virtual std::uint64_t memory_budget_bytes() const = 0;
  virtual std::uint64_t memory_used_bytes() const = 0;

  // What upload_weights() says of this tensor before it takes memory; reads no byte of it. Errors, naming the tensor:
  // WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH.
  virtual base::Result<> check_weight(const StoredTensor&) const { return {}; }
  // Bytes a weight will account for; exact, without touching tensor.bytes. REQUIRES: check_weight() took it.
  virtual std::uint64_t packed_weight_bytes(const StoredTensor& tensor) const = 0;
  // What upload_weights() of these takes beside the weights and has given back when it returns. REQUIRES: check_weight() took them.
  virtual StagingBytes staging_bytes(std::span<const StoredTensor>) const { return {}; }
  // Copies stored tensors to the device in the layout their uses want: repacked once, never requantized, one copy even with
  // several uses. weights[i] is what adapters get as TensorHandle::ptr. Reads with several threads; what it takes beside
  // the weights, here and on the device, is bounded and released again. All of them or, on an error, none.
  // `progress` is called on the calling thread. REQUIRES: weights.size() == tensors.size().
  // Errors: OUT_OF_DEVICE_MEMORY; naming the tensor WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, those of TensorSource.
  virtual base::Result<> upload_weights(std::span<const StoredTensor> tensors, std::span<void*> weights,
                                        const UploadProgress& progress) = 0;
  base::Result<void*> upload_weight(const StoredTensor& tensor) {
    void* weight = nullptr;
    TRY(upload_weights({&tensor, 1}, {&weight, 1}, {}));
    return weight;
  }
  virtual void release_weight(void* weight) noexcept = 0;

  // Names how weights are packed where their packed bytes may be kept and given back; empty: they may not.
  virtual std::string_view packed_layout() const { return {}; }
  // What packed_weight_bytes() counted, of a weight. It lives as the weight does. REQUIRES: packed_layout() is not empty.
  virtual std::span<const std::byte> packed_bytes(const void*) const { return {}; }
  // As upload_weights(), from packed bytes of the same tensors in the same layout: no byte of the tensors is read.
  // Errors: those of upload_weights() but for reading, those of `packed`. REQUIRES: packed_layout() is not empty.
  virtual base::Result<> upload_packed(std::span<const StoredTensor>, const PackedSource&, std::span<void*>,
                                       const UploadProgress&) {
    return base::fail(base::ErrorCode::kInternal, "this device keeps no packed weights");
  }

  // Plain copies, ordered with the stream; copy_to_host() returns when the bytes are there.
  virtual void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept = 0;
  virtual void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept = 0;
  virtual void zero(std::byte* device, std::uint64_t bytes) noexcept = 0;
  // Within the device. REQUIRES: the two do not overlap.
  virtual void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept = 0;
  // Waits for everything enqueued. Errors: CUDA_ERROR.
  virtual base::Result<> synchronize() = 0;

  // Everything allocated still lies in the device's own memory. For between steps; takes microseconds per allocation.
  // Errors: CUDA_ERROR, naming the purpose and where it lies instead. The CPU device's memory is the host's: always well.
  virtual base::Result<> check_residency() = 0;

  // Device memory, kWorkspace, that the collective of this kind of device takes of each to sum; exact.
  virtual std::uint64_t sum_bytes(const SumLimits&) const { return 0; }

  // Device memory that make_device_sampler() takes; exact.
  virtual std::uint64_t device_sampler_bytes(const DrawLimits&) const { return 0; }
  // Null where rows are read back and drawn from on the host. It ends before the backend. Errors: OUT_OF_DEVICE_MEMORY.
  virtual base::Result<std::unique_ptr<DeviceSampler>> make_device_sampler(const DrawLimits&) { return nullptr; }
};

// Device memory with an owner; of 0 bytes, none.
class DeviceBuffer {
 public:
  static base::Result<DeviceBuffer> allocate(Backend& backend, std::uint64_t bytes, MemoryPurpose purpose) {
    if (bytes == 0) return DeviceBuffer();
    std::byte* ptr = TRY(backend.allocate(bytes, purpose));
    return DeviceBuffer(&backend, ptr, bytes);
  }
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : backend_(std::exchange(other.backend_, nullptr)),
        ptr_(std::exchange(other.ptr_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(ptr_, other.ptr_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (backend_ != nullptr) backend_->release(ptr_);
  }
  std::byte* data() const { return ptr_; }
  std::uint64_t size_bytes() const { return bytes_; }

 private:
  DeviceBuffer(Backend* backend, std::byte* ptr, std::uint64_t bytes) : backend_(backend), ptr_(ptr), bytes_(bytes) {}
  Backend* backend_ = nullptr;
  std::byte* ptr_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace llorch::engine::plan
