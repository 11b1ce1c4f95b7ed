// The products that a unit of tiles takes over from AVX-512; kernels.cpp puts them into the other's table.
#include "engine/compute/cpu/kernels.h"
#include "engine/compute/cpu/simd/simd_amx.h"

namespace llorch::engine::compute::cpu::simd {

namespace avx512 {
extern const Kernels kKernels;
}

namespace LLORCH_ISA_NAMESPACE {
namespace {

#include "engine/compute/cpu/simd/quant_matmul_impl.h"

#include "engine/compute/cpu/simd/matrix_tiles_impl.h"

template <plan::DType kType>
void tile_matmul(const MatmulArgs& args, Range groups) {
  if (groups.begin != groups.end) slab_matmul<QuantWeights<kType>, MatrixTiles<QuantWeights<kType>>>(args, groups);
}

// Few rows come straight from packed groups, and float weights are no bytes.
void matmul(const MatmulArgs& args, Range groups) {
  using plan::DType;
  if (args.rows > kPackedRows) {
    switch (args.w.dtype) {
      case DType::kQ8_0: return tile_matmul<DType::kQ8_0>(args, groups);
      case DType::kQ4_0: return tile_matmul<DType::kQ4_0>(args, groups);
      case DType::kQ4_1: return tile_matmul<DType::kQ4_1>(args, groups);
      case DType::kQ5_0: return tile_matmul<DType::kQ5_0>(args, groups);
      case DType::kQ5_1: return tile_matmul<DType::kQ5_1>(args, groups);
      case DType::kQ2_K: return tile_matmul<DType::kQ2_K>(args, groups);
      case DType::kQ3_K: return tile_matmul<DType::kQ3_K>(args, groups);
      case DType::kQ4_K: return tile_matmul<DType::kQ4_K>(args, groups);
      case DType::kQ5_K: return tile_matmul<DType::kQ5_K>(args, groups);
      case DType::kQ6_K: return tile_matmul<DType::kQ6_K>(args, groups);
      case DType::kIQ4_NL: return tile_matmul<DType::kIQ4_NL>(args, groups);
      case DType::kIQ4_XS: return tile_matmul<DType::kIQ4_XS>(args, groups);
      case DType::kMXFP4: return tile_matmul<DType::kMXFP4>(args, groups);
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
      case DType::kF8_E4M3:
      case DType::kI32: break;
    }
  }
  avx512::kKernels.matmul(args, groups);
}

}  // namespace

using Matmul = void (*)(const MatmulArgs&, Range);
extern const Matmul kMatmul;
constexpr Matmul kMatmul = matmul;

}  // namespace LLORCH_ISA_NAMESPACE
}  // namespace llorch::engine::compute::cpu::simd
