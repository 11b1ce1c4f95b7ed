#include "engine/compute/cpu/host/isa.h"

#include <cpuid.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
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

// g++ 12 and clang 14 have no name for it either. Its registers are those of AVX2.
bool has_avx_vnni() {
  constexpr unsigned kAvxVnniBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnniBit) != 0;
}

constexpr std::array kNames{std::string_view("avx2"), std::string_view("avxvnni"), std::string_view("avx512")};

bool has(const CpuFeatures& features, Isa isa) {
  return isa == Isa::kAvx2 || (isa == Isa::kAvx512 ? features.avx512 : features.avx_vnni);
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<std::size_t>(isa)]; }

CpuFeatures detect_cpu_features() {
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .f16c = has_f16c(),
          .avx_vnni = __builtin_cpu_supports("avx2") && has_avx_vnni(),
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
  if (override_name.empty()) {
    for (const Isa isa : {Isa::kAvx512, Isa::kAvxVnni})
      if (has(features, isa)) return isa;
    return Isa::kAvx2;
  }
  const auto* name = std::ranges::find(kNames, override_name);
  if (name == kNames.end())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("LLORCH_ISA is \"{}\"; it takes avx2, avxvnni or avx512", override_name));
  const auto isa = static_cast<Isa>(name - kNames.begin());
  if (has(features, isa)) return isa;
  return fail(ErrorCode::kGpuUnavailable,
              fmt::format("LLORCH_ISA={}, but this processor lacks {}. Unset it or use avx2; the results are the same.",
                          *name, isa == Isa::kAvxVnni ? "AVX-VNNI" : "AVX-512 F, BW, DQ, VL or VNNI"));
}

}  // namespace llorch::engine::compute::cpu::host
