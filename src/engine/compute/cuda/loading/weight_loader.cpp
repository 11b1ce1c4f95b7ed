#include "engine/compute/cuda/loading/weight_loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cuda/loading/pieces.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cuda::loading {
namespace {

using base::ErrorCode;
using base::fail;
using base::Result;
using plan::DType;
using plan::StoredTensor;

// Slots begin where kernels may read sixteen bytes at a time.
constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kPieceBytesMin = 4u << 10;

// Of slots that each of the pieces fits.
std::uint64_t slot_bytes_of(std::span<const StoredTensor> tensors, std::uint64_t piece_bytes) {
  return (largest_piece_bytes(tensors, piece_bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

// The limits that a load tries next when there is no room for its staging: fewer slots, then smaller pieces.
std::optional<LoadLimits> smaller(LoadLimits limits) {
  if (limits.slots_max > 1) {
    limits.slots_max /= 2;
  } else if (limits.piece_bytes > kPieceBytesMin) {
    limits.piece_bytes /= 2;
  } else {
    return std::nullopt;
  }
  return limits;
}

std::uint64_t slots_of(std::uint64_t pieces, const LoadLimits& limits) {
  return std::min<std::uint64_t>(limits.slots_max, pieces);
}

// The tensors in pieces, slots that each of them fits, and the memory they go through.
struct Ring {
  Ring(std::span<const StoredTensor> tensors, const LoadLimits& limits)
      : pieces(cut(tensors, limits.piece_bytes)),
        slot_bytes(slot_bytes_of(tensors, limits.piece_bytes)),
        slots(slots_of(pieces.size(), limits)) {}
  std::uint64_t bytes() const { return slots * slot_bytes; }

  std::vector<Piece> pieces;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  plan::DeviceBuffer device;      // bytes()
  std::unique_ptr<Staging> host;  // likewise
  std::vector<std::unique_ptr<Event>> packed;

  std::span<std::byte> host_slot(std::uint64_t piece) const {
    return host->bytes().subspan(piece % slots * slot_bytes, pieces[piece].stored_bytes);
  }
};

Result<Ring> take_ring(const LoadInput& input, const LoadLimits& limits) {
  Ring ring(input.tensors, limits);
  ring.device = TRY(plan::DeviceBuffer::allocate(input.backend, ring.bytes(), plan::MemoryPurpose::kStaging));
  ring.host = input.driver.make_staging(ring.bytes());
  if (ring.host == nullptr) {
    return fail(base::Error{
        ErrorCode::kModelLoadFailed,
        fmt::format("the host has no {} bytes of memory to lock for loading weights; free some, or raise the limit of "
                    "locked memory",
                    ring.bytes()),
        {}}.with("required_bytes", static_cast<std::int64_t>(ring.bytes())));
  }
  for (std::uint64_t i = 0; i < ring.slots; ++i) ring.packed.push_back(input.driver.make_event());
  return ring;
}

// As large as wanted, or as the device and the host have room for.
Result<Ring> make_ring(const LoadInput& input, LoadLimits limits) {
  for (;;) {
    Result<Ring> ring = take_ring(input, limits);
    if (ring) return ring;
    if (!input.driver.is_healthy()) TRY(input.driver.synchronize());  // what broke it is the reason, no lack of memory
    const auto next = smaller(limits);
    if (!next) return ring;
    limits = *next;
  }
}

// Threads that fill host slots with pieces, in order. A slot is filled anew once release() has said that its piece is through.
class Readers {
 public:
  Readers(const Ring& ring, std::span<const StoredTensor> tensors, std::uint32_t threads_count)
      : ring_(ring), tensors_(tensors), filled_(ring.slots) {
    for (std::uint32_t i = 0; i < threads_count; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Readers() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  // Waits for the piece in its slot.
  Result<> wait(std::uint64_t piece) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_.has_value() || filled_[piece % ring_.slots]; });
    if (failure_) return fail(*failure_);
    filled_[piece % ring_.slots] = false;
    return {};
  }
  // Pieces up to this one have left their slots.
  void release(std::uint64_t piece) {
    {
      const std::scoped_lock lock(mutex_);
      released_ = piece + 1;
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::uint64_t piece = next_++;
      if (piece >= ring_.pieces.size()) return;
      changed_.wait(lock, [&] { return stopping_ || failure_ || piece < released_ + ring_.slots; });
      if (stopping_ || failure_) return;
      lock.unlock();
      const Piece& what = ring_.pieces[piece];
      Result<> read = tensors_[what.tensor].read(what.stored_begin, ring_.host_slot(piece));
      lock.lock();
      if (!read && !failure_) failure_ = named(tensors_[what.tensor], std::move(read).error());
      filled_[piece % ring_.slots] = true;
      changed_.notify_all();
    }
  }

  const Ring& ring_;
  std::span<const StoredTensor> tensors_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> filled_;    // by slot
  std::uint64_t next_ = 0;      // piece to be read
  std::uint64_t released_ = 0;  // pieces before it have left their slots
  std::optional<base::Error> failure_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: they end before anything they use
};

void launch_pack(const CudaStream& stream, const StoredTensor& tensor, const kernels::PackArgs& args) {
  const auto launch = [&]<class Kernel>(std::uint32_t units) { stream.launch<Kernel>({.x = units}, args); };
  const auto quant = [&]<DType kType>() {
    launch.template operator()<kernels::PackQuant<kType>>((args.rows + kernels::kMmaRows - 1) / kernels::kMmaRows);
  };
  const std::uint32_t groups = (args.rows + kernels::kMmaRows - 1) / kernels::kMmaRows;
  const bool vector = is_vector(tensor);
  switch (tensor.dtype) {
    case DType::kF32: launch.template operator()<kernels::PackFloats<DType::kF32>>(args.rows); break;
    case DType::kF16:
      if (vector) {
        launch.template operator()<kernels::PackFloats<DType::kF16>>(args.rows);
      } else {
        launch.template operator()<kernels::PackHalf<DType::kF16>>(groups);
      }
      break;
    case DType::kBF16:
      if (vector) {
        launch.template operator()<kernels::PackFloats<DType::kBF16>>(args.rows);
      } else {
        launch.template operator()<kernels::PackHalf<DType::kBF16>>(groups);
      }
      break;
    case DType::kQ8_0: quant.template operator()<DType::kQ8_0>(); break;
    case DType::kQ4_0: quant.template operator()<DType::kQ4_0>(); break;
    case DType::kQ4_1: quant.template operator()<DType::kQ4_1>(); break;
    case DType::kQ5_0: quant.template operator()<DType::kQ5_0>(); break;
    case DType::kQ5_1: quant.template operator()<DType::kQ5_1>(); break;
    case DType::kQ2_K: quant.template operator()<DType::kQ2_K>(); break;
    case DType::kQ3_K: quant.template operator()<DType::kQ3_K>(); break;
    case DType::kQ4_K: quant.template operator()<DType::kQ4_K>(); break;
    case DType::kQ5_K: quant.template operator()<DType::kQ5_K>(); break;
    case DType::kQ6_K: quant.template operator()<DType::kQ6_K>(); break;
    case DType::kIQ4_NL: quant.template operator()<DType::kIQ4_NL>(); break;
    case DType::kIQ4_XS: quant.template operator()<DType::kIQ4_XS>(); break;
    case DType::kMXFP4: quant.template operator()<DType::kMXFP4>(); break;
    case DType::kF8_E4M3: launch.template operator()<kernels::PackF8>(groups); break;
    case DType::kI32: ASSERT(false, "{} was checked", tensor.name);
  }
}

// Everything that is read goes to the device and is packed there, while the next pieces are read.
Result<> send_all(const LoadInput& input, const Ring& ring, std::uint32_t threads_count,
                  const plan::UploadProgress& progress) {
  const std::uint64_t on_the_way = ring.slots / 2, count = ring.pieces.size();  // so many slots are the device's
  std::uint64_t bytes_total = 0, bytes_done = 0;
  for (const Piece& piece : ring.pieces) bytes_total += piece.stored_bytes;
  Readers readers(ring, input.tensors, threads_count);
  for (std::uint64_t i = 0; i < count + on_the_way; ++i) {
    if (i < count) {
      TRY(readers.wait(i));
      const Piece& piece = ring.pieces[i];
      std::byte* slot = ring.device.data() + i % ring.slots * ring.slot_bytes;
      input.driver.copy_from_staging(slot, ring.host_slot(i));
      kernels::PackArgs args = piece.pack;
      args.stored = slot;
      args.packed = input.memory[piece.tensor] + piece.packed_begin;
      launch_pack(input.stream, input.tensors[piece.tensor], args);
      input.driver.record(*ring.packed[i % ring.slots]);
    }
    if (i < on_the_way) continue;
    const std::uint64_t through = i - on_the_way;
    input.driver.wait(*ring.packed[through % ring.slots]);
    if (!input.driver.is_healthy()) break;
    readers.release(through);
    bytes_done += ring.pieces[through].stored_bytes;
    if (progress) progress(bytes_done, bytes_total);
  }
  return {};
}

}  // namespace

plan::StagingBytes staging_bytes(std::span<const StoredTensor> tensors, const LoadLimits& limits) {
  if (tensors.empty()) return {};
  LoadLimits least = limits;
  for (auto next = smaller(least); next; next = smaller(least)) least = *next;
  const std::uint64_t slots = slots_of(pieces_count(tensors, limits.piece_bytes), limits);
  return {.wanted = slots * slot_bytes_of(tensors, limits.piece_bytes),
          .least = slot_bytes_of(tensors, least.piece_bytes)};
}

Result<> load_weights(const LoadInput& input, const LoadLimits& limits, const plan::UploadProgress& progress) {
  if (input.tensors.empty()) return {};
  const Ring ring = TRY(make_ring(input, limits));
  const std::uint32_t threads_count = std::clamp(std::thread::hardware_concurrency(), 1u, limits.readers);
  const Result<> sent = send_all(input, ring, threads_count, progress);
  const Result<> done = input.driver.synchronize();  // before the ring ends
  return sent ? done : sent;
}

}  // namespace llorch::engine::compute::cuda::loading
