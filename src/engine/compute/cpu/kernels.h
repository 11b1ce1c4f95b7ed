#pragma once
// The CPU kernels: raw pointers and sizes in, floats out. One table per instruction set, filled from the same
// templates (AMX: AVX-512's, but for products), so every entry gives the same bits in every table, but for begins of quantized blocks. Each call computes a range of independent units (rows,
// groups, ...); how units are split over threads and calls never changes a result. Steps and reduction orders:
// docs/internals/numerics.md.
//
// Common rules: pointers need only their element's alignment unless stated; `output` may equal an input of the same
// shape where stated ("in place"), other overlap is forbidden; nothing allocates, blocks or fails; float data is
// binary32, strides are in elements; MXCSR is the default (round to nearest even, denormals kept).
#include <cstddef>
#include <cstdint>

#include "engine/compute/cpu/host/isa.h"
#include "engine/compute/cpu/pack.h"
#include "engine/compute/cpu/quantized_rows.h"
#include "engine/compute/cpu/range.h"

namespace llorch::engine::compute::cpu {

// y = (x / sqrt(mean(x^2) + eps)) * (weight + weight_offset), per row. Unit: row. In place allowed.
struct RmsNormArgs {
  const float* x = nullptr;       // [rows, width], row stride x_stride
  const float* weight = nullptr;  // [width]
  float* y = nullptr;             // [rows, width], row stride y_stride
  std::size_t width = 0;
  std::size_t x_stride = 0;
  std::size_t y_stride = 0;
  float eps = 0;
  float weight_offset = 0;
};

// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, per row. Unit: row. In place allowed.
struct LayerNormArgs {
  const float* x = nullptr;       // [rows, width], row stride x_stride
  const float* weight = nullptr;  // [width]
  const float* bias = nullptr;    // [width], or null
  float* y = nullptr;             // [rows, width], row stride y_stride
  std::size_t width = 0;
  std::size_t x_stride = 0;
  std::size_t y_stride = 0;
  float eps = 0;
};

struct QuantizeArgs {
  const float* x = nullptr;  // [rows, cols], row stride x_stride
  std::size_t x_stride = 0;
  QuantizedRows out;     // blocks: where the first row's go
  std::size_t cols = 0;  // a multiple of 32, up to out.width; 0: out.width
};                       // Unit: row.

// y[m, n] = sum_k w[n, k] * x[m, k]. Unit: group of sixteen weight rows.
struct MatmulArgs {
  PackedMatrix w;
  const float* x = nullptr;  // [rows, w.cols] for float weights, row stride x_stride
  std::size_t x_stride = 0;
  QuantizedRows xq;    // for quantized weights, width == w.cols; from `quantize` of the same table
  float* y = nullptr;  // [rows, w.rows], row stride y_stride
  std::size_t y_stride = 0;
  std::size_t rows = 0;
};

// y = scale * columns [first_col, first_col + cols) of row rows[i] of w, dequantized exactly. Unit: i.
struct GatherArgs {
  PackedMatrix w;
  const std::uint32_t* row_ids = nullptr;  // each < w.rows
  float* y = nullptr;                      // [units, cols], contiguous
  float scale = 1;
  std::size_t first_col = 0;  // of quantized matrices a multiple of 32, as cols
  std::size_t cols = 0;       // 0: w.cols
};

// Positions are below this: range reduction of the rotation angles is exact enough up to here.
inline constexpr std::uint32_t kPositionsMax = 1u << 20;

// Rotation coefficients of one row of positions. `half` pairs (i, i + R/2), `interleaved` pairs (2i, 2i + 1).
enum class RopeLayout : std::uint8_t { kHalf, kInterleaved };
struct RopeTableArgs {
  const std::uint32_t* positions = nullptr;  // [rows], each < kPositionsMax
  // Several axes: pair i turns by positions[axis_of_pair[i] * axis_stride + row]. Null: one axis.
  const std::uint8_t* axis_of_pair = nullptr;  // [rotary_dims / 2]
  std::size_t axis_stride = 0;
  const float* inv_freq = nullptr;  // [rotary_dims / 2], each in [0, 1]
  float* cosines = nullptr;         // [rows, rotary_dims]: c of the element's pair
  float* sines = nullptr;           // [rows, rotary_dims]: -s for the first of a pair, s for the second
  std::size_t rotary_dims = 0;      // even
  float attn_factor = 1;
  RopeLayout layout = RopeLayout::kHalf;
};  // Unit: row.
// x_i' = x_i * cosines_i + x_partner(i) * sines_i for i < rotary_dims, in every head. Unit: row. In place.
struct RopeArgs {
  float* x = nullptr;  // [rows, heads * head_dim], row stride x_stride
  std::size_t x_stride = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  const float* cosines = nullptr;
  const float* sines = nullptr;
  std::size_t rotary_dims = 0;  // <= head_dim
  RopeLayout layout = RopeLayout::kHalf;
};

// Keys and values lie in pages of 64 positions, absolute-position aligned: position p is entry p % 64 of the page that
// its sequence's table names at p / 64. Inside a page: keys [kv_heads][key_dim][64], so that a SIMD lane is a position,
// then values [kv_heads][64][value_dim].
inline constexpr std::size_t kPagePositions = 64;
enum class KvType : std::uint8_t { kF32, kF16 };
struct KvLayout {
  KvType type = KvType::kF16;
  std::size_t kv_heads = 0;
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;

  std::size_t element_bytes() const { return type == KvType::kF32 ? 4 : 2; }
  std::size_t key_offset(std::size_t head) const { return head * key_dim * kPagePositions * element_bytes(); }
  std::size_t value_offset(std::size_t head) const {
    return (kv_heads * key_dim + head * value_dim) * kPagePositions * element_bytes();
  }
};
struct KvPages {
  std::byte* const* pages = nullptr;  // page i of sequence s: pages[s * pages_stride + i]
  std::size_t pages_stride = 0;
  std::size_t offset_bytes = 0;                    // where this cache begins inside every page
  const std::uint32_t* sequence_of_row = nullptr;  // [rows]
  const std::uint32_t* positions = nullptr;        // [rows]
};

// Stores one key and one value row per row; f16 rounds to nearest even. Unit: row.
struct KvAppendArgs {
  KvLayout layout;
  KvPages pages;
  const float* keys = nullptr;    // [rows, kv_heads * key_dim], row stride key_stride
  const float* values = nullptr;  // [rows, kv_heads * value_dim], row stride value_stride
  std::size_t key_stride = 0;
  std::size_t value_stride = 0;
};

// Rows x heads that are computed together, at most; a tile of more is cut again.
inline constexpr std::size_t kTileQueries = 32;
constexpr std::size_t tile_heads(std::size_t group) { return group < kTileQueries ? group : kTileQueries; }

// softmax(scale * q.k) v over positions (p - window, p] of the row's sequence; window 0 = all; chunked: those from the last
// multiple of the window on. With spans: over positions [span_begin, span_end) of the row, with a
// window those less than that far from it on either side. Unit: tile * kv_heads + kv head, a
// tile being row_tile rows of [0, rows).
struct AttentionArgs {
  KvLayout layout;
  KvPages pages;
  const float* q = nullptr;  // [rows, heads * key_dim], row stride q_stride
  std::size_t q_stride = 0;
  float* out = nullptr;  // [rows, heads * value_dim], row stride out_stride
  std::size_t out_stride = 0;
  std::size_t heads = 0;  // a multiple of layout.kv_heads
  float scale = 1;
  float softcap = 0;  // 0 = off: s = softcap * tanh(s / softcap)
  std::uint32_t window = 0;
  bool chunked = false;
  const float* sinks = nullptr;               // [heads] or null: a logit that joins maximum and sum, with no value
  const std::uint32_t* span_begin = nullptr;  // [rows] or null
  const std::uint32_t* span_end = nullptr;    // [rows], > span_begin
  std::size_t rows = 0;
  std::size_t row_tile = 1;       // >= 1; changes speed, never bits
  float* scores = nullptr;        // this thread's: min(kTileQueries, row_tile * heads / kv_heads) rows of scores_stride
  std::size_t scores_stride = 0;  // >= the visible positions rounded out to whole pages, and 16
  // This thread's: kPagePositions * max(key_dim, value_dim); null: F16 is widened as often as it is met.
  float* widened = nullptr;
};

// y = act(gate) * up, or act(gate) without up. Unit: row. In place allowed.
// silu(x) = x / (1 + e^-x); gelu = x / 2 (1 + erf(x / sqrt 2)), or x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715
// x^3), which is x / 2 (1 + tanh u). swiglu_oai, always with up: with g = min(gate, limit) and u = clamp(up, -limit,
// limit), y = (u + 1) g / (1 + e^(-alpha g)).
// relu2(x) = max(x, 0)^2; sigmoid(x) = 1 / (1 + e^-x). xielu (arXiv 2411.13010) = alpha x^2 + beta x above 0, else
// alpha_negative (e^min(x, eps) - 1 - x) + beta x.
// silu_clamped, always with up: y = silu(min(gate, limit)) clamp(up, -limit, limit).
enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGeluErf, kSwigluOai, kRelu2, kSigmoid, kXielu, kSiluClamped };
struct SwigluArgs {
  const float* gate = nullptr;  // [rows, width], row stride x_stride
  const float* up = nullptr;    // [rows, width], row stride x_stride, or null
  std::size_t x_stride = 0;
  float* y = nullptr;  // [rows, width], row stride y_stride
  std::size_t y_stride = 0;
  std::size_t width = 0;
  Activation act = Activation::kSilu;
  float alpha = 0;
  float limit = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
};
// Per row e^x / sum of e^x, or of every element 1 / (1 + e^-x) or sqrt(ln(1 + e^x)). Unit: row. In place.
enum class Probabilities : std::uint8_t { kSoftmax, kSigmoid, kSqrtSoftplus };
struct ProbabilitiesArgs {
  float* x = nullptr;  // [rows, width], contiguous
  std::size_t width = 0;
  Probabilities kind = Probabilities::kSoftmax;
};
// y = a + scale * b. Unit: element. In place allowed.
struct ResidualAddArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* y = nullptr;
  float scale = 1;
};
// x = x + bias per row. Unit: row.
struct AddBiasArgs {
  float* x = nullptr;  // [rows, width], row stride x_stride
  std::size_t x_stride = 0;
  std::size_t width = 0;
  const float* bias = nullptr;  // [width]
};
// x = x + sum over k of weights[k] * table[taps[k]], per row. Unit: row.
struct AddInterpolatedArgs {
  float* x = nullptr;  // [rows, width], row stride x_stride
  std::size_t x_stride = 0;
  std::size_t width = 0;
  const float* table = nullptr;         // [entries, width]
  const std::uint32_t* taps = nullptr;  // [rows, 4], entries of the table
  const float* weights = nullptr;       // [rows, 4]
};
// y = softcap * tanh((scale * y) / softcap), or scale * y without softcap. Unit: element. In place.
struct ScaleSoftcapArgs {
  float* y = nullptr;
  float scale = 1;
  float softcap = 0;
};

// Attention of many heads over one cache row per position, [latent | rest]: scores from the whole row, values are its
// latent part. softmax(scale * q.row) latent over positions [0, p] of the row's sequence. Pages as KvLayout{type, 1,
// key_dim, 0} has them. Unit: row * ceil(heads / unit_heads) + which of its groups of unit_heads heads.
inline constexpr std::size_t kLatentHeads = 8;  // of a unit, at most
struct LatentAttentionArgs {
  KvType type = KvType::kF16;
  KvPages pages;
  const float* q = nullptr;  // [rows, heads * key_dim], row stride q_stride
  std::size_t q_stride = 0;
  float* out = nullptr;  // [rows, heads * latent_dim], row stride out_stride
  std::size_t out_stride = 0;
  std::size_t heads = 0;
  std::size_t unit_heads = kLatentHeads;  // 1 .. kLatentHeads; changes speed, never bits
  std::size_t latent_dim = 0;
  std::size_t key_dim = 0;  // >= latent_dim
  float scale = 1;
  float* scores = nullptr;        // this thread's: unit_heads rows of scores_stride
  std::size_t scores_stride = 0;  // >= the visible positions rounded out to whole pages
  // [rows, chosen_words] or null: only positions p with bit p % 32 of word p / 32 count. REQUIRES: one of those a row sees does.
  const std::uint32_t* chosen = nullptr;
  std::size_t chosen_words = 0;
};

// scores[p] = scale * sum over heads of w_h relu(q_h . k_p) over positions [0, p] of the row's sequence, rounded out to whole pages,
// where scores mean nothing. Pages as KvLayout{type, 1, key_dim, 0} has them. Unit: row; several leave the last one's scores.
struct IndexScoresArgs {
  KvType type = KvType::kF16;
  KvPages pages;
  const float* q = nullptr;        // [rows, heads * key_dim], row stride q_stride
  const float* weights = nullptr;  // [rows, heads], row stride q_stride
  std::size_t q_stride = 0;
  std::size_t heads = 0;
  std::size_t key_dim = 0;
  float scale = 1;
  float* head_scores = nullptr;  // [heads, kPagePositions], scratch
  float* scores = nullptr;
};

// Rows of several sequences, one after the other: span s is rows [row_offsets[s], row_offsets[s + 1]) of sequence
// sequences[s], in order. A sequence has one span at most.
struct SequenceSpans {
  const std::uint32_t* row_offsets = nullptr;  // [count + 1]
  const std::uint32_t* sequences = nullptr;    // [count]
  std::size_t count = 0;
};
// What a sequence keeps between calls: sequence s at data + s * stride_bytes. Read and written.
struct SequenceState {
  std::byte* data = nullptr;
  std::size_t stride_bytes = 0;
};

// Causal depthwise convolution along a sequence. v = x, or gate_in * x; w = bias + sum_k weight[c][k] * v[k - taps + 1
// rows away]; y = w, silu(w), or gate_out * w. State: the last taps - 1 rows of v, oldest first, f32 [taps - 1][channels].
// Unit: sixteen channels. y may be x.
inline constexpr std::size_t kConvTapsMax = 8;
struct CausalConvArgs {
  SequenceSpans spans;
  SequenceState state;
  const float* x = nullptr;  // [rows, channels], row stride x_stride, as are the gates
  const float* gate_in = nullptr;
  const float* gate_out = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;  // [rows, channels], row stride y_stride
  std::size_t y_stride = 0;
  std::size_t channels = 0;
  std::size_t taps = 0;           // 1 .. kConvTapsMax
  const float* weight = nullptr;  // [channels, taps], the last tap meets the row itself
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
};

// delta = clamp(softplus(dt + bias), dt_min, dt_max), decay = e^(delta * a). Unit: row.
struct SsmStepArgs {
  const float* dt = nullptr;  // [rows, heads], row stride dt_stride
  std::size_t dt_stride = 0;
  const float* bias = nullptr;  // [heads]
  const float* a = nullptr;     // [heads]
  float dt_min = 0;
  float dt_max = 0;
  float* delta = nullptr;  // [rows, heads]
  float* decay = nullptr;  // [rows, heads]
  std::size_t heads = 0;
};
// Selective state space, one row of a sequence after the other: S = decay * S + (delta * x) b^T; y = S c + skip * x.
// State: S, f32 [heads][head_dim][state_dim]. Unit: span * heads + head. y may be x.
struct SsmScanArgs {
  SequenceSpans spans;
  SequenceState state;
  const float* x = nullptr;  // [rows, heads * head_dim], row stride x_stride
  const float* b = nullptr;  // [rows, groups * state_dim], row stride x_stride; head h reads group h / (heads / groups)
  const float* c = nullptr;  // as b
  const float* delta = nullptr;  // [rows, heads]
  const float* decay = nullptr;  // [rows, heads]
  const float* skip = nullptr;   // [heads]
  std::size_t x_stride = 0;
  float* y = nullptr;  // [rows, heads * head_dim], row stride y_stride
  std::size_t y_stride = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  std::size_t state_dim = 0;
  std::size_t groups = 0;
};

// The gated delta rule, one row of a sequence after the other: S = decay * S; r = beta * (v - S k); S = S + r k^T; y = S q.
// State: S, f32 [heads][value_dim][key_dim]. Unit: span * heads + head. y may be v.
struct DeltaScanArgs {
  SequenceSpans spans;
  SequenceState state;
  const float* q = nullptr;  // [rows, key_heads * key_dim], row stride `stride`; of head h: key_of(h)
  const float* k = nullptr;  // as q
  const float* v = nullptr;  // [rows, heads * value_dim], row stride `stride`
  float* y = nullptr;        // as v
  std::size_t stride = 0;
  const float* beta = nullptr;   // [rows, heads]
  const float* decay = nullptr;  // [rows, heads], or [rows, heads * key_dim] with one for each column of S
  std::size_t heads = 0;
  std::size_t key_heads = 0;
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  bool keys_take_turns = false;
  bool channel_decay = false;

  std::size_t key_of(std::size_t head) const { return keys_take_turns ? head % key_heads : head / (heads / key_heads); }
};

// Hyper-connections of `streams` residual streams; the weights of a row are made of its mixes (plan/params.h). collapse: y = sum over i,
// increasing, of pre_i s_i. add: y_k = post_k b, then + mix_jk s_j, j increasing. Unit: row.
inline constexpr std::size_t kStreamsMax = 16;
struct HyperArgs {
  const float* mixes = nullptr;  // [rows, mix_rows], what fn gave
  std::size_t mix_rows = 0;
  const float* base = nullptr;   // [mix_rows]
  const float* scale = nullptr;  // [3], or [1]
  std::size_t streams = 0;       // at most kStreamsMax
  std::size_t iterations = 0;
  float floor_eps = 0;
  const float* x = nullptr;  // stream i of row r at x + r * x_stride + i * stream_stride
  std::size_t x_stride = 0;
  std::size_t stream_stride = 0;
  const float* branch = nullptr;  // [rows, width]
  float* y = nullptr;             // [rows, width], or [rows, streams * width]
  std::size_t width = 0;
};

// The mean of rows of a window weighed by e^(gate + bias), channel by channel: m' = max(m, g), s = s e^(m - m') + e^(g - m'),
// a = a e^(m - m') + e^(g - m') kv, rows of a sequence one after the other. The last row of a window leaves a / s, others 0.
// State: [window at hand, next one][m, s, a][dim], the next one where windows overlap (plan/state.h). Unit: sixteen channels.
struct CompressScanArgs {
  SequenceSpans spans;
  SequenceState state;
  const std::uint32_t* positions = nullptr;  // [rows]
  const float* kv = nullptr;    // [rows, dim], or [rows, next | own] where windows overlap, row stride `stride`
  const float* gate = nullptr;  // as kv
  std::size_t stride = 0;
  const float* bias = nullptr;  // [rate], rows as of kv
  std::size_t dim = 0;
  std::size_t rate = 0;
  bool overlaps = false;
  float* y = nullptr;  // [rows, dim], row stride y_stride
  std::size_t y_stride = 0;
};

// Rows and entries of compressed attention in pages (plan/state.h, CompressedKvLayout).
struct CompressedCache {
  KvType type = KvType::kF16;
  KvPages pages;
  std::size_t head_dim = 0;
  std::size_t index_dim = 0;
  std::size_t rate = 0;          // 0 = no entries
  std::size_t entry_offset = 0;  // of elements, from offset_bytes
  std::size_t index_offset = 0;
};
// Stores a row for each position and an entry for each that ends a window. Unit: row.
struct CompressedAppendArgs {
  CompressedCache cache;
  const float* kv = nullptr;  // [rows, head_dim]
  std::size_t kv_stride = 0;
  const float* entries = nullptr;  // [rows, head_dim | index_dim]
};
// scores[e] = scale * sum over heads of w_h relu(q_h . k_e) over the entries a row sees; a product is sixteen sums, lane i mod 16, i
// increasing, then the tree. Unit: row; several leave the last one's scores.
struct CompressedScoresArgs {
  CompressedCache cache;
  const float* q = nullptr;  // [rows, heads * index_dim]
  std::size_t q_stride = 0;
  const float* weights = nullptr;  // [rows, heads]
  std::size_t weights_stride = 0;
  std::size_t heads = 0;
  float scale = 1;
  float* scores = nullptr;
};
// softmax(scale * q . k) k over the last `window` rows, in order, and then the entries a row sees, of which those with bit e % 32 of word
// e / 32 count. Unit: row * ceil(heads / kCompressedHeads) + which of its groups of kCompressedHeads heads.
inline constexpr int kCompressedHeads = 4;
struct CompressedAttentionArgs {
  CompressedCache cache;
  const float* q = nullptr;  // [rows, heads * head_dim]
  float* out = nullptr;      // as q
  std::size_t heads = 0;
  std::size_t window = 0;
  float scale = 1;
  const float* sinks = nullptr;           // [heads]
  const std::uint32_t* chosen = nullptr;  // [rows, chosen_words], or null: all
  std::size_t chosen_words = 0;
  const void** keys = nullptr;    // this thread's: scores_stride pointers
  float* scores = nullptr;        // this thread's: kCompressedHeads rows of scores_stride
  std::size_t scores_stride = 0;  // >= rows and entries that are attended to, rounded up to 16
};

// A row of numbers that something is drawn from (plan/draw.h, plan/draw_math.h).
struct RowScan {
  float largest = 0;  // -inf of none; any number when not finite
  bool finite = true;
};
struct CandidateArgs {
  const float* row = nullptr;  // [width]; finite or -inf
  std::size_t width = 0;
  float largest = 0;  // of the row, finite
  float divisor = 1;
  float x_min = 0;                // at most 0
  std::uint64_t* keys = nullptr;  // [width]
};

struct Kernels {
  host::Isa isa;
  // Rows of activations that `matmul` takes at once, of quantized weights and of others. It goes through the weights once for as many,
  // and meanwhile keeps the activations in the second-level cache, or a chunk of their depth.
  std::size_t quant_panel_rows, float_panel_rows;
  std::size_t panel_rows(bool quantized) const { return quantized ? quant_panel_rows : float_panel_rows; }
  void (*rms_norm)(const RmsNormArgs&, Range);
  void (*layer_norm)(const LayerNormArgs&, Range);
  void (*quantize)(const QuantizeArgs&, Range);
  void (*matmul)(const MatmulArgs&, Range);
  void (*gather)(const GatherArgs&, Range);
  void (*rope_table)(const RopeTableArgs&, Range);
  void (*rope)(const RopeArgs&, Range);
  void (*kv_append)(const KvAppendArgs&, Range);
  void (*attention)(const AttentionArgs&, Range);
  void (*latent_attention)(const LatentAttentionArgs&, Range);
  void (*index_scores)(const IndexScoresArgs&, Range);
  void (*hyper_collapse)(const HyperArgs&, Range);
  void (*hyper_add)(const HyperArgs&, Range);
  void (*compress_scan)(const CompressScanArgs&, Range);
  void (*compressed_append)(const CompressedAppendArgs&, Range);
  void (*compressed_scores)(const CompressedScoresArgs&, Range);
  void (*compressed_attention)(const CompressedAttentionArgs&, Range);
  void (*causal_conv)(const CausalConvArgs&, Range);
  void (*ssm_step)(const SsmStepArgs&, Range);
  void (*ssm_scan)(const SsmScanArgs&, Range);
  void (*delta_scan)(const DeltaScanArgs&, Range);
  void (*swiglu)(const SwigluArgs&, Range);
  void (*probabilities)(const ProbabilitiesArgs&, Range);
  void (*residual_add)(const ResidualAddArgs&, Range);
  void (*add_bias)(const AddBiasArgs&, Range);
  void (*add_interpolated)(const AddInterpolatedArgs&, Range);
  void (*scale_softcap)(const ScaleSoftcapArgs&, Range);
  RowScan (*scan_row)(const float* row, std::size_t width);
  // candidate_key(x, i) of every x = (row[i] - largest) / divisor >= x_min, i increasing; how many there are.
  std::size_t (*collect_candidates)(const CandidateArgs&);
  // exp_s1(x) of each.
  void (*candidate_weights)(const std::uint64_t* keys, std::size_t count, float* weights);
  // Lane functions over arrays, for tests of the elementary functions.
  void (*softplus_array)(const float* x, float* y, std::size_t count);
  void (*exp_array)(const float* x, float* y, std::size_t count);
  void (*tanh_array)(const float* x, float* y, std::size_t count);
  void (*erf_array)(const float* x, float* y, std::size_t count);
  void (*sincos_array)(const float* x, float* sine, float* cosine, std::size_t count);
};

// The table of `isa`. REQUIRES: the processor has it.
const Kernels& kernels(host::Isa isa);

}  // namespace llorch::engine::compute::cpu
