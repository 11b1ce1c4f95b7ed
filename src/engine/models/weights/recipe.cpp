#include "engine/models/weights/recipe.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/join.h"
#include "engine/models/weights/f8_blocks.h"

namespace llorch::engine::models {
namespace {

using base::ErrorCode;
using base::Result;
using io::FileTensor;
using io::StoredType;
using plan::DType;
using plan::ParamBlock;
using plan::SlotSpec;

using Shape = std::vector<std::uint64_t>;

// Values per block of MXFP4, and its bytes of nibbles.
constexpr std::uint64_t kMxfp4Values = 32;
constexpr std::uint64_t kMxfp4Bytes = 16;

Shape shape_of(const SlotSpec& slot, const ParamBlock& params) {
  Shape shape;
  for (std::uint8_t d = 0; d < slot.rank; ++d) {
    const auto value = plan::dim_value(slot.dims[d], params);
    ASSERT(value.has_value(), "slot {} of {} has a dimension without a value", slot.name,
           plan::opcode_name(params.opcode));
    shape.push_back(*value);
  }
  return shape;
}

std::uint64_t product(std::span<const std::uint64_t> shape) {
  std::uint64_t count = 1;
  for (std::uint64_t n : shape) count *= n;
  return count;
}

class Builder {
 public:
  Builder(const WeightNames& names, const FoundWeight& found, const plan::WeightKey& key, const ParamBlock& params)
      : names_(names),
        found_(found),
        source_(*found.source),
        key_(key),
        params_(params),
        slots_(*plan::weight_slots(params.opcode)),
        slot_(slots_[key.slot]),
        shape_(shape_of(slot_, params)),
        row_axis_(slot_.use == plan::WeightUse::kVector ? shape_.size() - 1 : shape_.size() - 2) {}

  bool is_matrix() const { return slot_.use != plan::WeightUse::kVector; }
  std::string name() const {
    const bool as_stored = source_.load == Load::kWhole || source_.load == Load::kReshaped;
    if (source_.load == Load::kLayerRows) return fmt::format("{}:{}", found_.name, key_.layer);
    const bool numbered = source_.load == Load::kStack || source_.load == Load::kHeads;
    const std::string base = numbered ? names_.full_name(stack_pattern(), key_.layer) : found_.name;
    return as_stored || numbered ? base : fmt::format("{}:{}", base, slot_.name);
  }

  Result<BoundTensor> build() {
    tensor_.name = name();
    tensor_.stored.rank = static_cast<std::uint8_t>(shape_.size());
    for (std::size_t d = 0; d < shape_.size(); ++d) tensor_.stored.shape[d] = static_cast<std::uint32_t>(shape_[d]);
    TRY(add_parts());
    return std::move(tensor_);
  }

 private:
  std::string stack_pattern() const {
    std::string pattern(source_.name);
    const std::size_t second = pattern.find("{}", pattern.find("{}") + 2);
    return pattern.replace(second, 2, "*");
  }

  Result<> add_parts() {
    switch (source_.load) {
      case Load::kWhole: return add_whole(found_.name, shape_);
      case Load::kReshaped:
      case Load::kNegExp:
      case Load::kOverRoot: return add_reshaped();
      case Load::kNumbers: return add_numbers();
      case Load::kStack: return add_stack();
      case Load::kHeads: return add_heads();
      case Load::kRows:
      case Load::kInterleavedRows: return add_rows(false);
      case Load::kTransposedRows:
      case Load::kTransposedInterleaved: return add_rows(true);
      case Load::kRowsEitherWay: return add_rows(TRY(stored_transposed()));
      case Load::kHeadRows: return add_turns();
      case Load::kKeyGroups: return add_groups(plan::param_as<plan::AttentionParams>(params_).kv_heads);
      case Load::kPieces: return add_pieces();
      case Load::kDeltaGroups: return add_delta_groups();
      case Load::kHeadKeys:
      case Load::kHeadValues: return add_head_rows();
      case Load::kMxfp4Rows: return add_mxfp4();
      case Load::kTokenRows: return add_token_rows();
      case Load::kJoined: return add_joined();
      case Load::kLayerRows: return add_layer_rows();
      case Load::kFrames: return add_frames();
    }
    return {};
  }

  Result<const FileTensor*> require(const std::string& tensor_name) const {
    if (const FileTensor* tensor = names_.files().find_tensor(tensor_name)) return tensor;
    return base::fail(ErrorCode::kMissingWeight,
                      fmt::format("{}: tensor {} is missing", names_.files().source(), tensor_name));
  }

  Result<> expect(const FileTensor& tensor, const Shape& expected) const {
    if (std::ranges::equal(tensor.shape(), expected)) return {};
    return base::fail(ErrorCode::kWeightShapeMismatch,
                      fmt::format("{} has shape [{}]; the configuration says [{}]", tensor.name,
                                  base::join(tensor.shape(), ", "), base::join(expected, ", ")));
  }

  tl::unexpected<base::Error> unsupported(const FileTensor& tensor, std::string_view why) const {
    return base::fail(ErrorCode::kWeightDTypeUnsupported,
                      fmt::format("{} is {}; {}", tensor.name, io::stored_type_info(tensor.type).name, why));
  }

  // Sets the result's type from a source's and remembers its scales. `rows_whole`: rows are taken as they are.
  Result<> take_type(const FileTensor& tensor, bool rows_whole, TensorPart& part) {
    part.source = &tensor;
    if (tensor.elements_count() == 0) {
      return base::fail(ErrorCode::kWeightShapeMismatch,
                        fmt::format("{} is {}; it has no elements", tensor.name, io::describe(tensor)));
    }
    if (tensor.type == StoredType::kF8_E4M3 || tensor.type == StoredType::kF8_E5M2) {
      tensor_.stored.dtype = DType::kBF16;
      tensor_.step = TensorStep::kWiden;
      return take_scales(tensor, part);
    }
    const auto dtype = io::dtype_of(tensor.type);
    if (!dtype || *dtype == DType::kI32) return unsupported(tensor, "weights of this type cannot be loaded");
    const bool widens = plan::is_quantized(*dtype) && !rows_whole;
    tensor_.stored.dtype = widens ? DType::kF32 : *dtype;
    if (widens) tensor_.step = TensorStep::kWiden;
    return {};
  }

  Result<> take_scales(const FileTensor& tensor, TensorPart& part) {
    const io::HfConfig* config = names_.files().hf();
    bool states_blocks = false;
    if (config != nullptr && config->contains("quantization_config")) {
      const io::HfConfig quantization = TRY(config->object("quantization_config"));
      if (quantization.contains("weight_block_size")) {
        const auto block = TRY(quantization.u32_list("weight_block_size"));
        if (block.size() != 2 || block[0] == 0 || block[1] == 0) {
          return base::fail(ErrorCode::kConfigKeyInvalid,
                            "quantization_config.weight_block_size must be two positive numbers");
        }
        tensor_.scale_block.rows = block[0], tensor_.scale_block.cols = block[1];
        states_blocks = true;
      }
    }
    part.scales = TRY(require(std::string(tensor.name) + "_scale_inv"));
    const bool scale_a_row =
        part.scales->rank == 2 && part.scales->dims[1] == 1 && part.scales->dims[0] == tensor.dims[0];
    if (scale_a_row && !states_blocks) tensor_.scale_block = {.rows = 1, .cols = tensor.dims[1]};
    TRY(io::check_fp8_matrix(tensor, *part.scales, tensor_.scale_block));
    return {};
  }

  Result<> add(TensorPart part) {
    tensor_.parts.push_back(part);
    return {};
  }

  Result<> add_whole(const std::string& tensor_name, const Shape& expected) {
    const FileTensor& tensor = *TRY(require(tensor_name));
    TRY(expect(tensor, expected));
    TensorPart part;
    TRY(take_type(tensor, true, part));
    if (!tensor_.parts.empty() &&
        io::stored_type_info(tensor_.parts[0].source->type).name != io::stored_type_info(tensor.type).name) {
      return unsupported(tensor, fmt::format("{} is not, and they are one stack", tensor_.parts[0].source->name));
    }
    const std::uint64_t cols = expected.back();
    const std::uint64_t rows = product(expected) / cols;
    part.counts = {1, rows, cols};
    part.strides = {0, cols, 1};
    return add(part);
  }

  Result<> add_reshaped() {
    const FileTensor& tensor = *TRY(require(found_.name));
    if (tensor.elements_count() != product(shape_)) return expect(tensor, shape_);
    TensorPart part;
    TRY(take_type(tensor, true, part));
    // Rows that stay rows may have blocks and scales.
    const bool same_rows =
        source_.load == Load::kReshaped && tensor.rank >= 2 && tensor.shape().back() == shape_.back();
    if (!same_rows && (plan::is_quantized(tensor_.stored.dtype) || part.scales != nullptr))
      return unsupported(tensor, "this tensor must be stored in floats");
    part.counts = {1, same_rows ? product(shape_) / shape_.back() : 1, same_rows ? shape_.back() : product(shape_)};
    part.strides = {0, part.counts[2], 1};
    if (source_.load != Load::kReshaped) {
      tensor_.step = source_.load == Load::kNegExp ? TensorStep::kNegExp : TensorStep::kOverRoot;
      tensor_.stored.dtype = DType::kF32;
    }
    return add(part);
  }

  Result<> add_numbers() {
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, shape_));
    if (tensor.type != StoredType::kI64 && tensor.type != StoredType::kI32)
      return unsupported(tensor, "this tensor must be stored in whole numbers");
    tensor_.step = TensorStep::kNumbers;
    tensor_.numbers_end = plan::param_as<plan::MoeParams>(params_).experts;
    tensor_.stored.dtype = DType::kF32;
    return add({.source = &tensor, .counts = {1, 1, product(shape_)}});
  }

  Result<> add_stack() {
    const Shape one(shape_.begin() + 1, shape_.end());
    for (std::uint32_t expert = 0; expert < shape_[0]; ++expert)
      TRY(add_whole(names_.full_name(source_.name, key_.layer, expert), one));
    return {};
  }

  Result<> add_heads() {
    const std::uint32_t each = plan::param_as<plan::AttentionParams>(params_).d_qk;
    for (std::uint32_t head = 0; head < shape_[0] / each; ++head)
      TRY(add_whole(names_.full_name(source_.name, key_.layer, head), {each}));
    return {};
  }

  // Rows of one slot of those stored together.
  std::uint64_t rows_of(std::uint8_t slot) const { return *plan::dim_value(slots_[slot].dims[row_axis_], params_); }
  std::uint64_t rows_together() const {
    std::uint64_t rows = 0;
    for (std::uint8_t slot = source_.first; slot <= source_.last; ++slot) rows += rows_of(slot);
    return rows;
  }
  bool interleaved() const {
    return source_.load == Load::kInterleavedRows || source_.load == Load::kTransposedInterleaved ||
           source_.load == Load::kMxfp4Rows;
  }

  // The shape of everything stored together, row-major and not transposed, as [outer, rows, cols].
  struct Together {
    std::uint64_t outer, rows, cols;
    std::uint64_t first;  // row where the slot's begin
    std::uint64_t step;   // from one of its rows to the next
  };
  Together together() const {
    Together t{.outer = 1, .rows = rows_together(), .cols = 1, .first = 0, .step = 1};
    for (std::size_t d = 0; d < row_axis_; ++d) t.outer *= shape_[d];
    for (std::size_t d = row_axis_ + 1; d < shape_.size(); ++d) t.cols *= shape_[d];
    if (interleaved()) {
      t.first = key_.slot - source_.first;
      t.step = source_.last - source_.first + 1U;
    } else {
      for (std::uint8_t slot = source_.first; slot < key_.slot; ++slot) t.first += rows_of(slot);
    }
    return t;
  }

  // Of a mixture's [experts, rows, cols]. A square tensor does not tell, but then the other of the pair does: gate and up
  // together have as many rows as the width only where an expert is half as wide.
  Result<bool> stored_transposed() const {
    const FileTensor& tensor = *TRY(require(found_.name));
    const Together t = together();
    if (t.rows != t.cols) return std::ranges::equal(tensor.shape(), Shape{shape_[0], t.cols, t.rows});
    const bool is_down = key_.slot == static_cast<std::uint8_t>(plan::MoeSlot::kDown);
    plan::WeightKey other = key_;
    other.slot = static_cast<std::uint8_t>(is_down ? plan::MoeSlot::kGate : plan::MoeSlot::kDown);
    const auto found = names_.find(other);
    const FileTensor* pair = found ? names_.files().find_tensor(found->name) : nullptr;
    const SlotSpec& spec = slots_[other.slot];
    return pair != nullptr && pair->shape().size() == 3 && pair->shape()[1] == *plan::dim_value(spec.dims[2], params_);
  }

  Result<> add_rows(bool transposed) {
    const FileTensor& tensor = *TRY(require(found_.name));
    const Together t = together();
    Shape expected = shape_;
    expected[row_axis_] = t.rows;
    if (transposed) std::swap(expected[row_axis_], expected[row_axis_ + 1]);
    TRY(expect(tensor, expected));
    const bool is_vector = row_axis_ + 1 == shape_.size();
    TensorPart part;
    TRY(take_type(tensor, !transposed && !is_vector, part));
    part.counts = {t.outer, shape_[row_axis_], t.cols};
    part.strides = transposed ? std::array<std::uint64_t, 3>{t.rows * t.cols, t.step, t.rows}
                              : std::array<std::uint64_t, 3>{t.rows * t.cols, t.step * t.cols, 1};
    part.offset = transposed ? t.first : t.first * t.cols;
    return add(part);
  }

  Result<> add_head_rows() {
    const auto& p = plan::param_as<plan::MlaAttentionParams>(params_);
    const FileTensor& tensor = *TRY(require(found_.name));
    const std::uint64_t rows = std::uint64_t{p.d_nope} + p.d_v;
    TRY(expect(tensor, {p.heads * rows, p.kv_lora}));
    const bool keys = source_.load == Load::kHeadKeys;
    TensorPart part;
    TRY(take_type(tensor, !keys, part));
    part.offset = keys ? 0 : std::uint64_t{p.d_nope} * p.kv_lora;
    part.counts = {shape_[0], shape_[1], shape_[2]};
    part.strides = keys ? std::array<std::uint64_t, 3>{rows * p.kv_lora, 1, p.kv_lora}
                        : std::array<std::uint64_t, 3>{rows * p.kv_lora, p.kv_lora, 1};
    return add(part);
  }

  // Of every head the rows of the first slot, then those of the last.
  Result<> add_turns() {
    const std::uint64_t heads = plan::param_as<plan::AttentionParams>(params_).heads, cols = shape_[1];
    const std::uint64_t first = rows_of(source_.first) / heads, both = first + rows_of(source_.last) / heads;
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, {heads * both, cols}));
    TensorPart part;
    TRY(take_type(tensor, true, part));
    part.offset = key_.slot == source_.first ? 0 : first * cols;
    part.counts = {heads, shape_[0] / heads, cols};
    part.strides = {both * cols, cols, 1};
    return add(part);
  }

  // Of a checkpoint that was saved in pieces, one for each key head of the layers that see all positions; a layer with more key
  // heads has several in each piece.
  Result<> add_pieces() {
    const FileTensor& tensor = *TRY(require(found_.name));
    if (tensor.type != StoredType::kF8_E4M3 && tensor.type != StoredType::kF8_E5M2) return add_rows(false);
    const std::uint32_t pieces = TRY(names_.files().hf()->u32("num_key_value_heads"));
    for (std::uint8_t slot = source_.first; slot <= source_.last; ++slot) {
      if (pieces != 0 && rows_of(slot) % pieces == 0) continue;
      return base::fail(ErrorCode::kConfigKeyInvalid,
                        fmt::format("num_key_value_heads = {}: {} does not consist of so many pieces, of {} rows {}",
                                    pieces, tensor.name, rows_of(slot), slots_[slot].name));
    }
    tensor_.scale_block.piece_rows = rows_together() / pieces;
    return add_groups(pieces);
  }

  // Groups with their shares of the rows of each slot that is stored together with this one.
  Result<> add_groups(std::uint64_t groups) {
    const bool is_vector = shape_.size() == 1;
    const std::uint64_t rows = rows_together(), cols = is_vector ? 1 : shape_[1];
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, is_vector ? Shape{rows} : Shape{rows, cols}));
    TensorPart part;
    TRY(take_type(tensor, !is_vector, part));
    for (std::uint8_t slot = source_.first; slot < key_.slot; ++slot) part.offset += rows_of(slot) / groups * cols;
    part.counts = {groups, shape_[0] / groups, cols};
    part.strides = {rows / groups * cols, cols, 1};
    return add(part);
  }

  // A group per key head: its q and k, and v and z of the value heads that read it; or their beta and decay.
  Result<> add_delta_groups() {
    using plan::GatedDeltaSlot;
    const auto& p = plan::param_as<plan::GatedDeltaParams>(params_);
    const std::uint64_t cols = p.width, each = p.value_heads / p.key_heads, values = each * p.d_v;
    const auto slot = static_cast<GatedDeltaSlot>(key_.slot);
    const bool heads = slot == GatedDeltaSlot::kBeta || slot == GatedDeltaSlot::kDecay;
    const std::uint64_t group = heads ? 2 * each : 2 * std::uint64_t{p.d_k} + 2 * values;
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, {p.key_heads * group, cols}));
    const auto take = [&](std::uint64_t first, std::uint64_t rows) -> Result<> {
      TensorPart part;
      TRY(take_type(tensor, true, part));
      part.offset = first * cols;
      part.counts = {p.key_heads, rows, cols};
      part.strides = {group * cols, cols, 1};
      return add(part);
    };
    if (heads) return take(slot == GatedDeltaSlot::kBeta ? 0 : each, each);
    if (slot == GatedDeltaSlot::kZ) return take(2 * std::uint64_t{p.d_k} + values, values);
    TRY(take(0, p.d_k));
    TRY(take(p.d_k, p.d_k));
    return take(2 * std::uint64_t{p.d_k}, values);
  }

  // Row by row, yes before no.
  Result<> add_token_rows() {
    const io::HfConfig* answers = names_.files().hf_answers();
    ASSERT(answers != nullptr && shape_[0] <= 2, "{} rows of answers", shape_[0]);
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, {tensor.rank == 2 ? tensor.dims[0] : 0, shape_[1]}));
    for (const std::string_view key : {std::string_view("true_token_id"), std::string_view("false_token_id")}) {
      if (tensor_.parts.size() == shape_[0]) break;
      const std::uint32_t token = TRY(answers->u32(key));
      if (token >= tensor.dims[0]) {
        return base::fail(ErrorCode::kConfigKeyInvalid, fmt::format("{} {} = {}: {} has {} rows", answers->source(),
                                                                    key, token, tensor.name, tensor.dims[0]));
      }
      TensorPart part;
      TRY(take_type(tensor, true, part));
      part.offset = token * shape_[1];
      part.counts = {1, 1, shape_[1]};
      TRY(add(part));
    }
    return {};
  }

  // The first axis of each holds its rows; axes of one element do not count, before it and behind it.
  Result<> add_joined() {
    const std::vector<std::string> names = joined_names(found_.name);
    const std::uint64_t rows = shape_[0] / names.size(), cols = product(shape_) / shape_[0];
    for (const std::string& one : names) {
      const FileTensor& tensor = *TRY(require(one));
      const auto axes = tensor.shape();
      const auto first = std::ranges::find_if(axes, [](std::uint64_t n) { return n != 1; });
      if ((first == axes.end() ? 1 : *first) != rows || tensor.elements_count() != rows * cols) {
        return base::fail(ErrorCode::kWeightShapeMismatch,
                          fmt::format("{} has shape [{}]; the configuration says {} of {} rows of {}", tensor.name,
                                      base::join(tensor.shape(), ", "), names.size(), shape_[0], cols));
      }
      TensorPart part;
      TRY(take_type(tensor, true, part));
      if (!tensor_.parts.empty() && tensor_.parts[0].source->type != tensor.type)
        return unsupported(tensor, fmt::format("{} is not, and they are one", tensor_.parts[0].source->name));
      part.counts = {1, rows, cols};
      part.strides = {0, cols, 1};
      TRY(add(part));
    }
    return {};
  }

  Result<> add_layer_rows() {
    const std::uint64_t rows = shape_[0], cols = shape_[1];
    const FileTensor& tensor = *TRY(require(found_.name));
    TRY(expect(tensor, {plan::param_as<plan::LayerInputParams>(params_).layers * rows, cols}));
    TensorPart part;
    TRY(take_type(tensor, true, part));
    part.offset = key_.layer * rows * cols;
    part.counts = {1, rows, cols};
    part.strides = {0, cols, 1};
    return add(part);
  }

  Result<> add_mxfp4() {
    const Together t = together();
    const std::uint64_t blocks = t.cols / kMxfp4Values;
    TensorPart part{.source = TRY(require(found_.name + "_blocks")), .scales = TRY(require(found_.name + "_scales"))};
    TRY(expect(*part.source, {t.outer, t.rows, blocks, kMxfp4Bytes}));
    TRY(expect(*part.scales, {t.outer, t.rows, blocks}));
    for (const FileTensor* tensor : {part.source, part.scales}) {
      if (tensor->type != StoredType::kU8) return unsupported(*tensor, "MXFP4 is stored in bytes (U8)");
    }
    if (blocks * kMxfp4Values != t.cols) {
      return base::fail(ErrorCode::kWeightShapeMismatch,
                        fmt::format("{}: rows of {} are no multiple of {}", found_.name, t.cols, kMxfp4Values));
    }
    part.offset = t.first * blocks;
    part.counts = {t.outer, shape_[row_axis_], blocks};
    part.strides = {t.rows * blocks, t.step * blocks, 1};
    tensor_.step = TensorStep::kMxfp4;
    tensor_.stored.dtype = DType::kMXFP4;
    return add(part);
  }

  Result<> add_frames() {
    const auto& p = plan::param_as<plan::VisionPatchEmbedParams>(params_);
    constexpr std::uint64_t kChannels = 3;
    std::vector<TensorPart> frames(p.temporal);
    for (std::uint32_t frame = 0; frame < p.temporal; ++frame) {
      const FileTensor& tensor = *TRY(require(frame == 0 ? found_.name : fmt::format("{}.{}", found_.name, frame)));
      TRY(expect(tensor, {p.width, kChannels, p.patch, p.patch}));
      TRY(take_type(tensor, true, frames[frame]));
      const bool plain = !plan::is_quantized(tensor_.stored.dtype) && frames[frame].scales == nullptr;
      if (!plain || tensor.type != frames[0].source->type)
        return unsupported(tensor, "the frames of a patch must be stored in one type of floats");
    }
    const std::uint64_t pixels = std::uint64_t{p.patch} * p.patch;
    for (std::uint64_t row = 0; row < p.width * kChannels; ++row) {
      for (TensorPart part : frames) {
        part.offset = row * pixels;
        part.counts = {1, 1, pixels};
        TRY(add(part));
      }
    }
    return {};
  }

  const WeightNames& names_;
  const FoundWeight& found_;
  const Source& source_;
  const plan::WeightKey& key_;
  const ParamBlock& params_;
  std::span<const SlotSpec> slots_;
  const SlotSpec& slot_;
  Shape shape_;  // of the result
  std::size_t row_axis_;
  BoundTensor tensor_;
};

}  // namespace

Result<std::uint32_t> TensorTable::block_of(const WeightNames& names, const FoundWeight& found,
                                            const plan::WeightKey& key, const ParamBlock& params) const {
  BoundTensor tensor = TRY(Builder(names, found, key, params).build());
  if (keeps_f8_) keep_f8(tensor);
  return plan::dtype_info(tensor.stored.dtype).block_elements;
}

Result<std::uint32_t> TensorTable::add(const WeightNames& names, const FoundWeight& found, const plan::WeightKey& key,
                                       const ParamBlock& params, const TensorShare& share) {
  Builder builder(names, found, key, params);
  BoundTensor tensor = TRY(builder.build());
  TRY(cut(share, tensor));
  if (keeps_f8_ && builder.is_matrix()) keep_f8(tensor);
  const auto [at, added] = numbers_.try_emplace(tensor.name, static_cast<std::uint32_t>(tensors_.size()));
  if (added) tensors_.push_back(std::move(tensor));
  return at->second;
}

}  // namespace llorch::engine::models
