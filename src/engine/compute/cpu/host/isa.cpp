#include "engine/compute/cpu/host/isa.h"

#include <cpuid.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// Linux saves tiles only for a process that has asked for it; on one that cannot save them this fails.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx() {
  constexpr unsigned kTileBit = 1u << 24, kInt8Bit = 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kTileBit) != 0 && (edx & kInt8Bit) != 0 &&
         may_use_tiles();
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

struct Named {
  std::string_view name, needs;
};
constexpr std::array kNames{Named{"avx2", "AVX2"}, Named{"avxvnni", "AVX-VNNI"},
                            Named{"avx512", "AVX-512 F, BW, DQ, VL or VNNI"}, Named{"amx", "AMX-INT8 or AVX-512"}};

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<std::size_t>(isa)].name; }

bool has(const CpuFeatures& features, Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return features.avx2 && features.fma && features.f16c;
    case Isa::kAvxVnni: return features.avx_vnni;
    case Isa::kAvx512: return features.avx512;
    case Isa::kAmx: return features.amx;
  }
  return false;
}

CpuFeatures detect_cpu_features() {
  return {.avx2 = __builtin_cpu_supports("avx2") != 0,
          .fma = __builtin_cpu_supports("fma") != 0,
          .f16c = has_f16c(),
          .avx_vnni = __builtin_cpu_supports("avx2") && has_avx_vnni(),
          .avx512 = has_avx512(),
          .amx = has_avx512() && has_amx()};
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
    for (const Isa isa : {Isa::kAmx, Isa::kAvx512, Isa::kAvxVnni})
      if (has(features, isa)) return isa;
    return Isa::kAvx2;
  }
  const auto* name = std::ranges::find(kNames, override_name, &Named::name);
  if (name == kNames.end())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("LLORCH_ISA is \"{}\"; it takes avx2, avxvnni, avx512 or amx", override_name));
  const auto isa = static_cast<Isa>(name - kNames.begin());
  if (has(features, isa)) return isa;
  return fail(ErrorCode::kGpuUnavailable, fmt::format("LLORCH_ISA={}, but this processor lacks {}, or the kernel keeps "
                                                      "it back. Unset it or use avx2; the results are the same.",
                                                      name->name, name->needs));
}

}  // namespace llorch::engine::compute::cpu::host
