#include "engine/compute/cpu/kernels.h"

#include "base/assert.h"

namespace llorch::engine::compute::cpu {

namespace simd::avx2 {
extern const Kernels kKernels;
}
namespace simd::avxvnni {
extern const Kernels kKernels;
}
namespace simd::avx512 {
extern const Kernels kKernels;
}
namespace simd::amx {
using Matmul = void (*)(const MatmulArgs&, Range);
extern const Matmul kMatmul;
extern const std::size_t kPanelRows;
}  // namespace simd::amx

namespace {

// Tiles multiply; the rest is AVX-512's.
Kernels amx_kernels() {
  Kernels table = simd::avx512::kKernels;
  table.isa = host::Isa::kAmx;
  table.matmul = simd::amx::kMatmul;
  table.quant_panel_rows = simd::amx::kPanelRows;
  return table;
}

}  // namespace

const Kernels& kernels(host::Isa isa) {
  switch (isa) {
    case host::Isa::kAvx2: return simd::avx2::kKernels;
    case host::Isa::kAvxVnni: return simd::avxvnni::kKernels;
    case host::Isa::kAvx512: return simd::avx512::kKernels;
    case host::Isa::kAmx: {
      static const Kernels table = amx_kernels();
      return table;
    }
  }
  ASSERT(false, "instruction set {}", static_cast<int>(isa));
}

}  // namespace llorch::engine::compute::cpu
