#include "engine/models/plan_compiler/dump.h"

#include <fmt/format.h>

#include "base/join.h"
#include "base/sha256.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using namespace plan;

std::string text(const EmbeddingParams& p) { return fmt::format("V={} D={} scale={}", p.rows, p.width, p.scale); }
std::string text(const RmsNormParams& p) {
  return fmt::format("{} D={} eps={} offset={}", p.kind == NormKind::kRms ? "rms" : "layernorm", p.width, p.eps,
                     p.weight_offset);
}
constexpr std::string_view kRope[] = {"none", "half", "interleaved", "vision2d"};
constexpr std::string_view kActivations[] = {"silu",  "gelu_tanh", "gelu_erf",    "swiglu_oai",
                                             "relu2", "xielu",     "silu_clamped"};

std::string text(const AttentionParams& p) {
  std::string out = fmt::format(
      "H={} K={} d_qk={} d_v={} R={} rope={}/{} scale={} softcap={} window={} kv={}@{} {}", p.heads, p.kv_heads, p.d_qk,
      p.d_v, p.rotary_dims, kRope[static_cast<int>(p.rope_layout)], static_cast<std::int32_t>(p.rope_table_id), p.scale,
      p.logit_softcap, p.window, p.kv_ordinal, p.kv_page_offset_bytes, dtype_info(static_cast<DType>(p.kv_dtype)).name);
  if (p.rope_table_long_id != kNoRopeTable) out += fmt::format(" long_rope={}", p.rope_table_long_id);
  if (p.mrope != MropeKind::kNone) {
    out += fmt::format(" mrope={} sections={}", p.mrope == MropeKind::kChunked ? "chunked" : "interleaved",
                       base::join(p.sections, "/"));
  }
  static constexpr std::string_view kNorms[] = {"", "", " per row", " rotated", " rotated, no weight", " centered"};
  if (p.qk_norm != QkNorm::kNone) {
    out += fmt::format(" qk_norm={}+{}{}", p.qk_norm_eps, p.qk_norm_offset, kNorms[static_cast<int>(p.qk_norm)]);
  }
  if (p.gate != AttentionGate::kNone) out += p.gate == AttentionGate::kPerHead ? " gate/head" : " gate/element";
  if (p.value_scale != 0) out += fmt::format(" value_scale={}", p.value_scale);
  if (p.chunked != 0) out += " chunked";
  if (p.temperature_length != 0) {
    out += fmt::format(" temperature={}/{}+{}", p.temperature, p.temperature_length, p.temperature_offset);
  }
  if (p.has_sinks != 0) out += " sinks";
  if (p.shares_cache != 0) out += " shares_cache";
  if (p.unit_values != 0) out += " unit_values";
  if (p.causal == 0) out += " not-causal";
  return out;
}
std::string text(const MlaAttentionParams& p) {
  return fmt::format("H={} q_lora={} kv_lora={} nope={} rope={} d_v={} rope={}/{} scale={} eps={} kv={}@{} {}", p.heads,
                     p.q_lora, p.kv_lora, p.d_nope, p.d_rope, p.d_v, kRope[static_cast<int>(p.rope_layout)],
                     static_cast<std::int32_t>(p.rope_table_id), p.scale, p.norm_eps, p.kv_ordinal,
                     p.kv_page_offset_bytes, dtype_info(static_cast<DType>(p.kv_dtype)).name) +
         (p.index_words != 0 ? fmt::format(" index={}", p.index_words) : "");
}
std::string text(const MoeParams& p) {
  static constexpr std::string_view kGates[] = {
      "?", "softmax", "sigmoid", "softmax_after_topk", "sqrt_softplus", "sparse_mixer"};
  std::string out = fmt::format("D={} E={} k={} F={} shared={} {} {} scale={}", p.width, p.experts, p.experts_used,
                                p.ffn_expert, p.ffn_shared, kGates[static_cast<int>(p.gate)],
                                kActivations[static_cast<int>(p.act)], p.weights_scale);
  if (p.gate == MoeGate::kSparseMixer) out += fmt::format(" reach={}", p.reach);
  if (p.norm_topk != 0) out += " norm_topk";
  if (p.ungated != 0) out += " ungated";
  if (p.weighs_inputs != 0) out += " weighs_inputs";
  if (p.has_shared_gate != 0) out += " shared_gate";
  if (p.router_apart != 0) out += " router_apart";
  if (p.has_expert_scale != 0) out += " expert_scale";
  if (p.table_rows != 0) out += fmt::format(" table={}", p.table_rows);
  if (p.latent != 0) out += fmt::format(" latent={}", p.latent);
  if (p.groups != 0) {
    out += fmt::format(" groups={}/{} by {}", p.groups_used, p.groups,
                       p.group_score == GroupScore::kTop2Sum ? "top2sum" : "max");
  }
  if (p.act == Activation::kSwigluOai) out += fmt::format(" alpha={} limit={}", p.alpha, p.limit);
  if (p.act == Activation::kSiluClamped) out += fmt::format(" limit={}", p.limit);
  return out;
}
std::string text(const HyperCollapseParams& p) {
  return fmt::format("D={} N={} rows={} eps={}/{}{}", p.width, p.streams, p.mix_rows, p.norm_eps, p.floor_eps,
                     p.is_spread != 0 ? " spread" : "");
}
std::string text(const HyperAddParams& p) {
  return fmt::format("D={} N={} eps={}/{} iterations={}{}", p.width, p.streams, p.norm_eps, p.floor_eps, p.iterations,
                     p.is_spread != 0 ? " spread" : "");
}
std::string text(const CompressorParams& p) {
  return fmt::format("D={} d={} d_index={} rate={}{} R={} rope={}/{} eps={} state@{}", p.width, p.d_head, p.d_index,
                     p.rate, p.overlaps != 0 ? " overlapping" : "", p.d_rope, kRope[static_cast<int>(p.rope_layout)],
                     p.rope_table_id, p.norm_eps, p.state_offset_bytes);
}
std::string text(const CompressedAttentionParams& p) {
  std::string out =
      fmt::format("H={} d={} q_lora={} groups={}x{} R={} rope={}/{} scale={} eps={} window={} rate={} kv={}@{} {}",
                  p.heads, p.d_head, p.q_lora, p.groups, p.o_rank, p.d_rope, kRope[static_cast<int>(p.rope_layout)],
                  p.rope_table_id, p.scale, p.norm_eps, p.window, p.rate, p.kv_ordinal, p.kv_page_offset_bytes,
                  dtype_info(static_cast<DType>(p.kv_dtype)).name);
  if (p.top_k != 0)
    out += fmt::format(" index: H={} d={} top={} scale={}", p.index_heads, p.d_index, p.top_k, p.index_scale);
  return out;
}
std::string text(const MambaMixerParams& p) {
  return fmt::format("D={} inner={} H={} d={} N={} G={} taps={} dt={}..{} eps={} state@{}", p.width, p.d_inner, p.heads,
                     p.d_head, p.d_state, p.groups, p.d_conv, p.dt_min, p.dt_max, p.norm_eps, p.state_offset_bytes);
}
std::string text(const GatedDeltaParams& p) {
  return fmt::format("D={} K={} V={} d_k={} d_v={} taps={} eps={} state@{}{}", p.width, p.key_heads, p.value_heads,
                     p.d_k, p.d_v, p.d_conv, p.norm_eps, p.state_offset_bytes, p.keys_take_turns != 0 ? " turns" : "") +
         (p.channel_decay != 0 ? " decay/channel" : "") + (p.sigmoid_gate != 0 ? " gate=sigmoid" : "") +
         (p.rank != 0 ? fmt::format(" rank={}", p.rank) : "");
}
std::string text(const LightningIndexParams& p) {
  return fmt::format("D={} q_lora={} H={} d={} rope={}/{}x{} top_k={} words={} scale={} eps={}/{} kv={}@{} {}", p.width,
                     p.q_lora, p.heads, p.d_index, kRope[static_cast<int>(p.rope_layout)],
                     static_cast<std::int32_t>(p.rope_table_id), p.d_rope, p.top_k, p.words, p.scale, p.q_norm_eps,
                     p.k_norm_eps, p.kv_ordinal, p.kv_page_offset_bytes,
                     dtype_info(static_cast<DType>(p.kv_dtype)).name);
}
std::string text(const ShortconvParams& p) {
  return fmt::format("D={} taps={} state@{}", p.width, p.l_cache, p.state_offset_bytes);
}
std::string text(const SwigluParams& p) {
  std::string out = fmt::format("D={} F={} {}{}", p.width, p.ffn, kActivations[static_cast<int>(p.act)],
                                p.gated != 0 ? " gated" : "");
  if (p.act == Activation::kXielu)
    out += fmt::format(" alpha={}/{} beta={} eps={}", p.alpha, p.alpha_negative, p.beta, p.eps);
  return out;
}
std::string text(const ResidualAddParams& p) {
  return fmt::format("D={} scale={}", p.width, p.scale) +
         (p.sum_scale != 0 ? fmt::format(" sum_scale={}", p.sum_scale) : "");
}
std::string text(const LayerInputParams& p) {
  return fmt::format("D={} P={} V={} layer={}/{} {} scales={}/{}/{} eps={}", p.width, p.inner, p.rows, p.layer,
                     p.layers, kActivations[static_cast<int>(p.act)], p.table_scale, p.context_scale, p.sum_scale,
                     p.norm_eps);
}
std::string text(const PredictorInputParams& p) {
  return fmt::format("D={} eps={} offset={}", p.width, p.norm_eps, p.weight_offset);
}
std::string text(const PoolParams& p) {
  static constexpr std::string_view kPoolings[] = {"none", "mean", "first", "last"};
  return fmt::format("D={} {}", p.width, kPoolings[static_cast<int>(p.pooling)]);
}
std::string text(const PositionEmbeddingParams& p) {
  return fmt::format("D={} positions={}+{} types={}", p.width, p.positions, p.first, p.types);
}
std::string text(const DenseParams& p) {
  return fmt::format("D={}->{}{}", p.width, p.rows, p.act == DenseActivation::kTanh ? " tanh" : "");
}
std::string text(const LmHeadParams& p) {
  return fmt::format("V={} D={} mul={} softcap={}{}", p.rows, p.width, p.logit_mul, p.softcap,
                     p.tied != 0 ? " tied" : "");
}
std::string text(const VisionPatchEmbedParams& p) {
  return fmt::format("D={} patch={}x{} merge={} grid={}", p.width, p.patch, p.temporal, p.merge, p.grid_side);
}
std::string text(const VisionSpatialMergeParams& p) {
  return fmt::format("D={}->{} merge={} eps={} part=0/{}", p.width_in, p.width_out, p.merge_size, p.norm_eps, p.parts);
}
std::string text(const VisionDeepstackExtractParams& p) {
  return fmt::format("D={}->{} merge={} eps={} part={}/{} layer={}", p.width_in, p.width_out, p.merge_size, p.norm_eps,
                     p.part, p.parts, p.layer);
}
std::string text(const VisionScatterParams& p) {
  return fmt::format("D={} ids={}/{} part={}/{} {}", p.width, p.image_row_ids[0],
                     static_cast<std::int32_t>(p.image_row_ids[1]), p.part, p.parts,
                     p.mode == ScatterMode::kReplace ? "replace" : "add");
}

std::string params_text(const ParamBlock& block) {
  std::string result;
  visit_param_struct(block.opcode, [&]<ParamStruct P>() { result = text(param_as<P>(block)); });
  return result;
}

std::string registers_text(std::span<const RegisterRef> refs) {
  std::string result;
  for (RegisterRef ref : refs) result += fmt::format("{}r{}", result.empty() ? "" : ", ", index(ref));
  return result;
}

std::string kills_text(std::span<const std::uint64_t> bits) {
  std::string result;
  for (std::size_t r = 0; r < bits.size() * 64; ++r) {
    if ((bits[r / 64] >> (r % 64) & 1) != 0) result += fmt::format(" r{}", r);
  }
  return result;
}

}  // namespace

std::string dump(const CompiledPlan& plan, std::span<const std::string> tensor_names) {
  std::string out = fmt::format("plan {} registers={} peak={} instructions={}\n", base::to_hex(plan.plan_hash),
                                plan.plan.register_count, plan.peak_registers, plan.plan.instructions.size());
  for (const StateDescriptor& desc : plan.plan.state_descs) {
    out += fmt::format("state {} kind={} lifecycle={} align={} bytes_per_token={} bytes={}", desc.id,
                       static_cast<int>(desc.kind), static_cast<int>(desc.lifecycle), desc.align_bytes,
                       desc.bytes_per_token, desc.size_bytes);
    if (desc.window_tokens != 0) out += fmt::format(" window={}", desc.window_tokens);
    out += '\n';
  }
  for (const PlanDiagnostic& diagnostic : plan.diagnostics) out += fmt::format("note {}\n", diagnostic.message);
  for (std::size_t i = 0; i < plan.plan.instructions.size(); ++i) {
    const Instruction& insn = plan.plan.instructions[i];
    out += fmt::format("{:4} {} = {}({}) [{}]", i, registers_text(insn.outputs), opcode_name(insn.opcode),
                       registers_text(insn.inputs), params_text(plan.param_blocks[insn.param_block_id]));
    const std::span<const SlotSpec> slots = *weight_slots(insn.opcode);
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (!insn.weights[s].present()) continue;
      const std::uint32_t tensor = plan.weight_bindings[insn.weights[s].index].tensor;
      out += fmt::format(" {}={}", slots[s].name,
                         tensor < tensor_names.size() ? tensor_names[tensor] : fmt::to_string(tensor));
    }
    if (insn.partial_sum) out += " partial_sum";
    if (insn.state_block_id != kNoStateBlock) out += fmt::format(" state={}", insn.state_block_id);
    const std::string kills = kills_text(plan.liveness.kill_after_instruction[i]);
    out += fmt::format("{}{}\n", kills.empty() ? "" : " kills", kills);
  }
  return out;
}

std::string dump(const PhysicalMapping& mapping) {
  std::string out = fmt::format("buffers={}", mapping.physical_count);
  for (const PhysicalSpec& spec : mapping.physical_specs) {
    out += fmt::format(" {}:{}", spec.rows == RowDomain::kBatchRows ? "batch" : "output", spec.size_bytes);
  }
  out += "\nregisters";
  for (std::uint16_t buffer : mapping.register_to_physical) out += fmt::format(" {}", buffer);
  return out + "\n";
}

}  // namespace llorch::engine::models
