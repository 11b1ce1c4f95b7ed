#include "engine/models/gguf_export/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/join.h"
#include "engine/models/gguf_export/model_keys.h"
#include "engine/models/model.h"
#include "engine/models/registry.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::AttentionSlot;
using plan::DType;
using plan::MlaSlot;
using plan::Opcode;
using plan::WeightKey;

// Which stored tensor fills which slot of the plan; a head that is the embedding table is left out.
std::map<WeightKey, std::uint32_t> tensors_by_key(const CompiledModel& model) {
  std::map<WeightKey, std::uint32_t> tensors;
  std::optional<std::uint32_t> embedding;
  for (const plan::WeightBinding& binding : model.plans.decoder_prefill.weight_bindings) {
    if (binding.key.opcode == Opcode::kEmbedding) embedding = binding.tensor;
    if (binding.key.opcode == Opcode::kLmHead && binding.tensor == embedding) continue;
    tensors.emplace(binding.key, binding.tensor);
  }
  return tensors;
}

class DirectoryExport {
 public:
  DirectoryExport(const io::ModelFiles& files, const Family& family, CompiledModel model)
      : files_(files), family_(family), model_(std::move(model)), by_key_(tensors_by_key(model_)) {}

  Result<ExportModel> run() {
    TRY(write_keys());
    const SlotPresence present = [&](WeightKey key) {
      if (key.opcode == Opcode::kLmHead) key.variant = 0;
      return by_key_.contains(key);
    };
    const WeightNames names(files_, family_);
    for (GgufTensorShape& shape : TRY(gguf_tensors(family_, model_.config, present, &names)))
      out_.tensors.push_back(tensor_of(std::move(shape)));
    note_left_out();
    return std::move(out_);
  }

 private:
  Result<> write_keys() {
    GgufModelKeys keys = gguf_model_keys(family_, model_.config);
    const ModelConfig got = TRY(read_back(family_, keys, model_.config.vocab));
    moves_ = pairs_become_neighbours(model_.config, got);
    KeyDifferences differences = compare(family_, model_.config, got);
    std::ranges::move(keys.lost, std::back_inserter(differences.lost));
    if (moves_ && has_head_norms()) differences.lost.emplace_back("norms of queries and keys whose rows change places");
    if (!differences.lost.empty()) {
      return base::fail(
          base::ErrorCode::kFormatCannotExpress,
          fmt::format("{}: GGUF's architecture {} cannot say all of this model: {}. Use the directory itself",
                      files_.source(), gguf_architecture(family_, model_.config), base::join(differences.lost, "; ")));
    }
    out_.notes = differences.notes;
    out_.metadata = std::move(keys.metadata);
    for (RopeTensor& rope : keys.rope_tensors) {
      ExportTensor tensor{.name = std::move(rope.name), .dims = {rope.values.size()}, .fixed = true, .read = {}};
      tensor.read = [values = std::move(rope.values)](const SlabSink& sink) {
        return sink({DType::kF32, std::as_bytes(std::span(values))});
      };
      out_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  ExportTensor tensor_of(GgufTensorShape shape) const {
    std::vector<BoundTensor> pieces;
    for (const WeightKey& key : shape.slots) pieces.push_back(in_gguf_order(key, model_.tensors[by_key_.at(key)]));
    // Stacked by expert: one slot's rows cannot simply follow another's.
    ASSERT(pieces.size() == 1 || shape.dims.size() <= 2, "{} is a stack of several weights", shape.name);
    ExportTensor tensor{.name = std::move(shape.name),
                        .dims = std::move(shape.dims),
                        .role = shape.role,
                        .stored = pieces.front().stored.dtype,
                        .offset = offset_of(shape.slots.front()),
                        .read = {}};
    tensor.read = read_slabs(std::move(pieces));
    return tensor;
  }

  // Hugging Face's Gemma keeps norms as what is added to one.
  float offset_of(const WeightKey& key) const {
    if (model_.config.norm_offset == 0) return 0;
    const bool is_norm =
        (key.opcode == Opcode::kRmsNorm && key.slot == 0) ||
        (key.opcode == Opcode::kMultiheadAttention && (static_cast<AttentionSlot>(key.slot) == AttentionSlot::kQNorm ||
                                                       static_cast<AttentionSlot>(key.slot) == AttentionSlot::kKNorm));
    return is_norm ? model_.config.norm_offset : 0;
  }

  // No reader of such a file has norms whose elements would have to change places with the rows.
  bool has_head_norms() const {
    return std::ranges::any_of(by_key_, [](const auto& entry) {
      const WeightKey& key = entry.first;
      const auto slot = static_cast<AttentionSlot>(key.slot);
      return key.opcode == Opcode::kMultiheadAttention &&
             (slot == AttentionSlot::kQNorm || slot == AttentionSlot::kKNorm);
    });
  }

  BoundTensor in_gguf_order(const WeightKey& key, BoundTensor tensor) const {
    const std::optional<HeadRows> rows = moves_ ? rotated_rows(key) : std::nullopt;
    return rows ? with_pairs_as_neighbours(std::move(tensor), *rows) : std::move(tensor);
  }

  // The rows of a weight that a rotation turns; nullopt for weights that make no queries or keys.
  std::optional<HeadRows> rotated_rows(const WeightKey& key) const {
    if (key.layer == plan::kNoLayer) return std::nullopt;
    const ModelConfig& config = model_.config;
    const LayerConfig& layer = config.layers[key.layer];
    if (key.opcode == Opcode::kMultiheadAttention) {
      const std::uint32_t d = config.attention.d_qk;
      const std::uint32_t dims = layer.rope == kNoRope ? d : config.ropes[layer.rope].dims;
      switch (static_cast<AttentionSlot>(key.slot)) {
        case AttentionSlot::kQ:
        case AttentionSlot::kQBias: return HeadRows{.heads = layer.heads, .head_rows = d, .first = 0, .dims = dims};
        case AttentionSlot::kK:
        case AttentionSlot::kKBias: return HeadRows{.heads = layer.kv_heads, .head_rows = d, .first = 0, .dims = dims};
        default: return std::nullopt;
      }
    }
    if (key.opcode != Opcode::kMlaAttention) return std::nullopt;
    const MlaConfig& mla = config.mla;
    switch (static_cast<MlaSlot>(key.slot)) {
      case MlaSlot::kQ:
      case MlaSlot::kQB:
        return HeadRows{
            .heads = layer.heads, .head_rows = mla.d_nope + mla.d_rope, .first = mla.d_nope, .dims = mla.d_rope};
      case MlaSlot::kKvA:
      case MlaSlot::kKvABias:
        return HeadRows{.heads = 1, .head_rows = mla.kv_lora + mla.d_rope, .first = mla.kv_lora, .dims = mla.d_rope};
      default: return std::nullopt;
    }
  }

  void note_left_out() {
    std::set<const io::FileTensor*> used;
    for (const BoundTensor& tensor : model_.tensors) {
      for (const TensorPart& part : tensor.parts) used.insert({part.source, part.scales});
    }
    const auto left =
        std::ranges::count_if(files_.tensors(), [&](const io::FileTensor& t) { return !used.contains(&t); });
    if (left != 0) {
      out_.notes.push_back(
          fmt::format("{} stored tensor(s) that the text model does not use are left out (a vision tower, prediction "
                      "heads, buffers)",
                      left));
    }
  }

  const io::ModelFiles& files_;
  const Family& family_;
  const CompiledModel model_;
  const std::map<WeightKey, std::uint32_t> by_key_;
  bool moves_ = false;  // rows of queries and keys
  ExportModel out_;
};

// Everything a GGUF file holds, as it is. What the plans bind gets its role, the rest stays untouched.
Result<ExportModel> export_gguf(const io::ModelFiles& files) {
  const CompiledModel model = TRY(compile_model(files, DType::kF16));
  const std::map<WeightKey, std::uint32_t> by_key = tensors_by_key(model);
  const bool head_is_stored = by_key.contains({.opcode = Opcode::kLmHead});
  std::map<const io::FileTensor*, TensorRole> roles;
  for (const auto& [key, number] : by_key) {
    for (const TensorPart& part : model.tensors[number].parts)
      roles.emplace(part.source, tensor_role(key, head_is_stored));
  }
  ExportModel out;
  for (const io::GgufEntry& entry : files.gguf()->metadata()) {
    const bool of_the_file = entry.key.starts_with("split.") || entry.key == "general.alignment";
    if (!of_the_file) out.metadata.put(entry.key, entry.value);
  }
  for (const io::FileTensor& stored : files.tensors()) {
    const auto role = roles.find(&stored);
    ExportTensor tensor{.name = std::string(stored.name),
                        .dims = std::vector<std::uint64_t>(stored.shape().rbegin(), stored.shape().rend()),
                        .role = role == roles.end() ? TensorRole::kFloats : role->second,
                        .fixed = role == roles.end(),
                        .stored = *io::dtype_of(stored.type),
                        .read = {}};
    BoundTensor whole;
    whole.name = tensor.name;
    whole.stored.dtype = tensor.stored;
    const std::uint64_t cols = tensor.dims[0], rows = stored.elements_count() / cols;
    if (std::max(cols, rows) > std::numeric_limits<std::uint32_t>::max()) {
      return base::fail(base::ErrorCode::kFormatCannotExpress,
                        fmt::format("{}: tensor {} is {}; at most 2^32 - 1 rows and as many columns are copied",
                                    files.source(), stored.name, io::describe(stored)));
    }
    whole.stored.rank = 2;
    whole.stored.shape = {static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(cols)};
    whole.parts = {{.source = &stored, .counts = {1, rows, cols}, .strides = {0, cols, 1}}};
    tensor.read = read_slabs({std::move(whole)});
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace

std::uint64_t ExportTensor::elements_count() const {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : dims) count *= dim;
  return count;
}

Result<ExportModel> export_model(const io::ModelFiles& files) {
  if (files.gguf() != nullptr) return export_gguf(files);
  const Family* family = TRY(find_family(files));
  if (family->gguf.empty()) {
    return base::fail(base::ErrorCode::kFormatCannotExpress,
                      fmt::format("{}: the family {} has no architecture in GGUF", files.source(), family->name));
  }
  CompiledModel model = TRY(compile_model(files, *family, DType::kF16));
  if (model.config.pooling != plan::Pooling::kNone) {
    return base::fail(base::ErrorCode::kFormatCannotExpress,
                      fmt::format("{}: a model of embeddings or scores; how it pools its rows is not written as GGUF",
                                  files.source()));
  }
  return DirectoryExport(files, *family, std::move(model)).run();
}

}  // namespace llorch::engine::models
