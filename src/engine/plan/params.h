#pragma once
// ParamBlock ABI v1: everything numeric an instruction needs, as plain little-endian structs.
//
// Rules of every struct: first field `kind_version`, fields naturally aligned, padding spelled out, size a multiple of 8
// and at most 256, fixed-width integers, flags as u8. The compiler of plans creates the bytes, validate() checks version,
// opcode and size once at load, param_as<P>() is then a plain cast.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/assert.h"
#include "engine/plan/opcode.h"

namespace llorch::engine::plan {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::uint8_t kParamBlockVersion = 1;
inline constexpr std::size_t kParamBlockBytesMax = 256;
inline constexpr std::size_t kParamBlockAlign = 8;

struct ParamBlock {
  std::uint8_t version = 0;
  Opcode opcode{};
  std::span<const std::byte> data;  // 8-byte aligned, owned by the plan's arena
};

constexpr std::uint32_t kind_version(Opcode opcode, std::uint8_t version = kParamBlockVersion) {
  return static_cast<std::uint32_t>(opcode) << 8 | version;
}

enum class NormKind : std::uint8_t { kRms = 0, kLayerNorm = 1 };
// Which elements a rotation pairs: x[i] with x[i + R/2], x[2i] with x[2i+1], or two axes of an image.
enum class RopeLayout : std::uint8_t { kNone = 0, kHalf = 1, kInterleaved = 2, kVision2d = 3 };
enum class MropeKind : std::uint8_t { kNone = 0, kChunked = 1, kInterleaved = 2 };
// Of every head before it rotates; of all heads of a row together before they do; of every head once it has rotated, with
// weights or without; LayerNorm of every head before it rotates, each with weights of its own.
enum class QkNorm : std::uint8_t {
  kNone = 0,
  kPerHead = 1,
  kPerRow = 2,
  kPerHeadRotated = 3,
  kUnitRotated = 4,
  kCenteredPerHead = 5
};
constexpr bool has_weights_of_all_heads(QkNorm norm) {
  return norm == QkNorm::kPerRow || norm == QkNorm::kCenteredPerHead;
}
// What the attention of a row is multiplied with before the output projection: the sigmoid of one number a head, or of one
// an element.
enum class AttentionGate : std::uint8_t { kNone = 0, kPerHead = 1, kPerElement = 2 };
// kSiluClamped: silu(min(gate, limit)) * clamp(up, -limit, limit).
enum class Activation : std::uint8_t {
  kSilu = 0,
  kGeluTanh = 1,
  kGeluErf = 2,
  kSwigluOai = 3,
  kRelu2 = 4,
  kXielu = 5,
  kSiluClamped = 6
};
// kSparseMixer: one expert after the other, each weighed by a softmax over those near it that are not chosen yet.
enum class MoeGate : std::uint8_t {
  kSoftmax = 1,
  kSigmoid = 2,
  kSoftmaxAfterTopk = 3,
  kSqrtSoftplus = 4,
  kSparseMixer = 5
};
enum class GroupScore : std::uint8_t { kTop2Sum = 0, kMax = 1 };
// Of a linear layer over pooled rows.
enum class DenseActivation : std::uint8_t { kNone = 0, kTanh = 1 };
enum class ScatterMode : std::uint8_t { kReplace = 0, kAdd = 1 };
// Which rows of a sequence stand for all of it; numbered as GGUF's pooling_type.
enum class Pooling : std::uint8_t { kNone = 0, kMean = 1, kFirst = 2, kLast = 3 };

// No rotation table (rope_layout none).
inline constexpr std::uint32_t kNoRopeTable = 0xFFFFFFFF;

struct RmsNormParams {
  static constexpr Opcode kOpcode = Opcode::kRmsNorm;
  std::uint32_t kind_version;
  std::uint32_t width;  // D, elements per row
  float eps;
  float weight_offset;           // y = x * rsqrt(mean(x^2) + eps) * (w + weight_offset); 0 or 1
  std::uint32_t rows_per_group;  // 0 = one norm over the whole row
  std::uint32_t layer;           // 0xFFFFFFFF outside the layers
  NormKind kind;
  std::uint8_t padding[7];
};
static_assert(sizeof(RmsNormParams) == 32);

struct AttentionParams {
  static constexpr Opcode kOpcode = Opcode::kMultiheadAttention;
  std::uint32_t kind_version;
  std::uint32_t width;     // D
  std::uint32_t heads;     // H; query head h reads kv head h / (H / K)
  std::uint32_t kv_heads;  // K
  std::uint32_t d_qk;
  std::uint32_t d_v;
  std::uint32_t rotary_dims;         // R <= d_qk, even; elements R.. pass through
  std::uint32_t rope_table_id;       // index into ExecutionContext::rope_tables, or kNoRopeTable
  std::uint32_t rope_table_long_id;  // for slots with ExecutionContext::long_rope_of_slot set; else kNoRopeTable
  std::uint32_t
      window;  // keys i-j < window are seen, not causal |i-j| < window, `chunked` those of i's own window; 0 = all
  std::uint32_t layer;
  std::uint32_t kv_ordinal;   // this layer's number among the layers of its state
  std::uint32_t sections[3];  // mrope: frequencies of the T, H and W positions
  float scale;                // s = scale * q.k
  float logit_softcap;        // s = cap * tanh(s / cap); 0 = off
  float qk_norm_eps;
  float qk_norm_offset;
  float value_scale;                   // on values before they are cached; 0 = none
  std::uint64_t kv_page_offset_bytes;  // where this layer's part begins inside a cache page (state.h, KvLayout)
  RopeLayout rope_layout;
  MropeKind mrope;
  std::uint8_t causal;     // 0: every row sees all rows of its own span of ExecutionContext::row_offsets; no state
  std::uint8_t has_sinks;  // one logit per head joins the softmax's maximum and sum, with no value
  std::uint8_t has_qkv_bias;
  std::uint8_t has_o_bias;
  QkNorm qk_norm;
  std::uint8_t kv_dtype;  // DType: F32, F16 (BF16, Q8_0 later)
  AttentionGate gate;
  std::uint8_t chunked;             // positions are divided into windows that do not see each other
  std::uint8_t temperature_offset;  // 0 or 1, below
  std::uint8_t shares_cache;        // reads what an earlier layer of the same state has cached, and caches nothing
  std::uint8_t unit_values;         // values are normed without a weight before they are cached, with qk_norm_eps
  std::uint8_t padding[3];
  // q *= 1 + temperature * ln(1 + floor((position + temperature_offset) / temperature_length)); length 0 = off
  float temperature;
  std::uint32_t temperature_length;
};
static_assert(sizeof(AttentionParams) == 112);

struct MlaAttentionParams {
  static constexpr Opcode kOpcode = Opcode::kMlaAttention;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t heads;
  std::uint32_t q_lora;  // 0 = no query compression
  std::uint32_t kv_lora;
  std::uint32_t d_nope;
  std::uint32_t d_rope;
  std::uint32_t d_v;
  std::uint32_t rope_table_id;
  std::uint32_t layer;
  std::uint32_t kv_ordinal;
  float scale;
  float norm_eps;             // of q_a_norm and kv_a_norm
  std::uint32_t index_words;  // of a row of the second input, which has a bit for each position that counts; 0 = all do
  std::uint64_t
      kv_page_offset_bytes;  // the cache is KvLayout{kv_heads 1, d_qk kv_lora + d_rope, d_v 0}: rows [c | k_pe]
  RopeLayout rope_layout;
  std::uint8_t kv_dtype;
  std::uint8_t padding[6];
};
static_assert(sizeof(MlaAttentionParams) == 72);

struct SwigluParams {
  static constexpr Opcode kOpcode = Opcode::kSwiglu;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  std::uint32_t ffn;    // F
  float alpha;          // swiglu_oai, xielu
  float limit;          // swiglu_oai, silu_clamped
  Activation act;
  std::uint8_t gated;  // down(act(gate(x)) * up(x)); else down(act(up(x)))
  std::uint8_t padding[2];
  float alpha_negative;  // xielu, as the two below
  float beta;
  float eps;  // at most 0
  std::uint8_t more_padding[4];
};
static_assert(sizeof(SwigluParams) == 40);

struct MoeParams {
  static constexpr Opcode kOpcode = Opcode::kMoe;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t experts;       // E
  std::uint32_t experts_used;  // k
  std::uint32_t ffn_expert;
  std::uint32_t groups;  // 0 = no group limit
  std::uint32_t groups_used;
  std::uint32_t ffn_shared;  // F of the shared expert added to every row; 0 = none
  float norm_epsilon;        // norm_topk: w /= sum(w) + norm_epsilon
  float weights_scale;
  float alpha;
  float limit;
  MoeGate gate;
  GroupScore group_score;
  Activation act;
  std::uint8_t has_router_bias;
  std::uint8_t has_selection_bias;
  std::uint8_t norm_topk;
  std::uint8_t has_expert_bias;
  std::uint8_t ungated;           // experts are down(act(up(x))), the shared one too
  std::uint8_t weighs_inputs;     // an expert gets weight * x, and its output is added as it is
  std::uint8_t has_shared_gate;   // the shared expert's output is multiplied with the sigmoid of a number
  std::uint8_t router_apart;      // the router reads the second input
  std::uint8_t has_expert_scale;  // weights are multiplied with a number of their expert's, behind all else
  std::uint32_t table_rows;       // V: a table says which experts a token's rows go to; 0 = the router does
  std::uint32_t latent;           // routed experts work on a projection of x of this width; 0 = on x
  float reach;  // sparse_mixer: a logit x is near m, the largest, where (m - x) / max(|x|, m) is at most this

  std::uint32_t expert_width() const { return latent != 0 ? latent : width; }
};
static_assert(sizeof(MoeParams) == 72);

struct MambaMixerParams {
  static constexpr Opcode kOpcode = Opcode::kMambaMixer;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t d_inner;
  std::uint32_t heads;
  std::uint32_t d_head;
  std::uint32_t d_state;
  std::uint32_t groups;
  std::uint32_t d_conv;
  float dt_min;
  float dt_max;  // may be infinite
  float norm_eps;
  std::uint32_t norm_groups;
  std::uint32_t layer;
  std::uint32_t padding;
  // Where this layer's parts begin inside a slot's fixed-size state (state.h, MambaStateLayout): the conv part in the
  // block of kSsmStateId, then, 64-byte aligned, its ssm part.
  std::uint64_t state_offset_bytes;
};
static_assert(sizeof(MambaMixerParams) == 64);

struct ShortconvParams {
  static constexpr Opcode kOpcode = Opcode::kShortconv;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t l_cache;  // taps
  std::uint32_t layer;
  std::uint64_t
      state_offset_bytes;  // where this layer's [l_cache - 1, D] rows begin inside a slot's kConvStateId block
};
static_assert(sizeof(ShortconvParams) == 24);

// Keys and values of a row go through a causal convolution and SiLU; q and k become unit vectors, q / sqrt(d_k) of one. Per value
// head h, which reads key head h / (value_heads / key_heads), or h mod key_heads, with decay e^(a softplus(.)) and beta a sigmoid:
// S = decay S; S += beta (v - S k) k^T; y = S q. Behind it the norm of every head, times silu(z) or sigmoid(z). Decays are of a
// head, or of each of its key channels. Decays and z go through `rank` numbers where there are such.
struct GatedDeltaParams {
  static constexpr Opcode kOpcode = Opcode::kGatedDelta;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  std::uint32_t key_heads;
  std::uint32_t value_heads;  // a multiple of key_heads
  std::uint32_t d_k;
  std::uint32_t d_v;
  std::uint32_t d_conv;
  std::uint32_t layer;
  float norm_eps;
  float unit_eps;                // x / sqrt(sum of squares + unit_eps)
  std::uint8_t keys_take_turns;  // h mod key_heads
  std::uint8_t channel_decay;    // a decay for each of d_k
  std::uint8_t sigmoid_gate;
  std::uint8_t padding[1];
  std::uint32_t rank;  // 0 = none
  std::uint64_t
      state_offset_bytes;  // of this layer inside a slot's kDeltaStateId block (state.h, GatedDeltaStateLayout)
};
static_assert(sizeof(GatedDeltaParams) == 56);

struct EmbeddingParams {
  static constexpr Opcode kOpcode = Opcode::kEmbedding;
  std::uint32_t kind_version;
  std::uint32_t rows;   // V, rows of the table
  std::uint32_t width;  // D
  float scale;          // 1 = none
};
static_assert(sizeof(EmbeddingParams) == 16);

// y = x + types[row's type] + positions[first + row's position], each where there is such a table. A row whose token says no type
// (ExecutionContext::row_types) is of type 0.
struct PositionEmbeddingParams {
  static constexpr Opcode kOpcode = Opcode::kPositionEmbedding;
  std::uint32_t kind_version;
  std::uint32_t width;      // D
  std::uint32_t positions;  // rows of the table; 0 = none
  std::uint32_t first;      // its row for position 0
  std::uint32_t types;      // rows of the table; 0 = none
  std::uint32_t padding;
};
static_assert(sizeof(PositionEmbeddingParams) == 24);

struct ResidualAddParams {
  static constexpr Opcode kOpcode = Opcode::kResidualAdd;
  std::uint32_t kind_version;
  std::uint32_t width;
  float scale;      // y = a + scale * b; 1 = none
  float sum_scale;  // y *= sum_scale; 0 = none
};
static_assert(sizeof(ResidualAddParams) == 16);

struct LmHeadParams {
  static constexpr Opcode kOpcode = Opcode::kLmHead;
  std::uint32_t kind_version;
  std::uint32_t rows;   // V
  std::uint32_t width;  // D
  float logit_mul;      // 1 = none
  float softcap;        // 0 = off
  std::uint8_t tied;    // the weight is the embedding table
  std::uint8_t padding[3];
};
static_assert(sizeof(LmHeadParams) == 24);

struct PoolParams {
  static constexpr Opcode kOpcode = Opcode::kPool;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  Pooling pooling;      // not kNone
  std::uint8_t padding[7];
};
static_assert(sizeof(PoolParams) == 16);

// y = act(W x + b) for each output row.
struct DenseParams {
  static constexpr Opcode kOpcode = Opcode::kDense;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  std::uint32_t rows;   // elements of y
  DenseActivation act;
  std::uint8_t padding[3];
};
static_assert(sizeof(DenseParams) == 16);
// Per row: q = q_b(norm(q_a(x))) of H heads, w = weights(x) of one number a head; k = LayerNorm(k(x)), cached. The first d_rope
// elements of q and k rotate. score of a position = scale * sum over h of w_h relu(q_h . k). The `top_k` positions with the highest
// scores up to the row's own, all of them while there are no more, become bits of the output; of equal ones the first.
struct LightningIndexParams {
  static constexpr Opcode kOpcode = Opcode::kLightningIndex;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  std::uint32_t q_lora;
  std::uint32_t heads;
  std::uint32_t d_index;
  std::uint32_t d_rope;  // at most d_index
  std::uint32_t top_k;
  std::uint32_t words;  // of a row of the output: bit p % 32 of word p / 32 is position p
  std::uint32_t rope_table_id;
  std::uint32_t layer;
  std::uint32_t kv_ordinal;
  float scale;
  float q_norm_eps;
  float k_norm_eps;
  std::uint64_t kv_page_offset_bytes;  // the cache is KvLayout{kv_heads 1, d_qk d_index, d_v 0}
  RopeLayout rope_layout;
  std::uint8_t kv_dtype;
  std::uint8_t padding[6];
};
static_assert(sizeof(LightningIndexParams) == 72);

// With e the row's embedding and t its row of the table, scaled: input = sum_scale * (norm(context_scale * context(e)) + t),
// y = proj(act(gate(x)) * input).
struct LayerInputParams {
  static constexpr Opcode kOpcode = Opcode::kLayerInput;
  std::uint32_t kind_version;
  std::uint32_t width;   // D
  std::uint32_t inner;   // P, elements of a layer's input
  std::uint32_t rows;    // V, of the table
  std::uint32_t layers;  // whose inputs stand side by side in a row of the table
  std::uint32_t layer;
  float table_scale;
  float context_scale;
  float sum_scale;
  float norm_eps;
  Activation act;
  std::uint8_t padding[7];
};
static_assert(sizeof(LayerInputParams) == 48);

// Hyper-connections keep N residual streams of D elements side by side in a row. With m = fn(s / rms(s)) of the whole row s, the
// weights of stream i are pre_i = sigmoid(scale_0 m_i + base_i) + floor_eps, post_i = 2 sigmoid(scale_1 m_(N + i) + base_(N + i)), and
// mix = softmax of the rows of scale_2 m_(2N..) + base_(2N..), [N, N], plus floor_eps, of which columns and rows are divided by their sums
// (+ floor_eps) in turn, columns first and last, `iterations` times the columns. The first instructions of a model read a row of D
// elements: all streams are equal to it.
//
// y = sum over i of pre_i s_i.
struct HyperCollapseParams {
  static constexpr Opcode kOpcode = Opcode::kHyperCollapse;
  std::uint32_t kind_version;
  std::uint32_t width;     // D
  std::uint32_t streams;   // N
  std::uint32_t mix_rows;  // rows of fn: N (N + 2), or N where nothing is put back
  float norm_eps;
  float floor_eps;
  std::uint8_t is_spread;  // the input is [T, D]
  std::uint8_t padding[7];
};
static_assert(sizeof(HyperCollapseParams) == 32);

// y_k = post_k b + sum over j of mix_jk s_j, with b the branch.
struct HyperAddParams {
  static constexpr Opcode kOpcode = Opcode::kHyperAdd;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t streams;
  std::uint32_t mix_rows;
  float norm_eps;
  float floor_eps;
  std::uint32_t iterations;
  std::uint8_t is_spread;
  std::uint8_t padding[3];
};
static_assert(sizeof(HyperAddParams) == 32);

// Position p belongs to window p / rate. An entry is what the rows of a window become: per channel the mean of kv weighed by
// e^(gate + bias_(p mod rate)), normed, the last d_rope elements rotated by the window's first position. Where windows overlap, kv and gate
// have two halves: the second counts for the row's own window, the first for the next one. The last row of a window leaves the
// entry in its row of the output, [d_head | d_index]; other rows mean nothing there.
struct CompressorParams {
  static constexpr Opcode kOpcode = Opcode::kCompressor;
  std::uint32_t kind_version;
  std::uint32_t width;    // D
  std::uint32_t d_head;   // of entries
  std::uint32_t d_index;  // of the entries that an index reads; 0 = none
  std::uint32_t d_rope;
  std::uint32_t rate;
  std::uint32_t rope_table_id;
  std::uint32_t layer;
  float norm_eps;
  RopeLayout rope_layout;
  std::uint8_t overlaps;
  std::uint8_t padding[2];
  std::uint64_t
      state_offset_bytes;  // of this layer inside a slot's kCompressorStateId block (state.h, CompressorStateLayout)
};
static_assert(sizeof(CompressorParams) == 48);

// Queries q = unit norm of every head of q_b(norm(q_a(x))); one row kv = norm(kv(x)) of d_head elements is key and value of all heads. The
// last d_rope elements of both rotate. A row at position p attends to the last `window` positions and to entries of whole windows of
// `rate` positions, (p + 1) / rate of them; with an index only to the top_k with the highest scores, of equal ones the first:
// index_scale * sum over h of w_h relu(q_h . k). What attention gives rotates back, and heads in groups go through o_a and o_b.
struct CompressedAttentionParams {
  static constexpr Opcode kOpcode = Opcode::kCompressedAttention;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t heads;
  std::uint32_t q_lora;
  std::uint32_t d_head;
  std::uint32_t d_rope;
  std::uint32_t groups;  // of heads
  std::uint32_t o_rank;  // of each group
  std::uint32_t window;
  std::uint32_t rate;  // 0 = no entries, and one input alone
  std::uint32_t index_heads;
  std::uint32_t d_index;
  std::uint32_t top_k;  // entries; 0 = all
  std::uint32_t rope_table_id;
  std::uint32_t layer;
  std::uint32_t kv_ordinal;
  float scale;
  float index_scale;
  float norm_eps;
  RopeLayout rope_layout;
  std::uint8_t kv_dtype;
  std::uint8_t padding[2];
  std::uint64_t kv_page_offset_bytes;  // state.h, CompressedKvLayout
};
static_assert(sizeof(CompressedAttentionParams) == 88);

// Of a row with embedding e and hidden state h (ExecutionContext::hidden_rows): y = w [norm_e(e) | norm_h(h)], both RMS norms.
struct PredictorInputParams {
  static constexpr Opcode kOpcode = Opcode::kPredictorInput;
  std::uint32_t kind_version;
  std::uint32_t width;  // D
  float norm_eps;
  float weight_offset;  // of both norms
};
static_assert(sizeof(PredictorInputParams) == 16);

struct VisionPatchEmbedParams {
  static constexpr Opcode kOpcode = Opcode::kVisionPatchEmbed;
  std::uint32_t kind_version;
  std::uint32_t width;
  std::uint32_t patch;      // pixels per side
  std::uint32_t temporal;   // frames in a patch
  std::uint32_t merge;      // patches follow each other by blocks of merge x merge
  std::uint32_t grid_side;  // the position table is grid_side x grid_side, row-major
};
static_assert(sizeof(VisionPatchEmbedParams) == 24);

// A row of the vision state (state.h, VisionStateLayout) is `parts` vectors; part 0 is the spatial merge's, part 1 + j the
// j-th deepstack extraction's.
struct VisionSpatialMergeParams {
  static constexpr Opcode kOpcode = Opcode::kVisionSpatialMerge;
  std::uint32_t kind_version;
  std::uint32_t width_in;   // of a patch
  std::uint32_t width_out;  // of a part
  std::uint32_t merge_size;
  float norm_eps;
  std::uint32_t parts;
};
static_assert(sizeof(VisionSpatialMergeParams) == 24);

struct VisionDeepstackExtractParams {
  static constexpr Opcode kOpcode = Opcode::kVisionDeepstackExtract;
  std::uint32_t kind_version;
  std::uint32_t width_in;
  std::uint32_t width_out;
  std::uint32_t merge_size;
  float norm_eps;
  std::uint32_t parts;
  std::uint32_t part;   // 1 .. parts - 1
  std::uint32_t layer;  // of the tower
};
static_assert(sizeof(VisionDeepstackExtractParams) == 32);

// No second kind of image row.
inline constexpr std::uint32_t kNoRowId = 0xFFFFFFFF;

struct VisionScatterParams {
  static constexpr Opcode kOpcode = Opcode::kVisionScatter;
  std::uint32_t kind_version;
  std::uint32_t width;             // D, of a row and of a part
  std::uint32_t image_row_ids[2];  // rows with these ids are images'; an unused one is kNoRowId
  std::uint32_t parts;
  std::uint32_t part;
  ScatterMode mode;
  std::uint8_t padding[7];
};
static_assert(sizeof(VisionScatterParams) == 32);

template <class P>
concept ParamStruct = std::is_trivially_copyable_v<P> && std::is_standard_layout_v<P> && sizeof(P) % 8 == 0 &&
                      sizeof(P) <= kParamBlockBytesMax && alignof(P) <= kParamBlockAlign&& requires(P p) {
  { P::kOpcode } -> std::convertible_to<Opcode>;
  { p.kind_version } -> std::convertible_to<std::uint32_t>;
};

// Calls visitor.template operator()<P>() with the struct of `opcode`; false when the value is no opcode.
template <class Visitor>
constexpr bool visit_param_struct(Opcode opcode, Visitor&& visitor) {
  switch (opcode) {
    case Opcode::kRmsNorm: return visitor.template operator()<RmsNormParams>(), true;
    case Opcode::kMultiheadAttention: return visitor.template operator()<AttentionParams>(), true;
    case Opcode::kSwiglu: return visitor.template operator()<SwigluParams>(), true;
    case Opcode::kMoe: return visitor.template operator()<MoeParams>(), true;
    case Opcode::kMambaMixer: return visitor.template operator()<MambaMixerParams>(), true;
    case Opcode::kShortconv: return visitor.template operator()<ShortconvParams>(), true;
    case Opcode::kMlaAttention: return visitor.template operator()<MlaAttentionParams>(), true;
    case Opcode::kEmbedding: return visitor.template operator()<EmbeddingParams>(), true;
    case Opcode::kResidualAdd: return visitor.template operator()<ResidualAddParams>(), true;
    case Opcode::kVisionPatchEmbed: return visitor.template operator()<VisionPatchEmbedParams>(), true;
    case Opcode::kVisionSpatialMerge: return visitor.template operator()<VisionSpatialMergeParams>(), true;
    case Opcode::kVisionDeepstackExtract: return visitor.template operator()<VisionDeepstackExtractParams>(), true;
    case Opcode::kVisionScatter: return visitor.template operator()<VisionScatterParams>(), true;
    case Opcode::kGatedDelta: return visitor.template operator()<GatedDeltaParams>(), true;
    case Opcode::kLmHead: return visitor.template operator()<LmHeadParams>(), true;
    case Opcode::kPool: return visitor.template operator()<PoolParams>(), true;
    case Opcode::kDense: return visitor.template operator()<DenseParams>(), true;
    case Opcode::kPositionEmbedding: return visitor.template operator()<PositionEmbeddingParams>(), true;
    case Opcode::kLayerInput: return visitor.template operator()<LayerInputParams>(), true;
    case Opcode::kLightningIndex: return visitor.template operator()<LightningIndexParams>(), true;
    case Opcode::kHyperCollapse: return visitor.template operator()<HyperCollapseParams>(), true;
    case Opcode::kHyperAdd: return visitor.template operator()<HyperAddParams>(), true;
    case Opcode::kCompressor: return visitor.template operator()<CompressorParams>(), true;
    case Opcode::kCompressedAttention: return visitor.template operator()<CompressedAttentionParams>(), true;
    case Opcode::kPredictorInput: return visitor.template operator()<PredictorInputParams>(), true;
  }
  return false;
}

// Size of the struct of `opcode`; 0 when the value is no opcode.
constexpr std::size_t param_struct_bytes(Opcode opcode) {
  std::size_t bytes = 0;
  visit_param_struct(opcode, [&bytes]<ParamStruct P>() {
    static_assert(offsetof(P, kind_version) == 0);
    bytes = sizeof(P);
  });
  return bytes;
}

// REQUIRES: the plan passed validate() and `block` is of P's opcode.
template <ParamStruct P>
const P& param_as(const ParamBlock& block) {
  ASSERT(block.opcode == P::kOpcode && block.data.size() == sizeof(P), "opcode={} bytes={}",
         static_cast<int>(block.opcode), block.data.size());
  return *reinterpret_cast<const P*>(block.data.data());
}

}  // namespace llorch::engine::plan
