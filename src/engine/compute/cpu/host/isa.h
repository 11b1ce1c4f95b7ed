#pragma once
// The instruction set the kernels run on: found once, inspectable, overridable. It changes speed, never a result.
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace llorch::engine::compute::cpu::host {

// kAvx2 needs AVX2, FMA and F16C; kAvxVnni adds AVX-VNNI, kAvx512 adds AVX-512 F, BW, DQ, VL and VNNI to the first, kAmx adds
// AMX-TILE and AMX-INT8 to that. The better is the later.
enum class Isa : std::uint8_t { kAvx2 = 0, kAvxVnni = 1, kAvx512 = 2, kAmx = 3 };
inline constexpr Isa kIsas[] = {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAmx};

std::string_view isa_name(Isa isa);  // "avx2", "avxvnni", "avx512", "amx"

struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false;
  bool avx_vnni = false;
  bool avx512 = false;  // all five parts above
  bool amx = false;     // those and both parts of AMX, and the kernel lets this process use tiles
};
// Of the processor and operating system we run on. Asks the kernel to let this process use tiles, where there are any: threads take
// eight kilobytes more when they do.
CpuFeatures detect_cpu_features();

// Whether there is all that a set needs.
bool has(const CpuFeatures& features, Isa isa);

// The best set of `features`, or the one that `override_name` ("" = none) asks for.
// Errors: GPU_UNAVAILABLE when the processor lacks AVX2, FMA or F16C, or the set asked for; CONFIG_INVALID for another
// name.
base::Result<Isa> select_isa(const CpuFeatures& features, std::string_view override_name);

}  // namespace llorch::engine::compute::cpu::host
