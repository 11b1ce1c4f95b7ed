#pragma once
// The config.json of a Hugging Face directory by meaning, in the spellings of transformers 4 and 5.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/config/rules.h"

namespace llorch::engine::models {

// The keys of the text model: those of `text_config` where a directory has one. They are watched: what no reader asks for is
// in root().unread(). Errors: CONFIG_KEY_MISSING, CONFIG_KEY_INVALID.
class HfKeys {
 public:
  static base::Result<HfKeys> of(const io::ModelFiles& files);

  const io::ModelFiles& files() const { return files_; }
  const io::HfConfig& root() const { return root_; }
  const io::HfConfig& text() const { return text_; }
  std::string key(std::string_view name) const { return path_ + std::string(name); }
  bool has(std::string_view name) const { return text_.contains(name); }  // there and not null

  base::Result<std::uint32_t> count(std::string_view name, std::uint32_t value_max = kDimensionMax) const;
  base::Result<std::uint32_t> count_or(std::string_view name, std::uint32_t absent) const;
  base::Result<std::uint32_t> number_or(std::string_view name, std::uint32_t absent) const;  // 0 allowed
  // A list with one number for each layer.
  base::Result<std::vector<std::uint32_t>> per_layer(std::string_view name, std::size_t layers) const;
  // The first of several spellings that is there. Errors: CONFIG_KEY_MISSING names the first.
  base::Result<std::uint32_t> count_of(std::initializer_list<std::string_view> names) const;
  // The rotation dictionary: rope_scaling (4) when there, else rope_parameters (5); nullopt when there is neither.
  base::Result<std::optional<io::HfConfig>> rope_dictionary() const;
  KeyNames names() const;

 private:
  HfKeys(const io::ModelFiles& files, io::HfConfig root, io::HfConfig text, std::string path)
      : files_(files), root_(std::move(root)), text_(std::move(text)), path_(std::move(path)) {}
  const io::ModelFiles& files_;
  io::HfConfig root_, text_;
  std::string path_;  // "" or "text_config."
};

// model_type; of a directory whose own says only what surrounds the text model, the text model's. Errors: CONFIG_KEY_MISSING.
base::Result<std::string_view> text_model_type(const io::HfConfig& root);

// What a family's class uses for keys that are left out. 0 or empty: the key is required.
struct HfDefaults {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;  // 0: as many as heads
  std::uint32_t head_dim = 0;  // 0: hidden_size / heads
  std::uint32_t context = 0;
  float eps = 1e-6F;
  std::string_view eps_key = "rms_norm_eps";
  std::string_view context_key = "max_position_embeddings";
  std::string_view width_key = "hidden_size";
  std::string_view layers_key = "num_hidden_layers";
  std::string_view heads_key = "num_attention_heads";
  bool tied = false;
  std::string_view activation_key = "hidden_act";
  plan::Activation activation = plan::Activation::kSilu;
  std::size_t layers = 0;  // as another key gives them; 0: num_hidden_layers
};

// model_type, context, width, number of layers, epsilon, whether the head is tied; caps when the family has them.
base::Result<ModelConfig> read_hf_basics(const HfKeys& keys, const HfDefaults& defaults);

// Head counts and sizes of all layers. The caller sets rotations, then calls finish_attention.
base::Result<> read_hf_heads(const HfKeys& keys, const HfDefaults& defaults, ModelConfig& config);

base::Result<> read_hf_ffn(const HfKeys& keys, ModelConfig& config);

template <class Slot>
constexpr std::uint8_t slot_number(Slot slot) {
  return static_cast<std::uint8_t>(slot);
}
// A flag that promises weights: when it is set, a file without them is not this model; when it says that there are none, a
// file with them is not.
base::Result<> demand_if(const HfKeys& keys, std::string_view flag, bool absent, plan::Opcode opcode,
                         std::initializer_list<std::uint8_t> slots, ModelConfig& config);
// A flag whose meaning this family has no way to run: when it is set, the model is refused by the flag's name.
base::Result<> refuse_if(const HfKeys& keys, std::string_view flag);
// A word that may stand there, but as `only` only.
base::Result<> demand_word(const HfKeys& keys, std::string_view name, std::string_view only);
// A number that may stand there, but as `only` only: what the model's other numbers say already.
base::Result<> demand_number(const HfKeys& keys, std::string_view name, std::uint32_t only);
// layer_types of a family without windows.
base::Result<> demand_full_attention(const HfKeys& keys, const ModelConfig& config);
// Of a flag that promises biases on q, k and v; the second one on o as well.
base::Result<> demand_qkv_biases(const HfKeys& keys, ModelConfig& config, std::string_view flag = "attention_bias",
                                 bool absent = false);
base::Result<> demand_attention_biases(const HfKeys& keys, ModelConfig& config,
                                       std::string_view flag = "attention_bias", bool absent = false);

// hidden_act or another key.
base::Result<plan::Activation> read_hf_activation(const HfKeys& keys, std::string_view name, plan::Activation absent);

// All of the above: the keys every decoder of plain attention and dense feed-forward shares.
base::Result<ModelConfig> read_hf_dense(const HfKeys& keys, const HfDefaults& defaults);

struct HfRopeRules {
  double theta_absent = 10000.0;
  std::string_view theta_key = "rope_theta";  // at the top level
  std::string_view layer_type = {};           // dictionaries may hold one dictionary per type of layer
  bool partial = false;                       // partial_rotary_factor counts
  float partial_absent = 1.0F;
  bool alpha = false;                 // "dynamic" with `alpha` is a base that is stretched once and for all
  bool longrope_aliases = false;      // "su" and "yarn" mean longrope
  bool magnitudes = false;            // of longrope: short_mscale and long_mscale, which must be one here
  std::uint32_t original_absent = 0;  // original_max_position_embeddings; 0: max_position_embeddings
};
// A rotation over `head_size` elements.
base::Result<RopeConfig> read_hf_rope(const HfKeys& keys, std::uint32_t head_size, const HfRopeRules& rules);
// The same from a dictionary of its own; nullopt for none.
base::Result<RopeConfig> read_hf_rope(const HfKeys& keys, const std::optional<io::HfConfig>& dictionary,
                                      std::uint32_t head_size, const HfRopeRules& rules);

// layer_types, one word per layer; nullopt when the key is not there. HF 4's and 5's words are made one: "mamba" for
// linear_attention, "attention" for full_attention.
enum class HfLayerType : std::uint8_t { kAttention, kWindow, kChunked, kMamba, kConv, kFfn, kMoe };
base::Result<std::optional<std::vector<HfLayerType>>> read_hf_layer_types(const HfKeys& keys, std::string_view name,
                                                                          std::size_t layers);
// The same of hybrids, which say in it how many layers there are: layers_block_type or layer_types (5), or hybrid_override_pattern
// (4), a letter for each layer: M, *, - and E.
base::Result<std::vector<HfLayerType>> read_hf_hybrid_layers(const HfKeys& keys);
// sliding_window: 0 for null or 0, `absent` when the key is not there.
base::Result<std::uint32_t> read_hf_window(const HfKeys& keys, std::uint32_t absent);

// The window of the layers that layer_types calls sliding; none without layer_types.
base::Result<> read_hf_layer_windows(const HfKeys& keys, std::uint32_t window_absent, ModelConfig& config);

// Layers with a window rotate by the dictionary `sliding_attention`, the others by `full_attention`, where there are two. Checks
// attention.
base::Result<> read_hf_rope_by_window(const HfKeys& keys, plan::RopeLayout layout, const HfRopeRules& rules,
                                      ModelConfig& config);

// All layers rotate alike: one rotation, given to every layer with heads; checks attention.
base::Result<> read_hf_one_rope(const HfKeys& keys, plan::RopeLayout layout, const HfRopeRules& rules,
                                ModelConfig& config);

// mlp_layer_types (5): true for layers that are mixtures. REQUIRES: the key is there.
base::Result<std::vector<bool>> read_hf_mlp_layer_types(const HfKeys& keys, std::size_t layers);
// The same in Qwen's spelling too: every decoder_sparse_step-th layer, but for those in mlp_only_layers (4). The layers
// that are none get the layer template and the feed-forward width of dense ones.
base::Result<> read_hf_sparse_layers(const HfKeys& keys, const SparseLayerTemplates& layer_templates,
                                     ModelConfig& config);

// num_experts or num_local_experts, of which num_experts_per_tok are chosen, and the width that `width_key` says.
base::Result<> read_hf_experts_chosen(const HfKeys& keys, MoeConfig& moe,
                                      std::string_view width_key = "moe_intermediate_size");

// What a family calls the keys of a mixture as DeepSeek V3 has it, and what it takes for those left out.
struct HfExpertKeys {
  std::string_view experts = "n_routed_experts";    // or num_local_experts, or num_experts
  std::string_view chosen = "num_experts_per_tok";  // which may be the other spelling
  std::string_view shared = "n_shared_experts";
  std::uint32_t shared_absent = 0;
  std::string_view groups = "n_group";
  std::uint32_t groups_absent = 1;
  std::uint32_t groups_used_absent = 0;  // of topk_group; 0: the key is required where there are groups
  std::string_view normed = "norm_topk_prob";
  float scale_absent = 1;
};
// A mixture chosen by sigmoid and selection bias: experts, shared ones, groups, scale.
base::Result<> read_hf_routed_experts(const HfKeys& keys, ModelConfig& config, const HfExpertKeys& names = {},
                                      bool grouped = true);
// The first layers are dense: by mlp_layer_types (5), else first_k_dense_replace.
base::Result<> read_hf_dense_first(const HfKeys& keys, const SparseLayerTemplates& layer_templates,
                                   ModelConfig& config);

// What a family calls the keys of its Mamba-2 mixer.
struct HfMambaKeys {
  std::string_view heads = "mamba_n_heads";
  std::string_view head_dim = "mamba_d_head";  // a number or "auto"
  std::string_view state = "mamba_d_state";
  std::string_view groups = "mamba_n_groups";
  std::uint32_t groups_absent = 1;
  std::string_view taps = "mamba_d_conv";
  std::string_view expand = "mamba_expand";  // d_inner = expand * hidden_size
  std::uint32_t width = 0;                   // d_inner where the family does not derive it so
};
base::Result<> read_hf_mamba(const HfKeys& keys, const HfMambaKeys& names, ModelConfig& config);

}  // namespace llorch::engine::models
