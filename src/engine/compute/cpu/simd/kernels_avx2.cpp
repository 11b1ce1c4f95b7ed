#include "engine/compute/cpu/simd/simd_avx2.h"

#define LLORCH_ISA kAvx2
#include "engine/compute/cpu/simd/kernel_table.h"
