#include "engine/models/synth/synth_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/join.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/gguf_export/tensor_list.h"
#include "engine/models/registry.h"
#include "engine/models/synth/random_tensor.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::AttentionSlot;
using plan::MambaSlot;
using plan::MlaSlot;
using plan::MoeSlot;
using plan::Opcode;
using plan::WeightKey;

Result<const Family*> family_of(const std::string& architecture) {
  io::GgufWriter writer;
  writer.put("general.architecture", std::string_view(architecture));
  const std::vector<std::byte> bytes = TRY(writer.to_bytes());
  return find_family(TRY(io::ModelFiles::from_gguf(TRY(io::GgufFile::parse(bytes, "model synth")))));
}

// Which of the weights that a family may do without its models have.
class Presence {
 public:
  Presence(const Family& family, const ModelConfig& config, bool tied)
      : family_(family), config_(config), tied_(tied) {}

  bool operator()(const WeightKey& key) const {
    const auto is = [&](auto slot) { return key.slot == static_cast<std::uint8_t>(slot); };
    if (key.opcode == Opcode::kLmHead && is(plan::LmHeadSlot::kWeight)) return !tied_;
    const auto row = std::ranges::find_if(family_.weights, [&](const WeightRow& r) {
      return r.opcode == key.opcode && r.slot == key.slot && r.variant == key.variant && !r.gguf.name.empty();
    });
    if (row == family_.weights.end()) return false;
    if (row->required) return true;
    switch (key.opcode) {
      case Opcode::kMlaAttention:
        if (is(MlaSlot::kQ)) return config_.mla.q_lora == 0;
        return (is(MlaSlot::kQA) || is(MlaSlot::kQANorm) || is(MlaSlot::kQB)) && config_.mla.q_lora != 0;
      case Opcode::kMoe:
        if (is(MoeSlot::kSelectionBias)) return config_.moe.gate == plan::MoeGate::kSigmoid;
        return (is(MoeSlot::kSharedGate) || is(MoeSlot::kSharedUp) || is(MoeSlot::kSharedDown)) &&
               config_.moe.ffn_shared != 0;
      case Opcode::kMultiheadAttention:
        if (is(AttentionSlot::kOBias)) return family_.name == "gpt_oss";
        return (is(AttentionSlot::kQBias) || is(AttentionSlot::kKBias) || is(AttentionSlot::kVBias)) &&
               (family_.name == "qwen2" || family_.name == "gpt_oss");
      case Opcode::kMambaMixer: return is(MambaSlot::kConvBias);
      default: return false;
    }
  }

 private:
  const Family& family_;
  const ModelConfig& config_;
  bool tied_;
};

// Scales of the usual initialisations: products keep a row's magnitude; branches are small against the residual stream.
class Scales {
 public:
  Scales(const ModelConfig& config, bool tied) : config_(config), tied_(tied) {}

  Distribution of(const WeightKey& key, std::uint64_t fan_in) const {
    const auto is = [&](auto slot) { return key.slot == static_cast<std::uint8_t>(slot); };
    const plan::SlotSpec& slot = (*plan::weight_slots(key.opcode))[key.slot];
    const float into = 1 / std::sqrt(static_cast<float>(fan_in));
    const float branch = into / std::sqrt(2.0F * static_cast<float>(config_.layers.size()));
    switch (key.opcode) {
      case Opcode::kRmsNorm: return kNorm;
      case Opcode::kEmbedding:
        return {.spread = tied_ ? 1 / std::sqrt(static_cast<float>(config_.width)) : 1 / config_.embedding_scale};
      case Opcode::kLmHead: return {.spread = 2 * into};
      case Opcode::kMambaMixer: return of_mixer(key, into, branch);
      case Opcode::kMultiheadAttention:
        if (is(AttentionSlot::kQNorm) || is(AttentionSlot::kKNorm)) return kNorm;
        if (is(AttentionSlot::kSinks)) return {};
        if (is(AttentionSlot::kO)) return {.spread = branch};
        break;
      case Opcode::kMlaAttention:
        if (is(MlaSlot::kQANorm) || is(MlaSlot::kKvANorm)) return kNorm;
        if (is(MlaSlot::kKB)) return {.spread = 1 / std::sqrt(static_cast<float>(config_.mla.kv_lora))};
        if (is(MlaSlot::kO)) return {.spread = branch};
        break;
      case Opcode::kMoe:
        if (is(MoeSlot::kDown) || is(MoeSlot::kSharedDown)) return {.spread = branch};
        break;
      case Opcode::kSwiglu:
        if (is(plan::FfnSlot::kDown)) return {.spread = branch};
        break;
      case Opcode::kShortconv:
        if (is(plan::ShortconvSlot::kConvWeight)) return {.spread = into};
        if (is(plan::ShortconvSlot::kOutProj)) return {.spread = branch};
        break;
      default: break;
    }
    const bool is_bias = slot.use == plan::WeightUse::kVector;
    return {.spread = is_bias ? 0.02F : into};
  }

 private:
  static constexpr Distribution kNorm{.mean = 1, .spread = 0.1F};

  // As Mamba-2 begins: decays of 1 to 16, time steps of 0.001 to 0.1 through the inverse of softplus.
  static Distribution of_mixer(const WeightKey& key, float into, float branch) {
    switch (static_cast<MambaSlot>(key.slot)) {
      case MambaSlot::kA: return {.mean = -8.5F, .spread = 7.5F, .even = true};
      case MambaSlot::kDtBias: return {.mean = -4.6F, .spread = 2.3F, .even = true};
      case MambaSlot::kDSkip:
      case MambaSlot::kNorm: return kNorm;
      case MambaSlot::kConvWeight:
      case MambaSlot::kInProj: return {.spread = into};
      case MambaSlot::kOutProj: return {.spread = branch};
      default: return {.spread = 0.02F};
    }
  }

  const ModelConfig& config_;
  bool tied_;
};

// SPM: every byte is a token, so any text can be spelled; the rest of the vocabulary only fills the table.
void put_vocabulary(std::uint32_t vocab, io::GgufMetadata& metadata) {
  enum : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> kinds{kUnknown, kControl, kControl};
  for (unsigned byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  kinds.resize(tokens.size(), kByte);
  while (tokens.size() < vocab) tokens.push_back(fmt::format("\xE2\x96\x81w{}", tokens.size()));
  kinds.resize(tokens.size(), kNormal);
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<float>(i));
  metadata.put("tokenizer.ggml.model", std::string("llama"));
  metadata.put("tokenizer.ggml.pre", std::string("default"));
  metadata.put("tokenizer.ggml.tokens", std::move(tokens));
  metadata.put("tokenizer.ggml.scores", std::move(scores));
  metadata.put("tokenizer.ggml.token_type", std::move(kinds));
  metadata.put("tokenizer.ggml.unknown_token_id", 0U);
  metadata.put("tokenizer.ggml.bos_token_id", 1U);
  metadata.put("tokenizer.ggml.eos_token_id", 2U);
  metadata.put("tokenizer.ggml.add_bos_token", true);
  metadata.put("tokenizer.ggml.add_space_prefix", false);
}

// "blk.7.attn_q.weight" as "blk.attn_q.weight".
std::string without_layer(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  return "blk" + name.substr(name.find('.', 4));
}

}  // namespace

Result<ExportModel> synth_model(const SynthRequest& request) {
  const Family* family = TRY(family_of(request.architecture));
  SynthConfig wanted = TRY(synth_config(*family, request.architecture, request.shape));
  if (wanted.config.vocab < kSynthVocabMin) {
    return base::fail(
        base::ErrorCode::kInvalidParams,
        fmt::format("--vocab must be at least {}: the three special tokens and one per byte", kSynthVocabMin));
  }
  GgufModelKeys keys = gguf_model_keys(*family, wanted.config);
  const ModelConfig config = TRY(read_back(*family, keys, wanted.config.vocab));
  // A shape leaves these to its architecture.
  wanted.config.norm_kind = config.norm_kind;
  wanted.config.attention.rope_layout = config.attention.rope_layout;
  wanted.config.attention.qk_norm = config.attention.qk_norm;
  wanted.config.attention.gate = config.attention.gate;
  const KeyDifferences differences = compare(*family, wanted.config, config);
  if (!differences.lost.empty()) {
    return base::fail(
        base::ErrorCode::kInvalidParams,
        fmt::format("architecture {} cannot have {}", request.architecture, base::join(differences.lost, "; ")));
  }
  ExportModel out;
  out.metadata = std::move(keys.metadata);
  out.metadata.put("general.type", std::string("model"));
  out.metadata.put("general.name", wanted.config.name);
  put_vocabulary(config.vocab, out.metadata);
  const Scales scales(config, wanted.tied);
  std::map<std::pair<std::string, std::vector<std::uint64_t>>, std::size_t> first_of;
  for (GgufTensorShape& shape : TRY(gguf_tensors(*family, config, Presence(*family, config, wanted.tied)))) {
    ExportTensor tensor{.name = std::move(shape.name), .dims = std::move(shape.dims), .role = shape.role, .read = {}};
    tensor.read = random_tensor(request.seed, tensor.name, tensor.elements_count(),
                                scales.of(shape.slots.front(), tensor.dims[0]));
    if (request.repeat_layers) {
      const auto first = first_of.try_emplace({without_layer(tensor.name), tensor.dims}, out.tensors.size()).first;
      if (first->second != out.tensors.size()) {
        tensor.same_as = first->second;
        tensor.read = out.tensors[first->second].read;
      }
    }
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace llorch::engine::models
