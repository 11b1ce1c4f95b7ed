#include "engine/compute/cpu/kernels.h"

namespace llorch::engine::compute::cpu {

namespace simd::avx2 {
extern const Kernels kKernels;
}
namespace simd::avx512 {
extern const Kernels kKernels;
}

const Kernels& kernels(host::Isa isa) {
  return isa == host::Isa::kAvx512 ? simd::avx512::kKernels : simd::avx2::kKernels;
}

}  // namespace llorch::engine::compute::cpu
