#include "engine/compute/cpu/choose_isa.h"

#include <cstring>
#include <memory>
#include <vector>

#include "base/log.h"
#include "engine/compute/cpu/pack.h"

namespace llorch::engine::compute::cpu {

using base::ErrorCode;
using base::fail;
using host::Isa;

namespace {

// Numbers without a pattern that a product could share; the same in every process.
class Numbers {
 public:
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_ = 1;
};

std::vector<float> products(const Kernels& kernels, const MatmulArgs& of) {
  std::vector<float> y(of.rows * of.w.rows);
  MatmulArgs args = of;
  args.y = y.data();
  kernels.matmul(args, {0, of.w.groups()});
  return y;
}

bool same_products(const Kernels& a, const Kernels& b, plan::DType dtype) {
  constexpr std::size_t kRows = 159;  // a panel of whole tiles, then tiles of 15 and 16
  const MatrixShape shape{.dtype = dtype, .rows = 50, .cols = 1280};
  const plan::DTypeInfo info = plan::dtype_info(dtype);
  Numbers numbers;
  std::vector<std::byte> stored(std::size_t{shape.rows} * shape.cols / info.block_elements * info.block_bytes);
  for (std::byte& byte : stored) byte = static_cast<std::byte>(numbers.next() & 0x3f);  // as a binary16: finite
  constexpr std::size_t kLine = 64;
  std::vector<std::byte> room(packed_bytes(shape) + kLine);
  void* packed = room.data();
  std::size_t left = room.size();
  packed = std::align(kLine, packed_bytes(shape), packed, left);
  const PackedMatrix matrix = packed_view(shape, static_cast<const std::byte*>(packed));
  pack_groups(shape, stored.data(), static_cast<std::byte*>(packed), 0, matrix.groups());

  std::vector<float> x(kRows * shape.cols);
  for (float& value : x) value = static_cast<float>(numbers.next() % 2001) * 0.001f - 1.0f;
  std::vector<QuantizedBlock> blocks(x.size() / 32);
  const QuantizedRows rows{.blocks = blocks.data(), .width = shape.cols};
  b.quantize({.x = x.data(), .x_stride = shape.cols, .out = rows}, {0, kRows});
  const MatmulArgs args{
      .w = matrix, .x = x.data(), .x_stride = shape.cols, .xq = rows, .y_stride = shape.rows, .rows = kRows};
  const std::vector<float> of_a = products(a, args), of_b = products(b, args);
  return std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) == 0;
}

}  // namespace

bool same_products(const Kernels& a, const Kernels& b) {
  return same_products(a, b, plan::DType::kQ4_K) && same_products(a, b, plan::DType::kQ6_K);
}

base::Result<Isa> choose_isa(const host::CpuFeatures& features, std::string_view override_name) {
  return choose_isa(features, override_name, kernels(Isa::kAmx), kernels(Isa::kAvx512));
}

base::Result<Isa> choose_isa(const host::CpuFeatures& features, std::string_view override_name, const Kernels& amx,
                             const Kernels& avx512) {
  const Isa isa = TRY(host::select_isa(features, override_name));
  if (isa != Isa::kAmx || same_products(amx, avx512)) return isa;
  if (!override_name.empty())
    return fail(
        ErrorCode::kGpuUnavailable,
        "LLORCH_ISA=amx, but AMX gives other products than AVX-512 on this processor. Unset it, and report this.");
  base::log_event(base::LogLevel::kError, "engine.amx_differs", {},
                  "AMX gives other products than AVX-512 on this processor; AVX-512 is used.", {});
  return Isa::kAvx512;
}

}  // namespace llorch::engine::compute::cpu
