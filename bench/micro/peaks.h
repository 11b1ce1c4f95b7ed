#pragma once
// What one thread of this processor multiplies from registers: the limits that micro benches hold kernels against.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "engine/compute/cpu/kernels.h"

namespace llorch::bench {

namespace host = engine::compute::cpu::host;

inline double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best of several: other programs only ever take away.
inline double best_rate(double amount, const auto& work) {
  double seconds = seconds_of(work);
  for (int i = 0; i < 8; ++i) seconds = std::min(seconds, seconds_of(work));
  return amount / seconds;
}

inline constexpr std::size_t kPeakSteps = 1u << 19, kChains = 12;

// Bodies of `kChains` independent sums per step; the asm keeps the sums apart and alive.
__attribute__((target("avx512f,avx512vnni,avx512vl"))) inline void int8_steps_avx512() {
  __m512i sums[kChains] = {};
  for (std::size_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(3), _mm512_set1_epi8(5));
      asm volatile("" : "+v"(sum));
    }
  }
}
__attribute__((target("avx512f"))) inline void fma_steps_avx512() {
  __m512 sums[kChains] = {};
  for (std::size_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm512_fmadd_ps(sum, _mm512_set1_ps(0.5f), _mm512_set1_ps(1.0f));
      asm volatile("" : "+v"(sum));
    }
  }
}
__attribute__((target("avx2"))) inline void int8_steps_avx2() {
  __m256i sums[kChains] = {};
  for (std::size_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      __m256i codes = _mm256_set1_epi8(3);
      asm volatile("" : "+x"(codes));  // or the product is made once
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, _mm256_set1_epi8(5)));
      asm volatile("" : "+x"(sum));
    }
  }
}
__attribute__((target("avx2,fma"))) inline void fma_steps_avx2() {
  __m256 sums[kChains] = {};
  for (std::size_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (auto& sum : sums) {
      sum = _mm256_fmadd_ps(sum, _mm256_set1_ps(0.5f), _mm256_set1_ps(1.0f));
      asm volatile("" : "+x"(sum));
    }
  }
}

// Multiply-adds per second of one thread. AVX2 has no four-way product: its int8 figure is `vpmaddubsw` and an addition.
inline double peak_rate(host::Isa isa, bool quantized) {
  const bool wide = isa == host::Isa::kAvx512;
  const double per_step = kChains * (quantized ? (wide ? 64 : 32) : (wide ? 16 : 8));
  if (quantized) return best_rate(kPeakSteps * per_step, wide ? int8_steps_avx512 : int8_steps_avx2);
  return best_rate(kPeakSteps * per_step, wide ? fma_steps_avx512 : fma_steps_avx2);
}

}  // namespace llorch::bench
