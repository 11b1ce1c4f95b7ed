// The backend object: accounting, refusals, residency, counters.
#include <gtest/gtest.h>

#include <algorithm>

#include <cstring>

#include "engine/compute/cuda/adapters/tables.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/emulation/forwarding_driver.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using base::ErrorCode;
using plan::DType;
using plan::MemoryPurpose;
using plan::WeightUse;

plan::StoredTensor tensor(DType dtype, std::uint32_t rows, std::uint32_t cols, std::span<const std::byte> bytes,
                          WeightUse use = WeightUse::kMatrix) {
  return {.dtype = dtype, .rank = 2, .shape = {rows, cols}, .bytes = bytes, .uses = static_cast<std::uint8_t>(use)};
}

// A full device says what was wanted, what is free and who holds the rest, and goes on working.
TEST(CudaDevice, RefusesWithNumbersAndSurvives) {
  const auto backend = make_backend({.memory_bytes = 1 << 20});
  std::byte* held = backend->allocate(600 << 10, MemoryPurpose::kState).value();
  const auto refused = backend->allocate(500 << 10, MemoryPurpose::kActivations);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  for (const char* part : {"512000 bytes of VRAM for activations", "Budget 1048576", "434176 free", "state 614400"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  std::byte* more = backend->allocate(400 << 10, MemoryPurpose::kActivations).value();
  EXPECT_EQ(backend->memory_used_bytes(), 1000u << 10);
  EXPECT_EQ(backend->used_bytes(MemoryPurpose::kActivations), 400u << 10);
  EXPECT_EQ(backend->allocations_count(MemoryPurpose::kState), 1u);
  backend->release(held);
  backend->release(more);
  EXPECT_EQ(backend->memory_used_bytes(), 0u);
}

// The budget is there, the memory is not: another process has it.
TEST(CudaDevice, TellsAFullDeviceFromASpentBudget) {
  CudaBackend backend(make_driver({.memory_bytes = 1 << 20}), 1 << 24);
  const auto refused = backend.allocate(2 << 20, MemoryPurpose::kWeights);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_NE(refused.error().message.find("the device has 1048576 bytes left"), std::string::npos);
}

TEST(CudaDevice, MemoryIsZeroed) {
  const auto backend = make_backend({});
  std::byte* ptr = backend->allocate(4096, MemoryPurpose::kState).value();
  std::vector<std::byte> bytes(4096, std::byte{1});
  backend->copy_to_host(bytes, ptr);
  EXPECT_EQ(bytes, std::vector<std::byte>(4096));
  backend->release(ptr);
}

TEST(CudaDevice, PackedWeightsTakeWhatWasPromised) {
  const auto backend = make_backend({});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kMXFP4, DType::kF8_E4M3}) {
    const auto info = plan::dtype_info(dtype);
    const std::uint32_t cols = plan::is_quantized(dtype) ? 512 : 13;
    const std::vector<std::byte> bytes(19 * plan::row_bytes(dtype, cols));
    const auto stored = tensor(dtype, 19, cols, bytes);
    void* weight = backend->upload_weight(stored).value();
    EXPECT_EQ(backend->used_bytes(MemoryPurpose::kWeights), backend->packed_weight_bytes(stored)) << info.name;
    backend->release_weight(weight);
  }
  EXPECT_EQ(backend->upload_weight(tensor(DType::kI32, 2, 2, std::vector<std::byte>(16))).error().code,
            ErrorCode::kWeightDTypeUnsupported);
  EXPECT_EQ(backend->upload_weight(tensor(DType::kQ8_0, 2, 33, std::vector<std::byte>(68))).error().code,
            ErrorCode::kWeightShapeMismatch);
}

// M0-W-1201, M0-W-1435: no type becomes a wider one on the device: bytes as stored, but for six-bit scales that get a byte each.
TEST(CudaDevice, EveryTypeHasItsOwnStorage) {
  const auto backend = make_backend({});
  for (std::size_t i = 0; i < plan::kDTypesCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if ((adapters::kMatrixTypes & plan::dtype_bit(dtype)) == 0) continue;
    constexpr std::uint32_t kRows = 4096, kCols = 7168;
    const std::uint64_t packed = backend->packed_weight_bytes(tensor(dtype, kRows, kCols, {}));
    EXPECT_LE(static_cast<double>(packed), 1.04 * static_cast<double>(kRows * plan::row_bytes(dtype, kCols)))
        << plan::dtype_info(dtype).name;
  }
}

// A driver whose memory has moved.
class Elsewhere final : public ForwardingDriver {
 public:
  explicit Elsewhere(Residency place) : ForwardingDriver(make_driver({})), place_(place) {}
  Residency residency(const std::byte*) override { return place_; }

 private:
  Residency place_;
};

// Control of M0-W-1012.
// SYS-2.2.1: memory that is not the device's own is noticed, whatever it is instead.
TEST(CudaDevice, NoticesWhatIsNotResident) {
  for (const auto& [place, word] : {std::pair{Residency::kHost, "host memory"},
                                    {Residency::kManaged, "managed memory"},
                                    {Residency::kOtherDevice, "another device"}}) {
    CudaBackend backend(std::make_unique<Elsewhere>(place), 1 << 20);
    EXPECT_TRUE(backend.check_residency());
    std::byte* ptr = backend.allocate(64, MemoryPurpose::kState).value();
    const auto checked = backend.check_residency();
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, ErrorCode::kCudaError);
    EXPECT_NE(checked.error().message.find(word), std::string::npos) << checked.error().message;
    backend.release(ptr);
  }
}

TEST(CudaDevice, SaysWhatItIs) {
  const auto backend = make_backend({});
  EXPECT_EQ(backend->device_class(), "emulated sm_90");
  EXPECT_EQ(backend->numerics(), "cuda-4");
}

// Every opcode has its adapter; what an adapter cannot do is refused when the model is loaded.
TEST(CudaDevice, HasEveryOpcode) {
  for (const plan::OpcodeInfo& row : plan::kOpcodes)
    EXPECT_NE(adapters::kCudaTables.run[static_cast<std::size_t>(row.opcode)], nullptr) << row.name;
}

TEST(CudaDevice, DevicesByName) {
  EXPECT_EQ(parse_device("3").value(), 3u);
  EXPECT_EQ(parse_device("cuda:12").value(), 12u);
  for (const char* text : {"", "cuda:", "cuda:x", "1x", "-1", "gpu"})
    EXPECT_EQ(parse_device(text).error().code, ErrorCode::kGpuUnavailable) << text;
}

// Rows are staged in the form that most of the matrices that are there take, not those of a model before.
TEST(CudaDevice, PrefersTheFormOfTheMatricesItHolds) {
  const auto backend = make_backend({});
  const auto form = [&] { return static_cast<const CudaStream*>(backend->stream().ptr)->form(); };
  const std::vector<std::byte> bytes(4096);
  const auto upload = [&](DType dtype, std::size_t count) {
    return backend->upload_weight(tensor(dtype, 2, 32, std::span(bytes).first(count))).value();
  };
  void* const first = upload(DType::kQ8_0, 68);
  void* const second = upload(DType::kQ8_0, 68);
  EXPECT_EQ(form(), Form::kBytes);
  backend->release_weight(first);
  backend->release_weight(second);
  EXPECT_EQ(form(), Form::kFloat);
  void* const other = upload(DType::kF16, 128);
  EXPECT_EQ(form(), Form::kHalves);
  backend->release_weight(other);
}

// Without memory to lock there is no device sampler, and nothing stays taken.
TEST(CudaDevice, ADeviceSamplerNeedsStaging) {
  struct NoStaging final : ForwardingDriver {
    using ForwardingDriver::ForwardingDriver;
    std::unique_ptr<Staging> make_staging(std::uint64_t) override { return nullptr; }
  };
  CudaBackend backend(std::make_unique<NoStaging>(make_driver({})), 1u << 30);
  const auto refused = backend.make_device_sampler({.rows_max = 2, .width = 100, .edits_max = 4});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kModelLoadFailed);
  EXPECT_NE(refused.error().message.find("memory to lock"), std::string::npos);
  EXPECT_EQ(backend.memory_used_bytes(), 0u);
}

// What is staged travels in the order of the stream, and is there for the host once it has waited.
TEST(CudaDevice, StagedCopiesAreDoneWhenTheirEventIs) {
  const auto driver = make_driver({});
  const auto staging = driver->make_staging(4096);
  ASSERT_NE(staging, nullptr);
  const auto to = staging->bytes().first(4), back = staging->bytes().subspan(64, 4);
  std::byte* device = driver->malloc(256);
  std::ranges::fill(to, std::byte{7});
  driver->copy_from_staging(device, to);
  const auto first = driver->make_event(), second = driver->make_event();
  driver->copy_to_staging(back, device);
  driver->record(*first);
  driver->zero(device, 4);
  driver->copy_to_staging(to, device);
  driver->record(*second);
  driver->wait(*first);
  EXPECT_EQ(back[3], std::byte{7});
  EXPECT_NE(to[3], std::byte{0}) << "the second copy need not be done yet, and the emulation never hurries";
  driver->wait(*second);
  EXPECT_EQ(to[3], std::byte{0});
  EXPECT_EQ(driver->residency(to.data()), Residency::kHost);
  driver->free(device);
}

// A device may read staged bytes late: who changes them early is found out.
TEST(CudaDevice, StagedBytesBelongToTheirCopyUntilItsEvent) {
  const auto driver = make_driver({});
  const auto staging = driver->make_staging(4096);
  std::byte* device = driver->malloc(256);
  const auto event = driver->make_event();
  const auto send = [&] {
    driver->copy_from_staging(device, staging->bytes().first(16));
    driver->record(*event);
  };
  send();
  staging->bytes()[16] = std::byte{1};  // of no copy
  driver->wait(*event);
  staging->bytes()[3] = std::byte{2};
  send();
  EXPECT_DEATH(
      {
        staging->bytes()[3] = std::byte{3};
        driver->wait(*event);
      },
      "changed before their copy was waited for");
  driver->wait(*event);
  driver->free(device);
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
