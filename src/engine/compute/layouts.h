#pragma once
// How the rows between the kernels of one instruction are laid out: a function of its parameters alone, the same on every
// device. Counts of elements.
#include <cstdint>

#include "engine/plan/params.h"
#include "engine/plan/state.h"

namespace llorch::engine::compute {

// Heads whose keys and values the instruction makes itself.
inline std::uint32_t own_kv_heads(const plan::AttentionParams& p) { return p.shares_cache != 0 ? 0 : p.kv_heads; }

// Column ranges of the projected rows [T, q | k | v].
struct AttentionColumns {
  explicit AttentionColumns(const plan::AttentionParams& p)
      : k(std::uint64_t{p.heads} * p.d_qk),
        v(k + std::uint64_t{own_kv_heads(p)} * p.d_qk),
        count(v + std::uint64_t{own_kv_heads(p)} * p.d_v) {}
  std::uint64_t k, v, count;
};

// Columns of the projected gate of a row.
inline std::uint64_t gate_columns(const plan::AttentionParams& p) {
  switch (p.gate) {
    case plan::AttentionGate::kPerHead: return p.heads;
    case plan::AttentionGate::kPerElement: return std::uint64_t{p.heads} * p.d_v;
    default: return 0;
  }
}

// Widths of the rows of absorbed multi-head latent attention.
struct MlaWidths {
  explicit MlaWidths(const plan::MlaAttentionParams& p)
      : head(p.d_nope + p.d_rope),
        q(p.heads * head),
        first(p.q_lora != 0 ? p.q_lora : q),
        key(std::uint64_t{p.kv_lora} + p.d_rope),
        projected(first + key),
        latent_q(p.heads * key),
        latent(std::uint64_t{p.heads} * p.kv_lora),
        attended(std::uint64_t{p.heads} * p.d_v) {}
  std::uint64_t head, q;
  std::uint64_t first, key, projected;  // a projected row is [q or q_a | c | k_pe]
  std::uint64_t latent_q, latent, attended;
};

// Column ranges of the projected rows [T, q | k | weights] of a lightning index.
struct IndexColumns {
  explicit IndexColumns(const plan::LightningIndexParams& p)
      : k(std::uint64_t{p.heads} * p.d_index), weights(k + p.d_index), count(weights + p.heads) {}
  std::uint64_t k, weights, count;
};

// Column ranges of the projected rows [T, kv | gate | index kv | index gate] of a compressor.
struct CompressorColumns {
  explicit CompressorColumns(const plan::CompressorParams& p)
      : gate(std::uint64_t{p.overlaps != 0 ? 2U : 1U} * p.d_head),
        index_kv(2 * gate),
        index_gate(index_kv + std::uint64_t{p.overlaps != 0 ? 2U : 1U} * p.d_index),
        count(2 * index_gate - index_kv) {}
  std::uint64_t gate, index_kv, index_gate, count;
};
inline plan::CompressorStateLayout compressor_state_layout(const plan::CompressorParams& p) {
  return {.d_head = p.d_head, .d_index = p.d_index, .overlaps = p.overlaps != 0};
}

// Column ranges of the projected rows [T, q_a | kv | index weights] of compressed attention, and what its cache is.
struct CompressedColumns {
  explicit CompressedColumns(const plan::CompressedAttentionParams& p)
      : kv(p.q_lora), weights(kv + p.d_head), count(weights + p.index_heads) {}
  std::uint64_t kv, weights, count;
};
inline plan::CompressedKvLayout compressed_kv_layout(const plan::CompressedAttentionParams& p) {
  return {.dtype = static_cast<plan::DType>(p.kv_dtype), .d_head = p.d_head, .d_index = p.d_index, .rate = p.rate};
}
// Entries that a row at the end of `context` positions sees, and rows and entries it attends to at most.
inline std::uint64_t entries_seen(const plan::CompressedAttentionParams& p, std::uint64_t context) {
  return p.rate != 0 ? context / p.rate : 0;
}
inline std::uint64_t keys_attended(const plan::CompressedAttentionParams& p, std::uint64_t context) {
  const std::uint64_t entries = entries_seen(p, context), rows = p.window < context ? p.window : context;
  return rows + (p.top_k != 0 && p.top_k < entries ? p.top_k : entries);
}

// Column ranges of the projected rows [T, z | x | b | c | dt].
struct MambaColumns {
  explicit MambaColumns(const plan::MambaMixerParams& p)
      : x(p.d_inner),
        b(x + p.d_inner),
        c(b + std::uint64_t{p.groups} * p.d_state),
        dt(c + std::uint64_t{p.groups} * p.d_state),
        count(dt + p.heads) {}
  std::uint64_t x, b, c, dt, count;
};

// Column ranges of the projected rows [T, q | k | v | z | beta | decay | z_a | decay_a], the last two where there is a rank; q, k and
// v go through the convolution together.
struct DeltaColumns {
  explicit DeltaColumns(const plan::GatedDeltaParams& p)
      : k(std::uint64_t{p.key_heads} * p.d_k),
        v(2 * k),
        z(v + std::uint64_t{p.value_heads} * p.d_v),
        beta(z + std::uint64_t{p.value_heads} * p.d_v),
        decay(beta + p.value_heads),
        decays(p.channel_decay != 0 ? std::uint64_t{p.value_heads} * p.d_k : p.value_heads),
        z_a(decay + decays),
        decay_a(z_a + p.rank),
        count(decay_a + p.rank) {}
  std::uint64_t k, v, z, beta, decay;
  std::uint64_t decays;  // of a row
  std::uint64_t z_a, decay_a, count;
};

inline plan::GatedDeltaStateLayout delta_state_layout(const plan::GatedDeltaParams& p) {
  return {.conv_rows = 2 * p.key_heads * p.d_k + p.value_heads * p.d_v,
          .d_conv = p.d_conv,
          .value_heads = p.value_heads,
          .d_k = p.d_k,
          .d_v = p.d_v};
}

inline plan::MambaStateLayout mamba_state_layout(const plan::MambaMixerParams& p) {
  return {.conv_rows = p.d_inner + 2 * p.groups * p.d_state,
          .d_conv = p.d_conv,
          .heads = p.heads,
          .d_head = p.d_head,
          .d_state = p.d_state};
}

// What the two opcodes that merge patches differ in.
struct Merger {
  explicit Merger(const plan::VisionSpatialMergeParams& p)
      : width_in(p.width_in),
        width_out(p.width_out),
        block(std::uint64_t{p.merge_size} * p.merge_size),
        eps(p.norm_eps),
        parts(p.parts),
        part(0),
        norm_width(p.width_in) {}
  explicit Merger(const plan::VisionDeepstackExtractParams& p)
      : width_in(p.width_in),
        width_out(p.width_out),
        block(std::uint64_t{p.merge_size} * p.merge_size),
        eps(p.norm_eps),
        parts(p.parts),
        part(p.part),
        norm_width(block * width_in) {}

  std::uint64_t width_joined() const { return block * width_in; }

  std::uint64_t width_in, width_out;
  std::uint64_t block;  // patches per merged row
  float eps;
  std::uint32_t parts, part;
  std::uint64_t norm_width;  // of a patch, or of the joined ones
};

}  // namespace llorch::engine::compute
