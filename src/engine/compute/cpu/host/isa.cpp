#include "engine/compute/cpu/host/isa.h"

#include <cpuid.h>
#include <fmt/core.h>

#include <string>

namespace llorch::engine::compute::cpu::host {

using base::ErrorCode;
using base::fail;

namespace {

// clang 14 has no name for it in __builtin_cpu_supports. That the system saves the registers it uses follows from AVX2.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) { return isa == Isa::kAvx512 ? "avx512" : "avx2"; }

CpuFeatures detect_cpu_features() {
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .f16c = has_f16c(),
          .avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni")};
}

base::Result<Isa> select_isa(const CpuFeatures& features, std::string_view override_name) {
  std::string missing;
  if (!features.avx2) missing += " AVX2";
  if (!features.fma) missing += " FMA";
  if (!features.f16c) missing += " F16C";
  if (!missing.empty())
    return fail(ErrorCode::kGpuUnavailable,
                fmt::format("the CPU reference device needs AVX2, FMA and F16C; this processor lacks{}. Use a machine "
                            "with an x86-64-v3 processor.",
                            missing));
  if (override_name.empty()) return features.avx512 ? Isa::kAvx512 : Isa::kAvx2;
  if (override_name == "avx2") return Isa::kAvx2;
  if (override_name != "avx512")
    return fail(ErrorCode::kConfigInvalid, fmt::format("LLORCH_ISA is \"{}\"; it takes avx2 or avx512", override_name));
  if (!features.avx512)
    return fail(ErrorCode::kGpuUnavailable,
                "LLORCH_ISA=avx512, but this processor lacks AVX-512 F, BW, DQ, VL or VNNI. Unset it or use avx2; the "
                "results are the same.");
  return Isa::kAvx512;
}

}  // namespace llorch::engine::compute::cpu::host
