#include "engine/models/weights/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <set>
#include <vector>

#include "engine/io/quant/half.h"
#include "engine/models/plan_compiler/opcode_map.h"
#include "engine/models/plan_compiler/params.h"

namespace llorch::engine::models {
namespace {

using plan::Opcode;
using plan::WeightKey;

constexpr std::size_t kNamesShownMax = 5;
constexpr std::uint64_t kBiasBytesMax = 4U << 20;  // a million outputs

// What Hugging Face directories hold beside a text model: rotation buffers of old files, and the towers of models that also see.
constexpr std::array<std::string_view, 2> kHfBuffers{"layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"};
// Layers that predict further tokens, where they stand beside the model.
constexpr std::array<std::string_view, 2> kHfPredictors{"^mtp.*", "^model.mtp.*"};
constexpr std::array<std::string_view, 12> kHfTowers{"^vision_model.*",
                                                     "^vision_tower.*",
                                                     "^model.vision_tower.*",
                                                     "^model.visual.*",
                                                     "^visual.*",
                                                     "^multi_modal_projector.*",
                                                     "^model.multi_modal_projector.*",
                                                     "^model.embed_vision.*",
                                                     "^model.audio_tower.*",
                                                     "^model.embed_audio.*",
                                                     "^audio_encoder.*",
                                                     "^speech_embeddings.*"};

std::string first_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesShownMax) text += fmt::format(" and {} more", names.size() - kNamesShownMax);
  return text;
}

// GPTQ's first library gave every matrix a bias, of zeros where the model has none: adding it changes nothing.
base::Result<bool> is_zero_bias(const io::FileTensor& tensor) {
  if (!tensor.name.ends_with(".bias") || tensor.rank != 1 || tensor.data.size() > kBiasBytesMax) return false;
  const std::vector<std::byte> bytes = TRY(tensor.data.read_all());
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string tensor_name(std::string_view pattern, std::uint32_t layer, std::uint32_t expert) {
  std::string name;
  std::uint32_t number = layer;
  for (std::size_t at = pattern.find("{}"); at != std::string_view::npos; at = pattern.find("{}")) {
    name += fmt::format("{}{}", pattern.substr(0, at), number);
    pattern.remove_prefix(at + 2);
    number = expert;
  }
  return name += pattern;
}

std::vector<std::string> joined_names(std::string_view pattern) {
  const std::size_t open = pattern.find('['), close = pattern.find(']');
  std::vector<std::string> names;
  if (open == pattern.npos || close == pattern.npos) return {std::string(pattern)};
  for (std::string_view parts = pattern.substr(open + 1, close - open - 1);;) {
    const std::size_t end = std::min(parts.find('|'), parts.size());
    names.push_back(fmt::format("{}{}{}", pattern.substr(0, open), parts.substr(0, end), pattern.substr(close + 1)));
    if (end == parts.size()) return names;
    parts.remove_prefix(end + 1);
  }
}

bool matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern == "*") return true;
    if (pattern.starts_with("{}")) {
      if (name.empty() || !is_digit(name.front())) return false;
      while (!name.empty() && is_digit(name.front())) name.remove_prefix(1);
      pattern.remove_prefix(2);
      continue;
    }
    if (name.empty() || name.front() != pattern.front()) return false;
    name.remove_prefix(1);
    pattern.remove_prefix(1);
  }
  return name.empty();
}

bool is_of_another_cache(const ModelConfig& config, const WeightKey& key) {
  using plan::AttentionSlot;
  if (key.opcode != Opcode::kMultiheadAttention || key.variant != 0 || key.layer >= config.layers.size() ||
      config.layers[key.layer].cache_of == kOwnCache)
    return false;
  switch (static_cast<AttentionSlot>(key.slot)) {
    case AttentionSlot::kK:
    case AttentionSlot::kV:
    case AttentionSlot::kKNorm:
    case AttentionSlot::kKBias:
    case AttentionSlot::kVBias: return true;
    default: return false;
  }
}

base::Result<float> read_number(const io::ModelFiles& files, std::string_view name) {
  const io::FileTensor* tensor = files.find_tensor(name);
  if (tensor == nullptr) return base::fail(base::ErrorCode::kMissingWeight, fmt::format("{} is missing", name));
  const bool is_f32 = tensor->type == io::StoredType::kF32;
  if (tensor->elements_count() != 1 || (!is_f32 && tensor->type != io::StoredType::kBF16)) {
    return base::fail(base::ErrorCode::kWeightShapeMismatch,
                      fmt::format("{} is {}; it must be one number in F32 or BF16", name, io::describe(*tensor)));
  }
  std::array<std::byte, 4> bytes{};
  TRY(tensor->data.read(0, std::span(bytes).first(is_f32 ? 4 : 2)));
  std::uint32_t bits = 0;
  std::memcpy(&bits, bytes.data(), sizeof(bits));
  return is_f32 ? std::bit_cast<float>(bits) : io::bf16_to_f32(static_cast<std::uint16_t>(bits));
}

// What a walk over all layers finds.
struct WeightNames::Census {
  std::set<std::string, std::less<>> known;
  std::vector<std::string> missing;
  std::vector<std::string> gaps;  // where a stack ends in the files before it does in the configuration
};

WeightNames::WeightNames(const io::ModelFiles& files, const Family& family)
    : files_(files), family_(family), is_hf_(files.format() == io::ModelFormat::kHuggingFace) {
  if (!is_hf_) return;
  for (std::string_view prefix : family.hf_prefixes) {
    prefix_ = prefix;
    if (find({.opcode = Opcode::kEmbedding})) return;
  }
  if (!family.hf_prefixes.empty()) prefix_ = family.hf_prefixes.front();
}

base::Result<WeightNames> WeightNames::of_predictor(const ModelConfig& config) const {
  const auto refuse = [&](std::string_view why) {
    return base::fail(base::ErrorCode::kModelIncompatible,
                      fmt::format("{}: {}; choose another way to propose tokens", files_.source(), why));
  };
  if (family_.predictor == nullptr)
    return refuse(fmt::format("layers that predict further tokens are not run of architecture {}", family_.name));
  WeightNames names = *this;
  const bool is_beside = is_hf_ && !family_.predictor->hf_prefix.empty();
  names.one_layer_ = {.hf_prefix = is_beside ? std::string(family_.predictor->hf_prefix) : prefix_,
                      .number = is_beside ? 0 : static_cast<std::uint32_t>(config.layers.size())};
  const auto input = static_cast<std::uint8_t>(plan::PredictorInputSlot::kWeight);
  if (!names.find({.opcode = Opcode::kPredictorInput, .slot = input}))
    return refuse("no layer of it predicts further tokens");
  return names;
}

std::string WeightNames::full_name(std::string_view pattern, std::uint32_t layer, std::uint32_t expert) const {
  if (one_layer_) {
    layer = one_layer_->number;
    if (is_hf_ && pattern.starts_with("layers.")) return one_layer_->hf_prefix + tensor_name(pattern, layer, expert);
  }
  if (pattern.starts_with('^')) return tensor_name(pattern.substr(1), layer, expert);
  return (is_hf_ ? prefix_ : std::string()) + tensor_name(pattern, layer, expert);
}

bool WeightNames::exists(const Source& source, const std::string& name) const {
  if (source.load == Load::kJoined) {
    return std::ranges::all_of(joined_names(name),
                               [&](const std::string& one) { return files_.find_tensor(one) != nullptr; });
  }
  return files_.find_tensor(source.load == Load::kMxfp4Rows ? name + "_blocks" : name) != nullptr;
}

std::optional<FoundWeight> WeightNames::find(const WeightKey& key) const {
  for (const WeightRow& row : rows_of(key.opcode)) {
    if (row.opcode != key.opcode || row.slot != key.slot || row.variant != key.variant) continue;
    const Source& source = source_of(row);
    if (source.name.empty()) continue;
    std::string name = full_name(source.name, key.layer);
    if (exists(source, name)) return FoundWeight{&source, std::move(name)};
  }
  return std::nullopt;
}

base::Result<const io::FileTensor*> WeightNames::embedding() const {
  if (const auto found = find({.opcode = Opcode::kEmbedding})) return files_.find_tensor(found->name);
  for (const WeightRow& row : family_.weights) {
    if (row.opcode != Opcode::kEmbedding) continue;
    return base::fail(base::ErrorCode::kMissingWeight, fmt::format("{}: no tensor {}; the file is not a complete model",
                                                                   files_.source(), full_name(source_of(row).name, 0)));
  }
  return base::fail(base::ErrorCode::kMissingWeight, fmt::format("family {} names no embedding table", family_.name));
}

void WeightNames::count_op(const LayerOp& op, std::uint16_t layer, const ModelConfig& config, Census& census) const {
  const Opcode opcode = opcode_of(op.type);
  std::set<std::uint8_t> seen;  // slots whose first row is judged; further rows are other ways to fill them
  for (const WeightRow& row : rows_of(opcode)) {
    const Source& source = source_of(row);
    if (row.opcode != opcode || row.variant != op.variant || source.name.empty()) continue;
    // Of the decoder: a tower fills its slots as its family says.
    const auto names_slot = [&](const NamedSlot& named) {
      return op.variant == 0 && named.opcode == opcode && named.slot == row.slot;
    };
    if (std::ranges::any_of(config.forbidden, names_slot)) continue;
    std::uint32_t count = source.load == Load::kStack ? config.moe.experts : 1;
    if (source.load == Load::kHeads) {
      const bool of_queries = row.slot == static_cast<std::uint8_t>(plan::AttentionSlot::kQNorm);
      count = of_queries ? config.layers[layer].heads : config.layers[layer].kv_heads;
    }
    const WeightKey key{.layer = layer, .opcode = opcode, .slot = row.slot, .variant = row.variant};
    for (std::uint32_t e = 0; e < count; ++e) {
      std::string name = full_name(source.name, layer, e);
      // The walk is as long as what the files hold, not as what the configuration says.
      if (e > 0 && files_.find_tensor(name) == nullptr) {
        const auto found = find(key);
        if (found && found->source == &source) census.gaps.push_back(name);
        break;
      }
      if (source.load == Load::kMxfp4Rows) {
        census.known.insert(name + "_scales");
        name += "_blocks";
      }
      for (const std::string& one : joined_names(name)) {
        const io::FileTensor* tensor = files_.find_tensor(one);
        const bool is_fp8 =
            tensor != nullptr && (tensor->type == io::StoredType::kF8_E4M3 || tensor->type == io::StoredType::kF8_E5M2);
        if (is_fp8) census.known.insert(one + "_scale_inv");
        census.known.insert(one);
      }
      for (std::uint32_t frame = 1; source.load == Load::kFrames && frame < config.vision.temporal; ++frame)
        census.known.insert(fmt::format("{}.{}", name, frame));
    }
    const bool demanded = std::ranges::any_of(config.demanded, names_slot);
    if (!seen.insert(row.slot).second || !(row.required || demanded)) continue;
    if (!is_of_another_cache(config, key) && !find(key)) census.missing.push_back(full_name(source.name, layer));
  }
}

WeightNames::Purpose WeightNames::purpose_of(std::string_view name, const ModelConfig& config) const {
  const auto in = [&](std::span<const std::string_view> patterns) {
    return std::ranges::any_of(patterns, [&](std::string_view pattern) {
      const bool absolute = !is_hf_ || pattern.starts_with('^');
      if (pattern.starts_with('^')) pattern.remove_prefix(1);
      return matches(absolute ? std::string(pattern) : prefix_ + std::string(pattern), name);
    });
  };
  if (is_hf_ ? in(kHfBuffers) || in(family_.hf_claimed) : in(family_.gguf_claimed) || in(family_.gguf_ignored))
    return Purpose::kRead;
  if (is_hf_ && family_.ignores_layers_past_end && in(kHfPredictors)) return Purpose::kPrediction;
  if (is_hf_ && config.vision.depth == 0 && in(kHfTowers)) return Purpose::kTower;
  const std::string layers = is_hf_ ? prefix_ + "layers." : "blk.";
  if (!family_.ignores_layers_past_end || !name.starts_with(layers)) return Purpose::kNone;
  std::uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
  return error == std::errc() && layer >= config.layers.size() ? Purpose::kPrediction : Purpose::kNone;
}

void WeightNames::count_tower(const Tower& tower, const ModelConfig& config, Census& census) const {
  for (const LayerOp& op : tower.before) count_op(op, plan::kNoLayer, config, census);
  for (std::uint32_t block = 0; block < config.vision.depth; ++block) {
    for (const LayerOp& op : tower.block) count_op(op, static_cast<std::uint16_t>(block), config, census);
  }
  for (const VisionConfig::Extraction& extraction : config.vision.extractions)
    count_op(deepstack_extract(), static_cast<std::uint16_t>(extraction.number), config, census);
  for (const LayerOp& op : tower.after) count_op(op, plan::kNoLayer, config, census);
}

void WeightNames::count_predictor(const ModelConfig& config, Census& census) const {
  for (const LayerOp& op : {predictor_input(), norm(NormVariant::kPredictor)})
    count_op(op, plan::kNoLayer, config, census);
  for (const LayerOp& op : family_.layer_templates[predictor_config(config).layers[0].layer_template])
    count_op(op, 0, config, census);
}

base::Result<std::vector<std::string>> WeightNames::check(const ModelConfig& config,
                                                          const WeightNames* predictor) const {
  Census census;
  for (const LayerOp& op : family_.before) count_op(op, plan::kNoLayer, config, census);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    for (const LayerOp& op : family_.layer_templates[config.layers[layer].layer_template])
      count_op(op, static_cast<std::uint16_t>(layer), config, census);
  }
  for (const LayerOp& op : family_.after) count_op(op, plan::kNoLayer, config, census);
  for (const DenseConfig& layer : config.dense) count_op(dense(layer.number), plan::kNoLayer, config, census);
  if (config.pooling != plan::Pooling::kNone)  // what has no use for a head needs none
    std::erase_if(census.missing, [](const std::string& name) { return name.ends_with("lm_head.weight"); });
  if (config.vision.depth != 0) count_tower(*family_.tower, config, census);
  if (predictor != nullptr) predictor->count_predictor(config, census);
  const auto missing = [&](const std::vector<std::string>& names) {
    return base::fail(base::ErrorCode::kMissingWeight, fmt::format("{}: {} required tensor(s) are missing: {}",
                                                                   files_.source(), names.size(), first_names(names)));
  };
  if (!census.missing.empty()) return missing(census.missing);
  std::vector<std::string> unclaimed;
  std::array<std::size_t, 4> left{};  // by purpose
  for (const io::FileTensor& tensor : files_.tensors()) {
    if (census.known.contains(tensor.name)) continue;
    const Purpose purpose = purpose_of(tensor.name, config);
    ++left[static_cast<std::size_t>(purpose)];
    if (purpose == Purpose::kNone && !TRY(is_zero_bias(tensor))) unclaimed.emplace_back(tensor.name);
  }
  std::vector<std::string> notes;
  if (const std::size_t n = left[static_cast<std::size_t>(Purpose::kPrediction)]; n != 0)
    notes.push_back(fmt::format("{} tensor(s) of layers that predict further tokens are not used", n));
  if (const std::size_t n = left[static_cast<std::size_t>(Purpose::kTower)]; n != 0)
    notes.push_back(fmt::format("{} tensor(s) of towers for images or sound are not used: a text model", n));
  if (unclaimed.empty()) return notes;
  if (!census.gaps.empty()) return missing(census.gaps);
  return base::fail(base::ErrorCode::kUnclaimedWeight,
                    fmt::format("{}: architecture {} with {} layers has no use for {} tensor(s): {}", files_.source(),
                                family_.name, config.layers.size(), unclaimed.size(), first_names(unclaimed)));
}

}  // namespace llorch::engine::models
