#pragma once
// The kernels of the instruction set LLORCH_ISA_NAMESPACE as a table, whose `isa` is LLORCH_ISA. Included by one translation unit
// of each, behind its lanes and built with its flags (CMakeLists.txt). No standard algorithms in here: an inline function of theirs
// could be linked into code that runs on lesser processors.
#include "engine/compute/cpu/kernels.h"
#include "engine/plan/draw_math.h"

namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE {
namespace {

#include "engine/compute/cpu/simd/math_impl.h"

#include "engine/compute/cpu/simd/elementwise_impl.h"

#include "engine/compute/cpu/simd/attention_impl.h"

#include "engine/compute/cpu/simd/latent_impl.h"

#include "engine/compute/cpu/simd/index_impl.h"

#include "engine/compute/cpu/simd/ssm_impl.h"

#include "engine/compute/cpu/simd/hyper_impl.h"

#include "engine/compute/cpu/simd/compressed_impl.h"

#include "engine/compute/cpu/simd/quant_matmul_impl.h"

#include "engine/compute/cpu/simd/matmul_impl.h"

#include "engine/compute/cpu/simd/draw_impl.h"

}  // namespace

extern const Kernels kKernels;
constexpr Kernels kKernels = {
    .isa = host::Isa::LLORCH_ISA,
    .quant_panel_rows = kQuantRowPanel,
    .float_panel_rows = kRowPanel,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .quantize = quantize,
    .matmul = matmul,
    .gather = gather,
    .rope_table = rope_table,
    .rope = rope,
    .kv_append = kv_append,
    .attention = attention,
    .latent_attention = latent_attention,
    .index_scores = index_scores,
    .hyper_collapse = hyper_collapse,
    .hyper_add = hyper_add,
    .compress_scan = compress_scan,
    .compressed_append = compressed_append,
    .compressed_scores = compressed_scores,
    .compressed_attention = compressed_attention,
    .causal_conv = causal_conv,
    .ssm_step = ssm_step,
    .ssm_scan = ssm_scan,
    .delta_scan = delta_scan,
    .swiglu = swiglu,
    .probabilities = probabilities,
    .residual_add = residual_add,
    .add_bias = add_bias,
    .add_interpolated = add_interpolated,
    .scale_softcap = scale_softcap,
    .scan_row = scan_row,
    .collect_candidates = collect_candidates,
    .candidate_weights = candidate_weights,
    .softplus_array = softplus_array,
    .exp_array = exp_array,
    .tanh_array = tanh_array,
    .erf_array = erf_array,
    .sincos_array = sincos_array,
};

}  // namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE
