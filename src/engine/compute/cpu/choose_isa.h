#pragma once
// Which kernels a backend runs on.
#include <string_view>

#include "base/result.h"
#include "engine/compute/cpu/host/isa.h"
#include "engine/compute/cpu/kernels.h"

namespace llorch::engine::compute::cpu {

// Whether both multiply quantized rows to the same bits: two types, whose blocks have one scale and two, of more rows than a panel.
// REQUIRES: the processor has the instruction sets of both, and both quantize to the same blocks.
bool same_products(const Kernels& a, const Kernels& b);

// As host::select_isa(). AMX, which has not been run by those who wrote its kernels, must give the bits of AVX-512 on this processor
// first: where it does not, AVX-512 is chosen and the log says so, or GPU_UNAVAILABLE if AMX was asked for by name. It is not
// tried where another set is asked for.
base::Result<host::Isa> choose_isa(const host::CpuFeatures& features, std::string_view override_name);
// The same with the kernels of both.
base::Result<host::Isa> choose_isa(const host::CpuFeatures& features, std::string_view override_name,
                                   const Kernels& amx, const Kernels& avx512);

}  // namespace llorch::engine::compute::cpu
