// The products of the AVX-VNNI tier in the encoding of AVX-512 VL: the same instructions for machines that have only that. For
// tests alone.
#define LLORCH_EVEX_VNNI
#include "engine/compute/cpu/kernels.h"
#include "engine/compute/cpu/simd/simd_avxvnni.h"

namespace llorch::engine::compute::cpu::simd::avxvnni_evex {
namespace {

#include "engine/compute/cpu/simd/quant_matmul_impl.h"

#include "engine/compute/cpu/simd/matmul_impl.h"

}  // namespace

using Quantize = void (*)(const QuantizeArgs&, Range);
using Matmul = void (*)(const MatmulArgs&, Range);
extern const Quantize kQuantize;
constexpr Quantize kQuantize = quantize;
extern const Matmul kMatmul;
constexpr Matmul kMatmul = matmul;

}  // namespace llorch::engine::compute::cpu::simd::avxvnni_evex
