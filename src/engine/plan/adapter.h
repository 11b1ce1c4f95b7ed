#pragma once
// What a backend offers per opcode, and what each adapter promises.
//
// An adapter runs one instruction over the whole ragged batch: no loop over slots outside the kernel, no allocation, no
// synchronisation, no look-ups by name. It returns a code instead of throwing.
//
// Operands, per opcode. All activations are f32, contiguous, [T, width] with T = ctx.total_rows unless said otherwise;
// y is output(0), x input(0). Weights are in slot order (slots.h); outputs never alias inputs unless
// AdapterCapability::may_alias_output is set, in which case output(0) may equal input(0).
//
//  embedding            ()     -> y [T, D]   w: rows [V, D]. y[r] = scale * w[ctx.row_ids[r]]
//  rmsnorm              (x)    -> y [T, D]   w: [D]. rms: x * rsqrt(mean(x^2) + eps) * (w + weight_offset);
//                                            layernorm: (x - mean) * rsqrt(variance + eps) * w + b
//  multihead_attention  (x)    -> y [T, D]   q k v o (+ biases): projections of x, biases added, rotation of q and k by
//                                            ctx.rope_tables[rope_table_id] at ctx.positions, k and v written to the page of
//                                            (ctx.slot_of_row, ctx.positions), then each row attends to positions 0..own of
//                                            its slot, then o. State: KV (KvLayout, pages). Not causal: no cache,
//                                            each row attends to its span of ctx.row_offsets, with a window
//                                            to the rows less than that far from it on either side.
//  mla_attention        (x)    -> y [T, D]   absorbed form: q~ = k_b[h] q_nope; score = scale (q~ . c + q_pe . k_pe);
//                                            head output = v_b[h] (sum p c). Cache rows are [c | k_pe] only. With a second
//                                            input [T, index_words] only positions whose bit is set are attended to.
//  lightning_index      (x)    -> y [T, words] u32: bits of the positions to attend to (params.h). State: KV (KvLayout, pages).
//  hyper_collapse       (s)    -> y [T, D]   s is [T, N D] streams, or [T, D]: what a branch reads of them (params.h)
//  hyper_add         (s, b)    -> y [T, N D] b is [T, D]: the streams once a branch gave b
//  compressor           (x)    -> y [T, d_head + d_index]  rows that end a window: its entry. State: CompressorStateLayout.
//  compressed_attention (x)    -> y [T, D]   with a second input, a compressor's: stores rows and entries, attends to the last
//                                            rows and to entries (params.h). State: CompressedKvLayout, pages.
//  swiglu               (x)    -> y [T, D]   gate up down (+ biases). y = down(act(gate(x)) * up(x)), or down(act(up(x)))
//  moe                  (x)    -> y [T, D]   with a second input, the router's. The k chosen experts in ascending order of the expert's number, then the
//                                            shared expert. Ties in the choice go to the lower number.
//  mamba_mixer          (x)    -> y [T, D]   Mamba-2; rows of a slot one after the other. State: MambaStateLayout.
//  shortconv            (x)    -> y [T, D]   [b|c|x] = in_proj; out_proj(c * conv(b * x)). State: shortconv_state_bytes.
//  position_embedding   (x)    -> y [T, D]   y = x + types[ctx.row_types[r]] + positions[first + ctx.positions[r]], added in
//                                            that order, each where there is such a table; y may be x
//  residual_add         (a, b) -> y [T, D]   y = a + scale * b, times sum_scale; y may be a
//  layer_input       (x, e)    -> y [T, D]   e is what embedding gave. y = proj(act(gate(x)) * input), the input that
//                                            params.h says, from columns layer * P.. of row ctx.row_ids[r] of the table
//  predictor_input      (e)    -> y [T, D]   e is what embedding gave: y = w [norm(e) | norm(ctx.hidden_rows)] (params.h)
//  lm_head              (x)    -> y [O, V]   w: [V, D]. x is [T, D]; y[i] = head of x[ctx.output_rows[i]], O = output_rows
//                                            size, then times logit_mul, then soft cap
//  pool                 (x)    -> y [O, D]   x is [T, D]; y[i] = row ctx.output_rows[i] (last), the first row of its span of
//                                            ctx.row_offsets, or the mean of the span's rows up to it: added in order in
//                                            f32, then divided by their number
//  dense                (x)    -> y [O, rows] x is [O, D]; y = w x + b, then tanh where params say so
//  vision_patch_embed   ()     -> y [T, Dv]  y = w ctx.patch_rows + b + bilinear interpolation of `positions` at the patch's
//                                            place in its frame (ctx.grids)
//  vision_spatial_merge (x)    -> ()         x [T, Dv]. LayerNorm of each patch, merge^2 consecutive rows joined, fc2(gelu_erf(
//                                            fc1())), to part 0 of rows ctx.image_rows of the vision state
//  vision_deepstack_extract (x) -> ()        the same to part `part`, with the LayerNorm after the rows are joined
//  vision_scatter       (x)    -> y [T, D]   the k-th row of a span with an image row id takes (replace) or adds the part of
//                                            state row ctx.image_rows[span].begin + k, while that is below its end; all other
//                                            rows pass through. y may be x.
//
// Row r of y is a function of row r of the inputs, the weights, the params and (attention) the pages of r's own slot; its
// bits depend on nothing else: not on T, the other rows, the threads or the instruction set (docs/internals/numerics.md).
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/assert.h"
#include "base/result.h"
#include "engine/plan/context.h"
#include "engine/plan/plan.h"
#include "engine/plan/slots.h"

namespace llorch::engine::plan {

// What an adapter returns: 0, or the number of a base::ErrorCode.
struct [[nodiscard]] Status {
  std::uint16_t code = 0;
  static constexpr Status ok() { return {}; }
  static constexpr Status failed(base::ErrorCode error) { return {static_cast<std::uint16_t>(error)}; }
  constexpr bool is_ok() const { return code == 0; }
  constexpr base::ErrorCode error() const { return static_cast<base::ErrorCode>(code); }
};

struct PreparedInsn;
using KernelAdapterFn = Status (*)(ExecutionContext&, const PreparedInsn&) noexcept;

// One instruction with everything looked up: built once at load, never changed by a step.
// `regs` is inputs, then outputs, then one entry per weight slot; `views` is parallel to it.
struct PreparedInsn {
  KernelAdapterFn fn = nullptr;
  const Instruction* insn = nullptr;
  std::span<const TensorHandle> regs;
  std::span<const TensorViewDesc> views;
  std::span<const StateBlockHandle> states;  // one, or none
  const ParamBlock* params = nullptr;

  template <class T = float>
  const T* input(std::size_t i) const {
    return static_cast<const T*>(regs[i].ptr);
  }
  template <class T = float>
  T* output(std::size_t i) const {
    return static_cast<T*>(regs[insn->inputs.size() + i].ptr);
  }
  // The backend's own weight object of a slot; null when the slot is absent.
  template <class Slot>
  const void* weight(Slot slot) const {
    return regs[insn->inputs.size() + insn->outputs.size() + static_cast<std::size_t>(slot)].ptr;
  }
  template <class P>
  const P& param() const {
    return param_as<P>(*params);
  }
};

// The most a step may hold; fixed when a model is loaded.
struct StepLimits {
  std::uint32_t rows_max = 0;         // T
  std::uint32_t output_rows_max = 0;  // O
  std::uint32_t slots_max = 0;        // B
  std::uint32_t context_tokens_max = 0;
};

class Backend;

struct PrepareArgs {
  Backend& backend;
  const Instruction& insn;
  const ParamBlock& params;
  std::span<const TensorHandle> weights;  // [slots of the opcode]
  std::span<const TensorViewDesc> views;  // parallel; dtype and shape of the stored tensor
  StepLimits limits;
};

// Checks weight types and shapes.
// Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, BATCH_UNSUPPORTED.
using AdapterPrepareFn = base::Result<> (*)(const PrepareArgs&);

// Scratch an instruction with these params may need under these limits, whatever its weights' types.
using AdapterWorkspaceFn = std::uint64_t (*)(const ParamBlock&, const StepLimits&, const Backend&) noexcept;

struct AdapterCapability {
  bool supports_batch = false;
  bool may_alias_output = false;
  std::uint64_t dtype_mask_weights = 0;  // bit 1 << DType of every matrix type the kernels take
};

constexpr std::uint64_t dtype_bit(DType dtype) { return std::uint64_t{1} << static_cast<unsigned>(dtype); }

using AdapterTable = std::array<KernelAdapterFn, kOpcodeTableSize>;
using AdapterPrepareTable = std::array<AdapterPrepareFn, kOpcodeTableSize>;
using AdapterWorkspaceTable = std::array<AdapterWorkspaceFn, kOpcodeTableSize>;
using AdapterCapabilities = std::array<AdapterCapability, kOpcodeTableSize>;

// Null entries are opcodes the backend does not have: a plan with one is refused at load with UNSUPPORTED_OPCODE.
struct AdapterTables {
  AdapterTable run{};
  AdapterPrepareTable prepare{};
  AdapterWorkspaceTable workspace_bytes{};
  AdapterCapabilities capabilities{};
};

// True iff exactly the opcodes in `claimed` are there, each with run, prepare and workspace functions, batch support and,
// when it takes weights, at least one type. Use: static_assert(assert_coverage(kCpuTables, kCpuOpcodes)).
template <std::size_t N>
consteval bool assert_coverage(const AdapterTables& tables, const std::array<Opcode, N>& claimed) {
  for (std::size_t i = 0; i < kOpcodeTableSize; ++i) {
    bool wanted = false;
    for (Opcode opcode : claimed) wanted = wanted || static_cast<std::size_t>(opcode) == i;
    const bool complete =
        tables.run[i] != nullptr && tables.prepare[i] != nullptr && tables.workspace_bytes[i] != nullptr;
    const bool empty = tables.run[i] == nullptr && tables.prepare[i] == nullptr && tables.workspace_bytes[i] == nullptr;
    if (wanted ? !complete : !empty) return false;
    if (!wanted) continue;
    const auto slots = weight_slots(static_cast<Opcode>(i));
    if (!slots || !tables.capabilities[i].supports_batch) return false;
    if (!slots->empty() && tables.capabilities[i].dtype_mask_weights == 0) return false;
  }
  return true;
}

}  // namespace llorch::engine::plan
