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

// So many rows are AVX-512's: half a tile of rows costs what a whole one does. So are float weights, which are no bytes.
constexpr std::size_t kFewRows = 8;
void matmul(const MatmulArgs& args, Range groups) {
  if (groups.begin == groups.end) return;
  const auto multiply = [&](auto weights) {
    slab_matmul<decltype(weights), MatrixTiles<decltype(weights)>>(args, groups);
  };
  if (args.rows <= kFewRows || !with_quant_weights(args.w.dtype, multiply)) avx512::kKernels.matmul(args, groups);
}

}  // namespace

using Matmul = void (*)(const MatmulArgs&, Range);
extern const Matmul kMatmul;
constexpr Matmul kMatmul = matmul;
extern const std::size_t kPanelRows;
constexpr std::size_t kPanelRows = kQuantRowPanel;

}  // namespace LLORCH_ISA_NAMESPACE
}  // namespace llorch::engine::compute::cpu::simd
