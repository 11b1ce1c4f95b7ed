#include "engine/models/gguf_write/tensor_types.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/io/quant/quantize.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::DType;

struct Row {
  DType type;
  std::uint32_t file_type;  // as the field's tools number them; the plain mixes of the K types
  DType head;
  DType embedding;
  DType smaller_blocks;  // for rows that are no multiple of its block
};

// Six bits and more are close enough to the stored values for a head; below that it takes six. A table of rows suffers less:
// four bits and more stay. Where blocks of 256 do not fit, 32 with at least as many bits per value stand in, then BF16,
// which holds every magnitude.
constexpr std::array kRows{
    Row{DType::kF32, 0, DType::kF32, DType::kF32, DType::kF32},
    Row{DType::kF16, 1, DType::kF16, DType::kF16, DType::kF16},
    Row{DType::kBF16, 32, DType::kBF16, DType::kBF16, DType::kBF16},
    Row{DType::kQ8_0, 7, DType::kQ8_0, DType::kQ8_0, DType::kBF16},
    Row{DType::kQ4_0, 2, DType::kQ6_K, DType::kQ4_0, DType::kBF16},
    Row{DType::kQ4_1, 3, DType::kQ6_K, DType::kQ4_1, DType::kBF16},
    Row{DType::kQ5_0, 8, DType::kQ6_K, DType::kQ5_0, DType::kBF16},
    Row{DType::kQ5_1, 9, DType::kQ6_K, DType::kQ5_1, DType::kBF16},
    Row{DType::kQ2_K, 10, DType::kQ6_K, DType::kQ4_K, DType::kIQ4_NL},
    Row{DType::kQ3_K, 11, DType::kQ6_K, DType::kQ4_K, DType::kIQ4_NL},
    Row{DType::kQ4_K, 14, DType::kQ6_K, DType::kQ4_K, DType::kQ5_0},
    Row{DType::kQ5_K, 16, DType::kQ6_K, DType::kQ5_K, DType::kQ5_1},
    Row{DType::kQ6_K, 18, DType::kQ6_K, DType::kQ6_K, DType::kQ8_0},
    Row{DType::kIQ4_NL, 25, DType::kQ6_K, DType::kIQ4_NL, DType::kBF16},
    Row{DType::kIQ4_XS, 30, DType::kQ6_K, DType::kIQ4_XS, DType::kIQ4_NL},
    Row{DType::kMXFP4, 38, DType::kQ6_K, DType::kQ4_K, DType::kBF16},
};

const Row& row_of(DType type) {
  const auto at = std::ranges::find(kRows, type, &Row::type);
  ASSERT(at != kRows.end() && io::is_quantize_target(type), "{} is no type to quantize to",
         plan::dtype_info(type).name);
  return *at;
}

std::string_view name_of(DType type) { return plan::dtype_info(type).name; }
bool divides_into_blocks(DType type, std::uint64_t cols) { return cols % plan::dtype_info(type).block_elements == 0; }
bool can_change(const ExportTensor& tensor) { return !tensor.fixed && tensor.role != TensorRole::kFloats; }

class Chooser {
 public:
  Chooser(const ExportModel& model, const TypeRequest& request)
      : model_(model), request_(request), matched_(request.overrides.size()) {}

  Result<std::vector<TensorType>> run() {
    std::vector<TensorType> types;
    for (const ExportTensor& tensor : model_.tensors) types.push_back(TRY(choose(tensor)));
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      if (!matched_[i]) return invalid(fmt::format("--tensor {}: no tensor has such a name", pattern(i)));
    }
    TRY(check_requantized(types));
    return types;
  }

 private:
  static tl::unexpected<base::Error> invalid(std::string message) {
    return base::fail(base::ErrorCode::kInvalidParams, std::move(message));
  }
  const std::string& pattern(std::size_t i) const { return request_.overrides[i].pattern; }

  Result<std::optional<DType>> overridden(const ExportTensor& tensor) {
    std::optional<DType> type;
    for (std::size_t i = 0; i < matched_.size(); ++i) {
      if (::fnmatch(pattern(i).c_str(), tensor.name.c_str(), 0) != 0) continue;
      if (!can_change(tensor)) {
        // A pattern for a whole layer may cover its vectors too.
        if (pattern(i) == tensor.name)
          return invalid(fmt::format("--tensor {}: this tensor stays as it is", pattern(i)));
        continue;
      }
      matched_[i] = true;
      type = request_.overrides[i].type;
      if (!divides_into_blocks(*type, tensor.dims[0])) {
        return invalid(fmt::format("--tensor {}: {} has rows of {}, which blocks of {} do not fill", pattern(i),
                                   tensor.name, tensor.dims[0], name_of(*type)));
      }
    }
    return type;
  }

  Result<TensorType> choose(const ExportTensor& tensor) {
    if (tensor.fixed) return TensorType{tensor.stored, {}};
    if (const auto type = TRY(overridden(tensor))) return TensorType{*type, {}};
    DType wanted = request_.type;
    switch (tensor.role) {
      case TensorRole::kFloats:
      case TensorRole::kRouter: return TensorType{DType::kF32, {}};
      case TensorRole::kEmbedding: wanted = request_.embedding.value_or(default_embedding_type(wanted)); break;
      case TensorRole::kHead: wanted = request_.head.value_or(default_head_type(wanted)); break;
      case TensorRole::kMatrix: break;
    }
    const DType type = fitting_type(wanted, tensor.dims[0]);
    return TensorType{type, type == wanted ? std::nullopt : std::optional(wanted)};
  }

  // Floats hold what blocks say exactly or nearly; other blocks round it a second time.
  Result<> check_requantized(const std::vector<TensorType>& types) const {
    if (request_.allow_requantize) return {};
    std::size_t count = 0;
    const ExportTensor* first = nullptr;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const ExportTensor& tensor = model_.tensors[i];
      if (!plan::is_quantized(tensor.stored) || !plan::is_quantized(types[i].type)) continue;
      if (tensor.stored == types[i].type) continue;
      if (count++ == 0) first = &tensor;
    }
    if (count == 0) return {};
    return invalid(
        fmt::format("{} tensor(s) are quantized already (the first is {}, {}); rounding them again adds the errors of "
                    "both types. Start "
                    "from the unquantized model, keep them with --tensor NAME={}, or pass --allow-requantize",
                    count, first->name, name_of(first->stored), name_of(first->stored)));
  }

  const ExportModel& model_;
  const TypeRequest& request_;
  std::vector<bool> matched_;
};

}  // namespace

DType default_head_type(DType type) { return row_of(type).head; }
DType default_embedding_type(DType type) { return row_of(type).embedding; }

DType fitting_type(DType type, std::uint64_t cols) {
  while (!divides_into_blocks(type, cols)) type = row_of(type).smaller_blocks;
  return type;
}

Result<std::vector<TensorType>> choose_types(const ExportModel& model, const TypeRequest& request) {
  return Chooser(model, request).run();
}

std::uint32_t gguf_file_type(DType type) { return row_of(type).file_type; }

std::optional<DType> quantize_target(std::string_view name) {
  const auto same = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
  };
  for (const Row& row : kRows) {
    if (std::ranges::equal(name, name_of(row.type), same)) return row.type;
  }
  return std::nullopt;
}

std::string quantize_target_names() {
  std::string names;
  for (const Row& row : kRows) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(row.type));
  return names;
}

}  // namespace llorch::engine::models
