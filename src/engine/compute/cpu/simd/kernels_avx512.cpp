#include "engine/compute/cpu/simd/simd_avx512.h"

#define LLORCH_ISA kAvx512
#include "engine/compute/cpu/simd/kernel_table.h"
