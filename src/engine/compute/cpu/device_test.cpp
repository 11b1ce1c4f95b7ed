#include "engine/compute/cpu/device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/compute/cpu/backend.h"
#include "engine/compute/cpu/choose_isa.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/half.h"

namespace llorch::engine::compute::cpu {
namespace {

using base::ErrorCode;
using plan::DType;
using plan::MemoryPurpose;
using plan::StoredTensor;
using plan::WeightUse;

constexpr std::uint64_t kBudget = 1u << 20;

std::unique_ptr<plan::Backend> backend(std::uint64_t budget = kBudget) {
  return make_cpu_backend({.threads_count = 2, .memory_budget_bytes = budget, .isa = ""}).value();
}

std::int64_t detail(const base::Error& error, std::string_view key) {
  for (const auto& [name, value] : error.details)
    if (name == key) return std::get<std::int64_t>(value);
  return -1;
}

StoredTensor tensor(DType dtype, std::initializer_list<std::uint32_t> shape, std::span<const std::byte> bytes,
                    WeightUse use) {
  StoredTensor t{.dtype = dtype,
                 .rank = static_cast<std::uint8_t>(shape.size()),
                 .shape = {},
                 .bytes = bytes,
                 .uses = static_cast<std::uint8_t>(use)};
  std::copy(shape.begin(), shape.end(), t.shape.begin());
  return t;
}

TEST(CpuBackend, SaysWhatItIs) {
  const auto device = backend();
  EXPECT_EQ(device->device_class(), "cpu-x86");
  EXPECT_EQ(device->numerics(), "cpu-2");
  const char* isa = std::getenv("LLORCH_ISA");
  EXPECT_EQ(device->implementation(),
            host::isa_name(choose_isa(host::detect_cpu_features(), isa != nullptr ? isa : "").value()));
  EXPECT_EQ(make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1, .isa = "avx2"}).value()->implementation(),
            "avx2");
}

TEST(CpuBackend, TheEnvironmentChoosesTheInstructionSetUnlessTheCallerDoes) {
  const auto implementation = [](const char* isa) {
    const auto device = make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1, .isa = isa});
    return device ? std::string((*device)->implementation()) : std::string(device.error().name());
  };
  const char* before = std::getenv("LLORCH_ISA");
  const std::string saved = before != nullptr ? before : "";
  ::setenv("LLORCH_ISA", "avx2", 1);
  EXPECT_EQ(implementation(""), "avx2");
  ::setenv("LLORCH_ISA", "neon", 1);
  EXPECT_EQ(implementation(""), "CONFIG_INVALID");
  EXPECT_EQ(implementation("avx2"), "avx2");
  if (saved.empty()) {
    ::unsetenv("LLORCH_ISA");
  } else {
    ::setenv("LLORCH_ISA", saved.c_str(), 1);
  }
}

TEST(CpuBackend, ImpossibleOptionsAreRefused) {
  EXPECT_EQ(make_cpu_backend({.threads_count = 0, .memory_budget_bytes = 1, .isa = ""}).error().code,
            ErrorCode::kConfigInvalid);
  EXPECT_EQ(make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 0, .isa = ""}).error().code,
            ErrorCode::kConfigInvalid);
  EXPECT_EQ(make_cpu_backend({.threads_count = 1, .memory_budget_bytes = 1, .isa = "neon"}).error().code,
            ErrorCode::kConfigInvalid);
}

TEST(CpuBackend, MemoryIsZeroAlignedAndCountedToTheByte) {
  const auto device = backend();
  std::byte* a = device->allocate(1000, MemoryPurpose::kState).value();
  std::byte* b = device->allocate(1, MemoryPurpose::kWorkspace).value();
  EXPECT_EQ(device->memory_used_bytes(), 1001u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(a[i], std::byte{0});
  device->release(a);
  EXPECT_EQ(device->memory_used_bytes(), 1u);
  device->release(b);
  device->release(nullptr);
  EXPECT_EQ(device->memory_used_bytes(), 0u);
}

TEST(CpuBackend, MemoryIsThereFromTheStart) {
  const auto device = backend(1u << 24);
  const std::size_t page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), pages = 300;
  std::byte* memory = device->allocate(pages * page_bytes, MemoryPurpose::kState).value();
  std::vector<unsigned char> resident(pages);
  ASSERT_EQ(::mincore(memory, pages * page_bytes, resident.data()), 0);
  for (std::size_t i = 0; i < pages; ++i) ASSERT_EQ(resident[i] & 1, 1) << "page " << i;
  device->release(memory);
}

TEST(CpuBackend, TheBudgetIsALimitThatExplainsItself) {
  const auto device = backend();
  std::byte* held = device->allocate(kBudget - 100, MemoryPurpose::kWeights).value();
  const auto refused = device->allocate(101, MemoryPurpose::kState);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(detail(refused.error(), "required_bytes"), 101);
  EXPECT_EQ(detail(refused.error(), "free_bytes"), 100);
  EXPECT_EQ(detail(refused.error(), "budget_bytes"), static_cast<std::int64_t>(kBudget));
  EXPECT_NE(refused.error().message.find("weights 1048476"), std::string::npos) << refused.error().message;
  std::byte* rest = device->allocate(100, MemoryPurpose::kState).value();  // to the last byte
  EXPECT_FALSE(device->allocate(~std::uint64_t{0}, MemoryPurpose::kState));
  device->release(held);
  device->release(rest);
}

TEST(CpuBackend, AWeightCostsWhatWasPredictedAndGivesItBack) {
  testing::Random random(30);
  const auto device = backend();
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    const auto stored = testing::random_matrix(random, {.dtype = dtype, .rows = 37, .cols = 96});
    const auto t = tensor(dtype, {37, 96}, stored, WeightUse::kMatrix);
    void* weight = device->upload_weight(t).value();
    EXPECT_EQ(device->memory_used_bytes(), device->packed_weight_bytes(t));
    device->release_weight(weight);
    EXPECT_EQ(device->memory_used_bytes(), 0u);
  }
  device->release_weight(nullptr);
}

// What aligns weights that are uploaded together counts for nothing: a budget of what was predicted is enough.
TEST(CpuBackend, WeightsTogetherCostTheirSum) {
  const std::vector<std::byte> bytes(4096);
  const auto of = [&](std::initializer_list<std::uint32_t> shape, std::size_t count, WeightUse use) {
    return tensor(DType::kF32, shape, std::span(bytes).first(count * sizeof(float)), use);
  };
  const StoredTensor tensors[] = {of({3}, 3, WeightUse::kVector), of({16, 32}, 512, WeightUse::kMatrix),
                                  of({5}, 5, WeightUse::kVector)};
  const std::uint64_t sum = (3 + 512 + 5) * sizeof(float);
  const auto device = backend(sum);
  void* weights[3];
  ASSERT_TRUE(device->upload_weights(tensors, weights, {}));
  EXPECT_EQ(device->memory_used_bytes(), sum);
  for (void* weight : weights) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device->packed_bytes(weight).data()) % 64, 0u);
    EXPECT_EQ(device->memory_used_bytes(), sum) << "all of it goes with the last one";
    device->release_weight(weight);
  }
  EXPECT_EQ(device->memory_used_bytes(), 0u);
}

// Packed bytes that a device has made, given back a piece at a time; one piece may fail.
class GivenBack final : public plan::PackedSource {
 public:
  explicit GivenBack(const plan::Backend& device, std::span<void* const> weights) {
    for (const void* weight : weights) {
      const auto bytes = device.packed_bytes(weight);
      packed.emplace_back(bytes.begin(), bytes.end());
    }
  }
  base::Result<> read(std::size_t t, std::size_t piece, std::span<std::byte> out) const override {
    if (t == bad_tensor && piece == bad_piece) return base::fail(ErrorCode::kCorruptFile, "bad piece");
    std::memcpy(out.data(), packed.at(t).data() + piece * kPieceBytes, out.size());
    return {};
  }
  std::vector<std::vector<std::byte>> packed;
  std::size_t bad_tensor = SIZE_MAX, bad_piece = 0;
};

// Several huge pages, and pieces that reach from one into the next.
TEST(CpuBackend, PackedWeightsComeBackByteForByte) {
  testing::Random random(32);
  SCOPED_TRACE(random.note());
  const auto large = testing::random_matrix(random, {.dtype = DType::kF32, .rows = 1024, .cols = 1504});
  const auto small = testing::random_matrix(random, {.dtype = DType::kQ8_0, .rows = 37, .cols = 96});
  const StoredTensor tensors[] = {tensor(DType::kF32, {3}, std::span(large).first(12), WeightUse::kVector),
                                  tensor(DType::kF32, {1024, 1504}, large, WeightUse::kMatrix),
                                  tensor(DType::kQ8_0, {37, 96}, small, WeightUse::kMatrix),
                                  tensor(DType::kF32, {1024, 1504}, large, WeightUse::kMatrix)};
  const auto device = backend(1u << 24);
  std::array<void*, 4> weights{};
  ASSERT_TRUE(device->upload_weights(tensors, weights, {}));
  GivenBack source(*device, weights);
  const std::uint64_t bytes = device->memory_used_bytes();
  for (void* weight : weights) device->release_weight(weight);

  std::vector<std::pair<std::uint64_t, std::uint64_t>> said;
  ASSERT_TRUE(device->upload_packed(tensors, source, weights,
                                    [&](std::uint64_t done, std::uint64_t all) { said.emplace_back(done, all); }));
  EXPECT_EQ(device->memory_used_bytes(), bytes);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto now = device->packed_bytes(weights[i]);
    EXPECT_TRUE(std::ranges::equal(now, source.packed[i])) << i;
    // Where the system cannot be asked for pages they are touched, whatever they hold by then.
    touch_pages(const_cast<std::byte*>(now.data()), now.size());
    EXPECT_TRUE(std::ranges::equal(now, source.packed[i])) << i;
  }
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(std::ranges::is_sorted(said));
  EXPECT_EQ(said.back().first, said.back().second);
  EXPECT_EQ(said.back().second, 12 + 2 * large.size() + small.size());
  for (void* weight : weights) device->release_weight(weight);

  source.bad_tensor = 3, source.bad_piece = 7;
  const auto failed = device->upload_packed(tensors, source, weights, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCorruptFile);
  EXPECT_EQ(device->memory_used_bytes(), 0u);
  EXPECT_TRUE(std::ranges::all_of(weights, [](const void* weight) { return weight == nullptr; }));
}

TEST(CpuBackend, AStackIsItsMatricesOneAfterTheOther) {
  testing::Random random(31);
  SCOPED_TRACE(random.note());
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    const MatrixShape shape{.dtype = dtype, .rows = 37, .cols = 64};
    const auto stored = testing::random_matrix(random, {.dtype = dtype, .rows = 5 * 37, .cols = 64});
    const auto t = tensor(dtype, {5, 37, 64}, stored, WeightUse::kMatrix);
    const auto device = backend();
    auto* weight = static_cast<CpuWeight*>(device->upload_weight(t).value());
    EXPECT_EQ(device->memory_used_bytes(), device->packed_weight_bytes(t));
    ASSERT_EQ(weight->stack_count, 5u);
    const std::size_t each = stored.size() / 5;
    for (std::size_t i = 0; i < 5; ++i) {
      const testing::Packed expected(shape, std::span(stored).subspan(i * each, each));
      const PackedMatrix view = weight->matrix_at(i);
      EXPECT_EQ(view.rows, 37u);
      EXPECT_EQ(view.cols, 64u);
      EXPECT_EQ(std::memcmp(view.data, expected.view().data, packed_bytes(shape)), 0) << i;
    }
    device->release_weight(weight);
  }
}

TEST(CpuBackend, VectorsAreWidenedFromAnyAlignment) {
  const auto device = backend();
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF};
  std::vector<std::byte> bytes(1 + sizeof halves);
  std::memcpy(bytes.data() + 1, halves, sizeof halves);
  void* weight =
      device->upload_weight(tensor(DType::kF16, {4}, std::span(bytes).subspan(1), WeightUse::kVector)).value();
  const float expected[] = {1.0f, -2.0f, 0x1p-24f, 65504.0f};
  EXPECT_TRUE(testing::same_bits({static_cast<CpuWeight*>(weight)->vector, 4}, expected));
  EXPECT_EQ(device->memory_used_bytes(), 16u);
  device->release_weight(weight);
}

// A file's vector may be as large as any matrix: beside it a load has a piece of it in memory and no more.
TEST(CpuBackend, VectorsAreReadInPieces) {
  constexpr std::uint64_t kReadBytes = 512u << 10;
  class Counting final : public plan::TensorSource {
   public:
    base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const override {
      most = std::max<std::uint64_t>(most, out.size());
      for (std::size_t i = 0; i < out.size(); i += 2) {
        const auto half = static_cast<std::uint16_t>((begin + i) / 2 % 0x7C00);
        std::memcpy(&out[i], &half, sizeof half);
      }
      return {};
    }
    mutable std::uint64_t most = 0;
  };
  const Counting source;
  const std::uint32_t count = 2 * kReadBytes + 5;  // of two bytes
  StoredTensor vector = tensor(DType::kF16, {count}, {}, WeightUse::kVector);
  vector.source = &source;
  const auto device = backend(std::uint64_t{1} << 24);
  void* weight = device->upload_weight(vector).value();
  EXPECT_LE(source.most, kReadBytes);
  std::vector<float> expected(count);
  for (std::uint32_t i = 0; i < count; ++i) expected[i] = half_to_float(static_cast<std::uint16_t>(i % 0x7C00));
  EXPECT_TRUE(testing::same_bits({static_cast<CpuWeight*>(weight)->vector, count}, expected));
  device->release_weight(weight);
}

TEST(CpuBackend, WeightsItCannotTakeAreRefused) {
  const auto device = backend();
  const std::vector<std::byte> bytes(4096);
  const auto code = [&](const StoredTensor& t) { return device->upload_weight(t).error().code; };
  EXPECT_EQ(code(tensor(DType::kI32, {4, 4}, std::span(bytes).first(64), WeightUse::kMatrix)),
            ErrorCode::kWeightDTypeUnsupported);
  EXPECT_EQ(code(tensor(DType::kQ8_0, {32}, std::span(bytes).first(34), WeightUse::kVector)),
            ErrorCode::kWeightDTypeUnsupported);
  EXPECT_EQ(code(tensor(DType::kF32, {2, 2, 2}, std::span(bytes).first(32), WeightUse::kRows)),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code(tensor(DType::kF32, {2, 2, 2, 2}, std::span(bytes).first(64), WeightUse::kMatrix)),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code(tensor(DType::kF32, {4}, std::span(bytes).first(16), WeightUse::kMatrix)),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code(tensor(DType::kQ4_0, {2, 48}, std::span(bytes).first(54), WeightUse::kMatrix)),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code(tensor(DType::kF32, {2, 2}, std::span(bytes).first(15), WeightUse::kMatrix)),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(device->memory_used_bytes(), 0u);
  const auto small = backend(100);
  EXPECT_EQ(
      small->upload_weight(tensor(DType::kF32, {4, 4}, std::span(bytes).first(64), WeightUse::kMatrix)).error().code,
      ErrorCode::kOutOfDeviceMemory);
}

TEST(CpuBackend, CopiesGoBothWays) {
  const auto device = backend();
  std::byte* memory = device->allocate(16, MemoryPurpose::kTables).value();
  std::vector<std::byte> out(16, std::byte{1}), in(16, std::byte{7});
  device->copy_to_device(memory, in);
  device->copy_to_host(out, memory);
  EXPECT_EQ(out, in);
  device->zero(memory, 16);
  EXPECT_TRUE(device->synchronize());
  device->copy_to_host(out, memory);
  EXPECT_EQ(out, std::vector<std::byte>(16));
  device->release(memory);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu
