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

const Kernels& kernels(host::Isa isa) {
  switch (isa) {
    case host::Isa::kAvx2: return simd::avx2::kKernels;
    case host::Isa::kAvxVnni: return simd::avxvnni::kKernels;
    case host::Isa::kAvx512: return simd::avx512::kKernels;
  }
  ASSERT(false, "instruction set {}", static_cast<int>(isa));
}

}  // namespace llorch::engine::compute::cpu
