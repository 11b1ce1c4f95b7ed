#include "engine/compute/cpu/simd/simd_avxvnni.h"

#define LLORCH_ISA kAvxVnni
#include "engine/compute/cpu/simd/kernel_table.h"
