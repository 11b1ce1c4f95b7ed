#pragma once
// The metadata of a GGUF file by meaning (docs/gguf.md of ggml, and the converter's names).
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/config/rules.h"

namespace llorch::engine::models {

// Typed reads of keys that carry the architecture as prefix. What is asked for is noted: unread() has the rest. Errors: CONFIG_KEY_MISSING, CONFIG_KEY_INVALID.
class GgufKeys {
 public:
  static base::Result<GgufKeys> of(const io::ModelFiles& files);

  const io::ModelFiles& files() const { return files_; }
  const io::GgufFile& file() const { return *files_.gguf(); }
  // The whole name of a key, which counts as asked for.
  std::string key(std::string_view name) const;
  bool has(std::string_view name) const { return file().contains(key(name)); }

  base::Result<std::uint32_t> count(std::string_view name, std::uint32_t value_max = kDimensionMax) const;
  base::Result<std::uint32_t> count_or(std::string_view name, std::uint32_t absent) const;
  base::Result<std::uint32_t> number_or(std::string_view name, std::uint32_t absent) const;  // 0 allowed
  base::Result<float> real_or(std::string_view name, float absent) const;
  base::Result<bool> flag_or(std::string_view name, bool absent) const;
  base::Result<std::string_view> text_or(std::string_view name, std::string_view absent) const;
  // One number for all layers or an array with one each; 0 allowed.
  base::Result<std::vector<std::uint32_t>> per_layer(std::string_view name, std::size_t layers,
                                                     std::uint32_t absent) const;
  KeyNames names() const;
  // The keys with the prefix that nobody asked for, in file order.
  std::vector<const io::GgufEntry*> unread() const;
  const std::string& prefix() const { return prefix_; }

 private:
  GgufKeys(const io::ModelFiles& files, std::string prefix) : files_(files), prefix_(std::move(prefix)) {}
  const io::ModelFiles& files_;
  std::string prefix_;  // "llama."
  mutable std::set<std::string, std::less<>> asked_;
};

// Architecture, name, context, width, number of layers, epsilon of the norms.
base::Result<ModelConfig> read_gguf_basics(const GgufKeys& keys);

// block_count counts the layers that predict further tokens, which are not run: nextn_predict_layers of them at the end.
base::Result<> drop_gguf_prediction_layers(const GgufKeys& keys, ModelConfig& config);

// Head counts of all layers (0 kv heads: a layer without attention), head sizes, rope_layout; one rotation for every layer
// with attention, none where the layout is. `scale` as in attention.scale, else 1/sqrt(d_qk).
base::Result<> read_gguf_attention(const GgufKeys& keys, plan::RopeLayout layout, ModelConfig& config);

// The model's main rotation: plain, linear, yarn; rope_freqs.weight (llama3) and rope_factors_{short,long}.weight (longrope).
// `original_absent`: the context that factors stretch, of families whose files do not name it; 0: they must.
base::Result<RopeConfig> read_gguf_rope(const GgufKeys& keys, std::uint32_t dims, std::uint32_t original_absent = 0);

// feed_forward_length, one or per layer.
base::Result<> read_gguf_ffn(const GgufKeys& keys, ModelConfig& config);

// All of the above: the keys every decoder of plain attention and dense feed-forward shares.
base::Result<ModelConfig> read_gguf_dense(const GgufKeys& keys, plan::RopeLayout layout);

// Counts, sizes, gate, scale of a mixture; no groups, no shared expert. REQUIRES: expert_count is there.
base::Result<> read_gguf_moe(const GgufKeys& keys, ModelConfig& config);

// The same with shared experts and groups: expert_shared_count or their width together, expert_group_count,
// expert_group_used_count. Files may leave out the gate.
base::Result<> read_gguf_routed_experts(const GgufKeys& keys, ModelConfig& config,
                                        plan::MoeGate gate_absent = plan::MoeGate::kSigmoid);
// The first layers are dense: leading_dense_block_count.
base::Result<> read_gguf_dense_first(const GgufKeys& keys, const SparseLayerTemplates& layer_templates,
                                     ModelConfig& config);

// attention.sliding_window on the layers its pattern names: layer N is global iff N % p == p - 1, or by a list of flags.
struct GgufWindowRules {
  std::uint32_t window_absent = 0;  // 0 = none
  std::uint32_t period_absent = 1;
};
base::Result<> read_gguf_windows(const GgufKeys& keys, const GgufWindowRules& rules, ModelConfig& config);

base::Result<> read_gguf_mamba(const GgufKeys& keys, ModelConfig& config);

}  // namespace llorch::engine::models
