#pragma once
// The numbers of a model, read from its file's configuration and checked against each other. Every number a plan needs is
// here: nothing numeric comes from a family.
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/image_rules.h"
#include "engine/plan/params.h"

namespace llorch::engine::models {

// Bounds on single dimensions: far above any model, low enough that products of two fit 64 bits with room.
inline constexpr std::uint32_t kDimensionMax = 1U << 24;
inline constexpr std::uint32_t kLayersMax = 4096;
inline constexpr std::uint32_t kContextMax = 1U << 30;

// kAxial: the first half of the frequencies turns with a patch's row, the second, equal to it, with its column.
enum class RopeKind : std::uint8_t { kPlain, kLinear, kLlama3, kYarn, kAxial };

// One way to rotate. What a table becomes of it: rope.h.
struct RopeConfig {
  std::uint32_t dims = 0;  // R, even, at most the head's size
  double base = 10000.0;   // theta
  RopeKind kind = RopeKind::kPlain;
  double factor = 1.0;                 // linear, llama3, yarn
  std::uint32_t original_context = 0;  // llama3, yarn, and the last length of `divisors` when there are long ones
  double low_freq_factor = 1.0;        // llama3
  double high_freq_factor = 4.0;       // llama3
  double beta_fast = 32.0;             // yarn
  double beta_slow = 1.0;              // yarn
  bool truncate = true;                // yarn: the ramp's ends are whole numbers
  float attn_factor = 1.0F;            // on cos and sin
  std::uint32_t turning = 0;           // frequencies that are not 0, the first ones; 0: all
  std::vector<float> divisors;         // [R/2] or empty
  std::vector<float> divisors_long;    // [R/2] or empty; of slots whose length may pass original_context
};

// LayerConfig::rope of a layer that does not rotate.
inline constexpr std::uint8_t kNoRope = 0xFF;

// The numbers of xielu, as the activation uses them.
struct XieluConfig {
  float alpha = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
};

// LayerConfig::cache_of of a layer with a cache of its own, or none.
inline constexpr std::uint32_t kOwnCache = 0xFFFFFFFF;

struct LayerConfig {
  std::uint8_t layer_template = 0;             // number in Family::layer templates
  std::uint8_t rope = kNoRope;                 // number in ModelConfig::ropes
  std::uint32_t heads = 0;                     // H; 0 in layers without attention
  std::uint32_t kv_heads = 0;                  // K
  std::uint32_t window = 0;                    // 0 = none
  plan::QkNorm qk_norm = plan::QkNorm::kNone;  // none: AttentionConfig's
  std::uint32_t ffn = 0;                       // F of a dense layer
  XieluConfig xielu;                           // of FfnConfig::activation xielu
  std::uint32_t d_head = 0;                    // of keys and values; 0: AttentionConfig's
  std::uint32_t cache_of = kOwnCache;          // an earlier layer whose keys and values this one reads
  float output_scale = 1;                      // of families whose layers end in a scale
  std::uint32_t rate = 0;        // rows of a window that compressed attention has an entry for; 0 = no entries
  bool indexed = false;          // an index chooses entries, and windows overlap
  bool routed_by_table = false;  // a table by token says which experts
};

// q *= 1 + factor * ln(1 + floor((position + offset) / length))
struct Temperature {
  float factor = 0;
  std::uint32_t length = 0;  // 0 = off
  std::uint32_t offset = 0;  // 0 or 1
  bool of_rotated = true;    // of the layers that rotate, or of those that do not
};

struct AttentionConfig {
  std::uint32_t d_qk = 0;
  std::uint32_t d_v = 0;
  float scale = 0;
  float logit_softcap = 0;  // 0 = off
  plan::RopeLayout rope_layout = plan::RopeLayout::kNone;
  plan::MropeKind mrope = plan::MropeKind::kNone;
  std::array<std::uint32_t, 3> sections{};  // frequencies of the T, H and W positions
  bool causal = true;
  plan::QkNorm qk_norm = plan::QkNorm::kPerHead;  // of layers with weights for one
  plan::AttentionGate gate = plan::AttentionGate::kPerHead;
  bool chunked = false;   // windows that do not see each other, instead of one that slides
  float value_scale = 0;  // 0 = none
  Temperature temperature{};
  bool unit_values = false;  // values are normed, without a weight
};

// What a layer takes from a table of its own beside the residual stream.
struct LayerInputConfig {
  std::uint32_t inner = 0;  // P, elements of a layer's input
  float table_scale = 1;
  float context_scale = 1;
  float sum_scale = 1;
};

// A linear layer over pooled rows.
struct DenseConfig {
  std::uint8_t number = 0;  // in the names of its weights
  std::uint32_t width = 0;
  std::uint32_t rows = 0;  // elements of what comes out
  plan::DenseActivation activation = plan::DenseActivation::kNone;
};

struct FfnConfig {
  plan::Activation activation = plan::Activation::kSilu;
  float alpha = 0;  // swiglu_oai
  float limit = 0;  // swiglu_oai
};

struct MoeConfig {
  std::uint32_t experts = 0;       // E; 0 = no mixture anywhere
  std::uint32_t experts_used = 0;  // k
  std::uint32_t ffn_expert = 0;
  std::uint32_t ffn_shared = 0;  // 0 = no shared expert
  std::uint32_t latent = 0;      // routed experts work on a projection of this width; 0 = none
  std::uint32_t groups = 0;      // 0 = no group limit
  std::uint32_t groups_used = 0;
  plan::MoeGate gate = plan::MoeGate::kSoftmax;
  plan::GroupScore group_score = plan::GroupScore::kTop2Sum;
  bool norm_topk = false;
  bool weighs_inputs = false;
  float weights_scale = 1.0F;
  float reach = 0;            // of the gate sparse_mixer
  bool router_apart = false;  // the router reads a norm of its own
};

struct MlaConfig {
  std::uint32_t q_lora = 0;  // 0 = no query compression
  std::uint32_t kv_lora = 0;
  std::uint32_t d_nope = 0;
  std::uint32_t d_rope = 0;
  std::uint32_t d_v = 0;
  float norm_eps = 0;  // of the two norms inside
  float scale = 0;
};

// Which positions latent attention attends to.
struct IndexConfig {
  std::uint32_t heads = 0;
  std::uint32_t d_index = 0;
  std::uint32_t top_k = 0;  // 0 = all
  float norm_eps = 1e-6F;   // of the norm of keys
  plan::RopeLayout rope_layout = plan::RopeLayout::kHalf;
};

// Residual streams of hyper-connections.
struct HyperConfig {
  std::uint32_t streams = 0;  // 0 = none
  std::uint32_t iterations = 0;
  float floor_eps = 0;
};

// Attention to the last rows and to entries of those before; the sizes that all layers share.
struct CompressedConfig {
  std::uint32_t q_lora = 0;
  std::uint32_t d_head = 0;
  std::uint32_t groups = 0;  // of heads
  std::uint32_t o_rank = 0;
};

struct MambaConfig {
  std::uint32_t d_inner = 0;
  std::uint32_t heads = 0;
  std::uint32_t d_head = 0;
  std::uint32_t d_state = 0;
  std::uint32_t groups = 0;
  std::uint32_t d_conv = 0;
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
};

// Linear attention by the gated delta rule.
struct DeltaConfig {
  std::uint32_t key_heads = 0;
  std::uint32_t value_heads = 0;
  std::uint32_t d_k = 0;
  std::uint32_t d_v = 0;
  std::uint32_t d_conv = 0;
  bool keys_take_turns = false;  // value head h reads key head h mod key_heads, not h / (value_heads / key_heads)
  bool channel_decay = false;    // a decay for each of d_k, not one
  bool sigmoid_gate = false;     // not silu
  std::uint32_t rank = 0;        // of the projections of decays and gates; 0 = one step
};

struct ShortconvConfig {
  std::uint32_t l_cache = 0;  // taps
};

// The tower that turns patches of images into rows for the decoder (docs/internals/engine.md, Vision).
struct VisionConfig {
  // After block `layer` its output becomes what decoder layer j adds, j being the place in the list.
  struct Extraction {
    std::uint32_t layer = 0;
    std::uint32_t number = 0;  // in the names of its weights
  };

  std::uint32_t depth = 0;  // blocks; 0: the model takes no images
  std::uint32_t width = 0;  // of a patch
  std::uint32_t heads = 0;
  std::uint32_t ffn = 0;
  std::uint32_t width_out = 0;  // D of the decoder
  std::uint32_t patch = 0;      // pixels per side
  std::uint32_t temporal = 0;   // frames in a patch
  std::uint32_t merge = 0;      // merge x merge patches become one row
  std::uint32_t grid_side = 0;  // of the table of positions
  std::uint8_t rope = kNoRope;  // number in ModelConfig::ropes
  float norm_eps = 0;
  plan::Activation activation = plan::Activation::kGeluTanh;
  // Pictures before they are patches: bounds of their size, and per channel what is taken off and divided by.
  std::uint64_t pixels_min = 0;
  std::uint64_t pixels_max = 0;
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
  std::vector<Extraction> extractions;
  std::array<std::uint32_t, 2> image_row_ids{plan::kNoRowId, plan::kNoRowId};
  std::uint32_t image_rows_max = 0;  // of a request; the caller's choice, not the file's

  std::uint32_t parts() const { return 1 + static_cast<std::uint32_t>(extractions.size()); }
  std::uint32_t patch_row_width() const { return 3 * temporal * patch * patch; }
  std::uint32_t patches_per_row() const { return merge * merge; }
  plan::ImageRules image_rules() const {
    return {.patch = patch,
            .temporal = temporal,
            .merge = merge,
            .pixels_min = pixels_min,
            .pixels_max = pixels_max,
            .mean = mean,
            .deviation = deviation};
  }
};

// A slot that the configuration says is filled, or empty, where the family leaves both open.
struct NamedSlot {
  plan::Opcode opcode{};
  std::uint8_t slot = 0;
};

struct ModelConfig {
  std::string architecture;          // as the file calls it
  std::string name;                  // general.name, may be empty
  std::uint32_t context_tokens = 0;  // what the model was made for
  std::uint32_t width = 0;           // D
  std::uint32_t vocab = 0;           // V, rows of the embedding table
  std::vector<LayerConfig> layers;   // [L]
  std::optional<LayerConfig>
      predictor_layer;  // of the layer that predicts a further token; absent: the last that attends
  std::vector<RopeConfig> ropes;
  std::vector<NamedSlot> demanded;
  std::vector<NamedSlot> forbidden;  // a tensor for one is a tensor that nobody has use for

  plan::NormKind norm_kind = plan::NormKind::kRms;
  float norm_eps = 0;
  float norm_offset = 0;  // of every RMS norm's weight, q and k norms too
  float embedding_scale = 1.0F;
  float residual_scale = 1.0F;  // on every branch before it is added
  float logit_mul = 1.0F;
  float logit_softcap = 0;  // 0 = off
  bool head_tied = false;   // says the configuration; a head in the file counts more
  // Learned tables, whose rows are added to those of tokens.
  std::uint32_t positions = 0;       // rows; 0 = none
  std::uint32_t first_position = 0;  // the row of position 0
  std::uint32_t token_types = 0;     // rows; 0 = none
  // Of models of embeddings and of scores: what the rows of a sequence become, instead of logits.
  plan::Pooling pooling = plan::Pooling::kNone;
  std::vector<DenseConfig> dense;  // over pooled rows, one behind the other
  // An output row is no vector: it says how well a document answers a query, one logit, or one for yes and one for no.
  bool scores = false;

  AttentionConfig attention;
  FfnConfig ffn;
  MoeConfig moe;
  MlaConfig mla;
  IndexConfig index;
  HyperConfig hyper;
  CompressedConfig compressed;
  MambaConfig mamba;
  DeltaConfig delta;
  ShortconvConfig shortconv;
  VisionConfig vision;
  LayerInputConfig layer_input;

  // Elements of an output row: logits, or what pooled rows become.
  std::uint32_t output_width() const {
    return pooling == plan::Pooling::kNone ? vocab : dense.empty() ? width : dense.back().rows;
  }
  // Whether all rows of a sequence must be in one step: a row sees later ones, or the output is made of all.
  bool wants_whole_sequences() const {
    return !attention.causal || pooling == plan::Pooling::kMean || pooling == plan::Pooling::kFirst;
  }
};

}  // namespace llorch::engine::models
