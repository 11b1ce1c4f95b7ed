// Weights through the ring on the emulated device, against the reference that packs on the host
// (kernels/packing/packing_reference.h).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "engine/compute/cuda/device.h"
#include "engine/compute/cuda/emulation/forwarding_driver.h"
#include "engine/compute/cuda/kernels/packing/packing_reference.h"
#include "engine/compute/cuda/loading/pieces.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cuda::loading {
namespace {

using base::ErrorCode;
using emulation::ForwardingDriver;
using emulation::make_driver;
using plan::DType;
using plan::MemoryPurpose;
using plan::StoredTensor;
using plan::WeightUse;

constexpr std::uint64_t kDeviceBytes = 64u << 20;

// Does nothing before it is waited for: whoever fills a slot too early loads other bytes.
class LazyDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  using ForwardingDriver::launch;
  ~LazyDriver() override { run_to(enqueued_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<Place>(); }
  void copy_from_staging(std::byte* device, std::span<const std::byte> staged) noexcept override {
    enqueue([=, this] { ForwardingDriver::copy_from_staging(device, staged); });
  }
  void launch(kernels::KernelId kernel, const Grid& grid, const void* args) noexcept override {
    static const auto bytes = kernels::AllKernels::table<std::size_t>(
        []<class Kernel>() -> std::size_t { return sizeof(typename Kernel::Args); });
    const auto* begin = static_cast<const std::byte*>(args);
    enqueue([=, this, own = std::vector<std::byte>(begin, begin + bytes[static_cast<std::size_t>(kernel)])] {
      ForwardingDriver::launch(kernel, grid, own.data());
    });
  }
  void record(Event& event) noexcept override { static_cast<Place&>(event).at = enqueued_; }
  void wait(Event& event) noexcept override { run_to(static_cast<Place&>(event).at); }
  void zero(std::byte* device, std::uint64_t bytes) noexcept override {
    run_to(enqueued_);
    ForwardingDriver::zero(device, bytes);
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override {
    run_to(enqueued_);
    ForwardingDriver::copy_to_host(host, device);
  }
  void free(std::byte* ptr) noexcept override {
    EXPECT_TRUE(open_.empty()) << "memory released under what was enqueued";
    ForwardingDriver::free(ptr);
  }
  base::Result<> synchronize() override {
    run_to(enqueued_);
    return ForwardingDriver::synchronize();
  }

 private:
  struct Place final : Event {
    std::uint64_t at = 0;
  };
  void enqueue(std::function<void()> work) {
    open_.push_back(std::move(work));
    ++enqueued_;
  }
  void run_to(std::uint64_t at) {
    for (; done_ < at; ++done_, open_.pop_front()) open_.front()();
  }

  std::deque<std::function<void()>> open_;
  std::uint64_t enqueued_ = 0, done_ = 0;
};

// Counts what is taken, and lets it fail.
class ScarceDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  std::byte* malloc(std::uint64_t bytes) override {
    return ++mallocs >= fail_from ? nullptr : ForwardingDriver::malloc(bytes);
  }
  std::unique_ptr<Staging> make_staging(std::uint64_t bytes) override {
    staged_bytes = bytes;
    return bytes > staging_max ? nullptr : ForwardingDriver::make_staging(bytes);
  }
  bool is_healthy() const noexcept override { return !broken; }
  base::Result<> synchronize() override {
    if (broken) return base::fail(ErrorCode::kCudaError, "broken");
    return ForwardingDriver::synchronize();
  }
  std::uint64_t mallocs = 0, fail_from = ~std::uint64_t{0}, staged_bytes = 0;
  bool broken = false;
  std::uint64_t staging_max = ~std::uint64_t{0};
};

// Reads from memory, counts, and may fail.
class Source final : public plan::TensorSource {
 public:
  explicit Source(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const override {
    if (++reads >= fail_from) return base::fail(ErrorCode::kIoError, "the disk is gone");
    std::memcpy(out.data(), bytes_.data() + begin, out.size());
    return {};
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  mutable std::atomic<std::uint64_t> reads = 0;
  std::uint64_t fail_from = ~std::uint64_t{0};

 private:
  std::vector<std::byte> bytes_;
};

// Random tensors of every type a device takes: matrices, a stack, vectors; whole groups of rows and not.
struct Model {
  explicit Model(std::uint32_t seed = 1) : random(seed) {
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      add(type, {37, 24});
      add(type, {16, 13});
      add(type, {3, 20, 136});
      add(type, {1000});
    }
    for (const DType type :
         {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
          DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
      add(type, {37, 512});
      add(type, {2, 16, 256});
    }
    add(DType::kF8_E4M3, {37, 300});
    add(DType::kF8_E4M3, {2, 16, 128});
  }
  void add(DType type, std::vector<std::uint32_t> shape) {
    StoredTensor tensor{.dtype = type, .rank = static_cast<std::uint8_t>(shape.size()), .shape = {}};
    std::ranges::copy(shape, tensor.shape.begin());
    tensor.uses = static_cast<std::uint8_t>(shape.size() == 1 ? WeightUse::kVector : WeightUse::kMatrix);
    std::vector<std::byte> bytes(stored_bytes(tensor));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    if (type == DType::kF16 || type == DType::kBF16) {
      // No infinities and NaN: which NaN a device makes of one is its own affair.
      const std::uint16_t exponent = type == DType::kF16 ? 0x7C00 : 0x7F80;
      for (std::size_t i = 0; i < bytes.size(); i += 2) {
        std::uint16_t bits;
        std::memcpy(&bits, &bytes[i], sizeof bits);
        if ((bits & exponent) == exponent) bits = static_cast<std::uint16_t>(bits & ~0x4000u);
        std::memcpy(&bytes[i], &bits, sizeof bits);
      }
    }
    names.push_back(std::make_unique<std::string>("t" + std::to_string(names.size())));
    sources.push_back(std::make_unique<Source>(std::move(bytes)));
    tensor.name = *names.back();
    tensor.source = sources.back().get();
    tensors.push_back(tensor);
  }
  std::uint64_t bytes() const {
    std::uint64_t total = 0;
    for (const auto& source : sources) total += source->bytes().size();
    return total;
  }

  std::mt19937 random;
  std::vector<std::unique_ptr<std::string>> names;
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<StoredTensor> tensors;
};

std::vector<std::byte> packed_by_the_host(const StoredTensor& tensor, std::span<const std::byte> stored) {
  if (is_vector(tensor)) {
    std::vector<float> values(elements_of(tensor));
    widen(tensor.dtype, stored, values.data());
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }
  const cpu::MatrixShape shape = matrix_shape(tensor);
  const std::size_t each = stored.size() / stack_count(tensor);
  std::vector<std::byte> packed(matrix_bytes(shape) * stack_count(tensor));
  for (std::uint32_t i = 0; i < stack_count(tensor); ++i)
    kernels::pack_units_reference(shape, stored.subspan(i * each, each),
                                  std::span(packed).subspan(i * matrix_bytes(shape), matrix_bytes(shape)), 0,
                                  units_of(shape));
  return packed;
}

void expect_packed(CudaBackend& backend, const Model& model, std::span<void* const> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto expected = packed_by_the_host(model.tensors[i], model.sources[i]->bytes());
    std::vector<std::byte> packed(expected.size());
    backend.copy_to_host(packed, static_cast<const CudaWeight*>(weights[i])->memory);
    EXPECT_EQ(packed, expected) << plan::dtype_info(model.tensors[i].dtype).name << ' ' << model.tensors[i].name;
  }
}

// Whatever the pieces, the slots, the threads, the order of a device's threads and how late it gets to its work.
TEST(WeightLoader, PacksOnTheDeviceWhatTheHostWouldPack) {
  for (const LoadLimits& limits : {LoadLimits{}, LoadLimits{.readers = 3, .slots_max = 3, .piece_bytes = 1},
                                   LoadLimits{.readers = 1, .slots_max = 1, .piece_bytes = 3000},
                                   LoadLimits{.readers = 8, .slots_max = 8, .piece_bytes = 10000}}) {
    for (const bool backwards : {false, true}) {
      Model model;
      CudaBackend backend(
          std::make_unique<LazyDriver>(make_driver({.memory_bytes = kDeviceBytes, .backwards = backwards})),
          kDeviceBytes);
      backend.limit_loads(limits);
      std::vector<void*> weights(model.tensors.size());
      const auto caller = std::this_thread::get_id();
      std::uint64_t done = 0;
      const auto uploaded = backend.upload_weights(model.tensors, weights, [&](std::uint64_t now, std::uint64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_GT(now, done);
        EXPECT_EQ(total, model.bytes());
        done = now;
      });
      ASSERT_TRUE(uploaded) << uploaded.error().message;
      EXPECT_EQ(done, model.bytes());
      EXPECT_EQ(backend.used_bytes(MemoryPurpose::kStaging), 0u);
      EXPECT_TRUE(backend.check_residency());
      expect_packed(backend, model, weights);
      for (void* weight : weights) backend.release_weight(weight);
    }
  }
}

// Gives memory that is aligned as the driver's door promises, and no better.
class CrookedDriver final : public ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  std::byte* malloc(std::uint64_t bytes) override {
    std::byte* const memory = ForwardingDriver::malloc(bytes + kAside);
    return memory == nullptr ? nullptr : memory + kAside;
  }
  void free(std::byte* ptr) noexcept override { ForwardingDriver::free(ptr - kAside); }

 private:
  static constexpr std::uint64_t kAside = 256;
};

// M0-W-1220: every weight begins at a multiple of 256 bytes of the device's memory.
TEST(WeightLoader, WeightsAreAlignedTo256Bytes) {
  Model model;
  CudaBackend backend(std::make_unique<CrookedDriver>(make_driver({.memory_bytes = kDeviceBytes})), kDeviceBytes);
  std::vector<void*> weights(model.tensors.size());
  ASSERT_TRUE(backend.upload_weights(model.tensors, weights, {}));
  const auto is_aligned = [](const void* ptr) { return reinterpret_cast<std::uintptr_t>(ptr) % 256 == 0; };
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_TRUE(is_aligned(static_cast<const CudaWeight*>(weights[i])->memory)) << *model.names[i];
  expect_packed(backend, model, weights);
  for (void* weight : weights) backend.release_weight(weight);
}

// 4 MiB a slot whatever the tensors are, and no more than all of them together.
TEST(WeightLoader, TakesABoundedAmountBeside) {
  auto owned = std::make_unique<ScarceDriver>(make_driver({.memory_bytes = kDeviceBytes}));
  ScarceDriver& driver = *owned;
  CudaBackend backend(std::move(owned), kDeviceBytes);
  backend.limit_loads({.readers = 2, .slots_max = 4, .piece_bytes = 64 << 10});
  Model model;
  model.add(DType::kF16, {1024, 512});  // 1 MiB
  model.add(DType::kF32, {300000});
  std::vector<void*> weights(model.tensors.size());
  std::uint64_t staged_most = 0;
  ASSERT_TRUE(backend.upload_weights(model.tensors, weights, [&](std::uint64_t, std::uint64_t) {
    staged_most = std::max(staged_most, backend.used_bytes(MemoryPurpose::kStaging));
  }));
  EXPECT_EQ(staged_most, 4u * (64 << 10));
  EXPECT_EQ(backend.staging_bytes(model.tensors).wanted, staged_most);
  EXPECT_EQ(driver.staged_bytes, staged_most);
  expect_packed(backend, model, weights);
  for (void* weight : weights) backend.release_weight(weight);
}

// Whoever only asks has no memory for pieces: a stack may have millions of matrices of one element.
TEST(WeightLoader, WhatStagingTakesIsKnownWithoutThePieces) {
  StoredTensor stack{.dtype = DType::kF32, .rank = 3, .shape = {1u << 22, 1, 1}};
  stack.uses = static_cast<std::uint8_t>(WeightUse::kMatrix);
  const LoadLimits limits;
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const plan::StagingBytes staging = staging_bytes(std::span(&stack, 1), limits);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(staging, (plan::StagingBytes{.wanted = limits.slots_max * std::uint64_t{256}, .least = 256}));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB";  // the pieces would take some 300 MiB
}

// What fits a device is loaded even where hardly anything is left beside the weights.
TEST(WeightLoader, MakesDoWithTheRoomThereIs) {
  const std::uint32_t rows = 4096, cols = 128;
  Model model;
  model.tensors.clear(), model.sources.clear(), model.names.clear();
  model.add(DType::kF16, {rows, cols});
  const std::uint64_t weights_bytes = std::uint64_t{rows} * cols * 2;
  for (const std::uint64_t left : {std::uint64_t{64 << 10}, std::uint64_t{300 << 10}}) {
    CudaBackend backend(make_driver({.memory_bytes = kDeviceBytes}), weights_bytes + left);
    std::vector<void*> weights(1);
    ASSERT_TRUE(backend.upload_weights(model.tensors, weights, {})) << left;
    expect_packed(backend, model, weights);
    backend.release_weight(weights[0]);
  }
  // What it asks for at least is enough, and a byte less is not.
  const std::uint64_t least =
      CudaBackend(make_driver({.memory_bytes = kDeviceBytes}), kDeviceBytes).staging_bytes(model.tensors).least;
  EXPECT_EQ(least, 4u << 10);  // sixteen rows
  for (const bool enough : {true, false}) {
    CudaBackend backend(make_driver({.memory_bytes = kDeviceBytes}), weights_bytes + least - (enough ? 0 : 1));
    std::vector<void*> weights(1);
    ASSERT_EQ(backend.upload_weights(model.tensors, weights, {}).has_value(), enough);
    if (!enough) continue;
    expect_packed(backend, model, weights);
    backend.release_weight(weights[0]);
  }
  CudaBackend full(make_driver({.memory_bytes = kDeviceBytes}), weights_bytes + 100);
  std::vector<void*> weights(1);
  const auto refused = full.upload_weights(model.tensors, weights, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_NE(refused.error().message.find("for staging"), std::string::npos) << refused.error().message;
  EXPECT_EQ(full.memory_used_bytes(), 0u);
}

// Every allocation from the n-th on, and the memory to lock.
TEST(WeightLoader, AnyMemoryMayBeMissing) {
  for (std::uint64_t n = 1;; ++n) {
    auto owned = std::make_unique<ScarceDriver>(make_driver({.memory_bytes = kDeviceBytes}));
    ScarceDriver& driver = *owned;
    driver.fail_from = n;
    CudaBackend backend(std::move(owned), kDeviceBytes);
    Model model;
    std::vector<void*> weights(model.tensors.size());
    const auto uploaded = backend.upload_weights(model.tensors, weights, {});
    if (uploaded) {
      EXPECT_EQ(n, model.tensors.size() + 2);  // each weight's, and one for staging
      for (void* weight : weights) backend.release_weight(weight);
      break;
    }
    EXPECT_EQ(uploaded.error().code, ErrorCode::kOutOfDeviceMemory);
    EXPECT_EQ(backend.memory_used_bytes(), 0u);
    EXPECT_EQ(weights, std::vector<void*>(model.tensors.size()));
    for (const auto& source : model.sources) EXPECT_EQ(source->reads, 0u);
    const bool of_a_tensor = n <= model.tensors.size();
    EXPECT_EQ(uploaded.error().message.starts_with("tensor t" + std::to_string(n - 1) + ": "), of_a_tensor)
        << uploaded.error().message;
  }
}

// The host's shortage is no shortage of the device: the load makes do with what can be locked, and says which it was.
TEST(WeightLoader, TheHostMayHaveLittleToLock) {
  Model model;
  const std::uint64_t least =
      CudaBackend(make_driver({.memory_bytes = kDeviceBytes}), kDeviceBytes).staging_bytes(model.tensors).least;
  for (const std::uint64_t lockable : {least, least - 1}) {
    auto owned = std::make_unique<ScarceDriver>(make_driver({.memory_bytes = kDeviceBytes}));
    owned->staging_max = lockable;
    CudaBackend backend(std::move(owned), kDeviceBytes);
    std::vector<void*> weights(model.tensors.size());
    const auto uploaded = backend.upload_weights(model.tensors, weights, {});
    ASSERT_EQ(uploaded.has_value(), lockable == least);
    if (uploaded) {
      expect_packed(backend, model, weights);
      for (void* weight : weights) backend.release_weight(weight);
    } else {
      EXPECT_EQ(uploaded.error().code, ErrorCode::kModelLoadFailed);
      EXPECT_NE(uploaded.error().message.find("memory to lock"), std::string::npos);
    }
    EXPECT_EQ(backend.memory_used_bytes(), 0u);
  }
}

// Nor is a device that broke: it can give nothing either, and is asked once.
TEST(WeightLoader, ABrokenDeviceIsNoLackOfMemory) {
  auto owned = std::make_unique<ScarceDriver>(make_driver({.memory_bytes = kDeviceBytes}));
  ScarceDriver& driver = *owned;
  driver.staging_max = 0;
  driver.broken = true;
  CudaBackend backend(std::move(owned), kDeviceBytes);
  Model model;
  std::vector<void*> weights(model.tensors.size());
  const auto uploaded = backend.upload_weights(model.tensors, weights, {});
  ASSERT_FALSE(uploaded);
  EXPECT_EQ(uploaded.error().code, ErrorCode::kCudaError) << uploaded.error().message;
  EXPECT_EQ(driver.mallocs, model.tensors.size() + 1);
  EXPECT_EQ(backend.memory_used_bytes(), 0u);
}

// A read that fails, wherever it is, ends the load with the tensor's name, and nothing stays.
TEST(WeightLoader, AReadMayFail) {
  const std::size_t count = Model().tensors.size();
  for (std::size_t which = 0; which < count; ++which) {
    Model model;
    model.sources[which]->fail_from = 1 + which % 2;
    CudaBackend backend(std::make_unique<LazyDriver>(make_driver({.memory_bytes = kDeviceBytes})), kDeviceBytes);
    backend.limit_loads({.readers = 4, .slots_max = 4, .piece_bytes = 600});
    std::vector<void*> weights(count);
    const auto uploaded = backend.upload_weights(model.tensors, weights, {});
    if (model.sources[which]->reads < model.sources[which]->fail_from) {  // it has one piece
      ASSERT_TRUE(uploaded) << uploaded.error().message;
      for (void* weight : weights) backend.release_weight(weight);
      continue;
    }
    ASSERT_FALSE(uploaded);
    EXPECT_EQ(uploaded.error().code, ErrorCode::kIoError);
    EXPECT_EQ(uploaded.error().message, "tensor " + *model.names[which] + ": the disk is gone");
    EXPECT_EQ(backend.memory_used_bytes(), 0u);
  }
}

TEST(WeightLoader, ADeviceThatFailsEndsTheLoad) {
  auto owned = std::make_unique<ScarceDriver>(make_driver({.memory_bytes = kDeviceBytes}));
  ScarceDriver& driver = *owned;
  CudaBackend backend(std::move(owned), kDeviceBytes);
  backend.limit_loads({.readers = 2, .slots_max = 2, .piece_bytes = 600});
  Model model;
  std::vector<void*> weights(model.tensors.size());
  const auto uploaded =
      backend.upload_weights(model.tensors, weights, [&](std::uint64_t, std::uint64_t) { driver.broken = true; });
  ASSERT_FALSE(uploaded);
  EXPECT_EQ(uploaded.error().code, ErrorCode::kCudaError);
  EXPECT_EQ(backend.memory_used_bytes(), 0u);
}

TEST(Pieces, AreEveryByteOnceInOrder) {
  const Model model;
  for (const std::uint64_t piece_bytes : {std::uint64_t{1}, std::uint64_t{700}, std::uint64_t{20000}}) {
    std::uint32_t tensor = 0;
    std::uint64_t at = 0, largest = 0;
    for (const Piece& piece : cut(model.tensors, piece_bytes)) {
      largest = std::max(largest, piece.stored_bytes);
      if (piece.tensor != tensor) {
        EXPECT_EQ(at, stored_bytes(model.tensors[tensor]));
        EXPECT_EQ(piece.tensor, tensor + 1);
        tensor = piece.tensor, at = 0;
      }
      EXPECT_EQ(piece.stored_begin, at);
      EXPECT_TRUE(piece.stored_bytes <= piece_bytes || piece.pack.rows <= 16);
      at += piece.stored_bytes;
    }
    EXPECT_EQ(largest_piece_bytes(model.tensors, piece_bytes), largest);
    EXPECT_EQ(pieces_count(model.tensors, piece_bytes), cut(model.tensors, piece_bytes).size());
    EXPECT_EQ(tensor + 1, model.tensors.size());
    EXPECT_EQ(at, stored_bytes(model.tensors.back()));
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::loading
