#include "engine/compute/cpu/kernels.h"

namespace llorch::engine::compute::cpu {

namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

const Kernels& kernels(Isa isa) { return isa == Isa::kAvx512 ? avx512::kKernels : avx2::kKernels; }

}  // namespace llorch::engine::compute::cpu
