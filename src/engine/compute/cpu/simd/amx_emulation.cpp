// The products of the AMX tier with plain C++ in place of its instructions, for machines without them. For tests alone.
#define LLORCH_AMX_EMULATION
#include "engine/compute/cpu/simd/kernels_amx.cpp"
