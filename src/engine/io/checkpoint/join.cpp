#include "engine/io/checkpoint/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/join.h"
#include "engine/io/checkpoint/integer_matrix.h"
#include "engine/io/checkpoint/mxfp4_matrix.h"
#include "engine/io/checkpoint/nvfp4_matrix.h"
#include "engine/io/printable.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

// Values of quantization_config.quant_method. MXFP4's parts are joined where experts are read, block scales of FP8 likewise.
constexpr std::string_view kMethods[]{"gptq", "awq", "compressed-tensors", "modelopt", "fp8", "fbgemm_fp8", "mxfp4"};

// Scales of activations and of caches, by the end of their names.
constexpr std::string_view kOfActivations[]{".input_scale",        ".activation_scale", ".input_scale_ub",
                                            ".input_global_scale", ".k_scale",          ".v_scale"};

// What DeepSeek calls the scales of a module's weight, of both kinds.
constexpr std::string_view kDeepseekScale = ".scale";

// Of a matrix of codes, in any of its layouts; no model that is run has a wider one.
constexpr std::uint64_t kSideMax = 1U << 24;

// What the orders of columns of all matrices may take in memory; those of 15,000 experts take 1 GiB.
constexpr std::uint64_t kOrderBytesMax = std::uint64_t{4} << 30;

struct Method {
  std::string_view name;  // empty: the configuration says nothing
  std::uint32_t bits = 4;
  std::uint64_t columns_per_group = 0;  // 0: a whole row
  bool symmetric = false;
  bool zeros_less_one = false;
};

tl::unexpected<base::Error> unsupported(const HfConfig& config, std::string_view key, std::string_view value,
                                        std::string_view wanted) {
  return fail(ErrorCode::kUnsupportedQuantType, fmt::format("{}: quantization_config.{} is '{}', supported is {}",
                                                            config.source(), key, printable(value), wanted));
}

Result<> read_gptq(const HfConfig& config, const HfConfig& quantization, Method& method) {
  method.bits = TRY(quantization.u32("bits"));
  if (method.bits != 2 && method.bits != 4 && method.bits != 8)
    return unsupported(config, "bits", fmt::format("{}", method.bits), "2, 4 or 8");
  const std::string_view format = TRY(quantization.string_or("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return unsupported(config, "checkpoint_format", format, "gptq or gptq_v2");
  method.symmetric = TRY(quantization.boolean_or("sym", true));
  method.zeros_less_one = format == "gptq";
  return {};
}

Result<> read_awq(const HfConfig& config, const HfConfig& quantization, Method& method) {
  method.bits = TRY(quantization.u32_or("bits", 4));
  if (method.bits != 4) return unsupported(config, "bits", fmt::format("{}", method.bits), "4");
  std::string version(TRY(quantization.string_or("version", "gemm")));
  std::ranges::transform(version, version.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return version == "gemm" ? Result<>() : unsupported(config, "version", version, "gemm");
}

Result<Method> method_of(const HfConfig& config) {
  Method method;
  if (!config.contains("quantization_config")) return method;
  const HfConfig quantization = TRY(config.object("quantization_config"));
  method.name = TRY(quantization.string_or("quant_method", ""));
  if (!method.name.empty() && std::ranges::find(kMethods, method.name) == std::end(kMethods))
    return unsupported(config, "quant_method", method.name, base::join(kMethods, ", "));
  if (method.name != "gptq" && method.name != "awq") return method;
  TRY(method.name == "gptq" ? read_gptq(config, quantization, method) : read_awq(config, quantization, method));
  if (const auto group = TRY(quantization.f32_or("group_size", 128)); group > 0)
    method.columns_per_group = TRY(quantization.u64_or("group_size", 128));
  return method;
}

class Joiner {
 public:
  Joiner(const Method& method, std::vector<FileTensor>& tensors) : method_(method), tensors_(tensors) {
    for (const FileTensor& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  Result<std::vector<std::unique_ptr<JoinedTensor>>> run() {
    for (const FileTensor& tensor : tensors_) TRY(look_at(tensor));
    std::erase_if(tensors_, [&](const FileTensor& tensor) { return used_.contains(tensor.name); });
    tensors_.insert(tensors_.end(), made_.begin(), made_.end());
    return std::move(joined_);
  }

 private:
  // Joins what `tensor` is the codes of, if it is.
  Result<> look_at(const FileTensor& tensor) {
    const std::string_view name = tensor.name;
    const auto base = [&](std::string_view end) { return std::string(name.substr(0, name.size() - end.size())); };
    if (std::ranges::any_of(kOfActivations, [&](std::string_view end) { return name.ends_with(end); }) &&
        !method_.name.empty()) {
      used_.insert(name);
    } else if (name.ends_with(".qweight") && (method_.name == "gptq" || method_.name == "awq")) {
      return method_.name == "gptq" ? join_gptq(base(".qweight"), tensor) : join_awq(base(".qweight"), tensor);
    } else if (name.ends_with(".weight_packed")) {
      const std::string module = base(".weight_packed");
      return tensor.type == StoredType::kU8 ? join_nvfp4(module, tensor, ".weight_global_scale", true)
                                            : join_rows(module, tensor);
    } else if (name.ends_with(".weight")) {
      const std::string module = base(".weight");
      if (tensor.type == StoredType::kU8 && find(module + ".weight_scale_2") != nullptr)
        return join_nvfp4(module, tensor, ".weight_scale_2", false);
      const FileTensor* scale = tensor.type == StoredType::kI8 ? find(module + std::string(kDeepseekScale)) : nullptr;
      if (scale != nullptr && scale->type == StoredType::kF8_E8M0) return join_mxfp4(module, tensor);
      if (tensor.type == StoredType::kI8) return join_bytes(module, tensor);
      if (tensor.type == StoredType::kF8_E4M3 || tensor.type == StoredType::kF8_E5M2) name_fp8_scale(module);
    }
    return {};
  }

  const FileTensor* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : at->second;
  }
  // A part, which is not a tensor of its own any more.
  const FileTensor* take(const std::string& name) {
    const FileTensor* tensor = find(name);
    if (tensor != nullptr) used_.insert(tensor->name);
    return tensor;
  }
  Result<FileTensor> need(const std::string& name, std::string_view for_what) {
    if (const FileTensor* tensor = take(name)) return *tensor;
    return fail(ErrorCode::kMissingWeight, fmt::format("tensor {} is missing beside {}", name, for_what));
  }

  static Result<> check_sides(const FileTensor& codes, std::uint64_t rows, std::uint64_t columns) {
    if (rows <= kSideMax && columns <= kSideMax) return {};
    return fail(ErrorCode::kWeightShapeMismatch,
                fmt::format("{} is {}; a matrix of codes has at most {} rows and columns", codes.name, describe(codes),
                            kSideMax));
  }
  Result<> need_matrix(const FileTensor& tensor) const {
    if (tensor.rank == 2 && tensor.elements_count() != 0) return check_sides(tensor, tensor.dims[0], tensor.dims[1]);
    return fail(ErrorCode::kWeightShapeMismatch,
                fmt::format("{} is {}; codes are a matrix", tensor.name, describe(tensor)));
  }

  void make(const std::string& name, StoredType type, std::uint64_t rows, std::uint64_t columns,
            std::unique_ptr<DerivedBytes> bytes) {
    joined_.push_back(std::make_unique<JoinedTensor>(JoinedTensor{name, std::move(bytes)}));
    const plan::DTypeInfo info = stored_type_info(type);
    FileTensor tensor{.name = joined_.back()->name, .type = type, .rank = 2, .dims = {rows, columns}, .data = {}};
    tensor.data = FileRange(*joined_.back()->bytes, rows * (columns / info.block_elements) * info.block_bytes);
    made_.push_back(tensor);
  }
  Result<> add(const std::string& module, IntegerMatrix matrix) {
    TRY(check_integer_matrix(matrix));
    const StoredType type = stored_type_of(matrix);
    const std::uint64_t rows = matrix.rows, columns = matrix.columns;
    std::string name = module + ".weight";
    make(name, type, rows, columns, as_stored(std::move(matrix), name));
    return {};
  }

  // Groups of neighbours, or of any columns as a tensor says.
  Result<> order_columns(const FileTensor* order, IntegerMatrix& matrix) {
    if (order == nullptr) return {};
    if (order->type != StoredType::kI32 || order->elements_count() != matrix.columns) {
      return fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} is {}; wanted I32, one for each of {} columns",
                                                               order->name, describe(*order), matrix.columns));
    }
    const std::vector<std::byte> stored = TRY(order->data.read_all());
    std::vector<std::uint32_t> groups(matrix.columns);
    std::memcpy(groups.data(), stored.data(), stored.size());
    bool neighbours = true;
    for (std::uint64_t column = 0; column < matrix.columns; ++column) {
      if (groups[column] >= matrix.groups) {
        return fail(ErrorCode::kCorruptFile, fmt::format("{}: column {} is in group {} of {}", order->name, column,
                                                         groups[column], matrix.groups));
      }
      neighbours = neighbours && groups[column] == column / matrix.columns_per_group;
    }
    if (neighbours) return {};
    order_bytes_ += stored.size();
    if (order_bytes_ > kOrderBytesMax) {
      return fail(ErrorCode::kWeightShapeMismatch,
                  fmt::format("{}: the orders of columns of all matrices take more than {} bytes", order->name,
                              kOrderBytesMax));
    }
    matrix.group_of = std::move(groups);
    return {};
  }

  void set_groups(IntegerMatrix& matrix) const {
    matrix.columns_per_group =
        method_.columns_per_group == 0 ? matrix.columns : std::min(method_.columns_per_group, matrix.columns);
    matrix.groups = (matrix.columns + matrix.columns_per_group - 1) / matrix.columns_per_group;
  }

  Result<> join_gptq(const std::string& module, const FileTensor& codes) {
    TRY(need_matrix(codes));
    IntegerMatrix matrix{
        .layout = IntegerLayout::kGptq, .bits = method_.bits, .codes = codes, .scales = {}, .zeros = {}};
    matrix.rows = codes.dims[1];
    matrix.columns = codes.dims[0] * (32 / method_.bits);
    TRY(check_sides(codes, matrix.rows, matrix.columns));
    set_groups(matrix);
    matrix.scales = TRY(need(module + ".scales", codes.name));
    matrix.zeros = TRY(need(module + ".qzeros", codes.name));
    matrix.symmetric = method_.symmetric;
    matrix.zeros_less_one = method_.zeros_less_one;
    TRY(order_columns(take(module + ".g_idx"), matrix));
    used_.insert(codes.name);
    return add(module, std::move(matrix));
  }

  Result<> join_awq(const std::string& module, const FileTensor& codes) {
    TRY(need_matrix(codes));
    IntegerMatrix matrix{.layout = IntegerLayout::kAwq, .bits = 4, .codes = codes, .scales = {}, .zeros = {}};
    matrix.rows = codes.dims[1] * 8;
    matrix.columns = codes.dims[0];
    TRY(check_sides(codes, matrix.rows, matrix.columns));
    set_groups(matrix);
    matrix.scales = TRY(need(module + ".scales", codes.name));
    matrix.zeros = TRY(need(module + ".qzeros", codes.name));
    used_.insert(codes.name);
    return add(module, std::move(matrix));
  }

  // As many columns in each group as the scales say.
  Result<> group_by_scales(IntegerMatrix& matrix) const {
    const FileTensor& scales = matrix.scales;
    matrix.groups = scales.rank == 2 ? scales.dims[1] : 0;
    if (matrix.groups == 0 || matrix.columns % matrix.groups != 0) {
      return fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} is {}; {} columns do not divide into its groups",
                                                               scales.name, describe(scales), matrix.columns));
    }
    matrix.columns_per_group = matrix.columns / matrix.groups;
    return {};
  }

  // compressed-tensors, pack-quantized. The tensor of the shape tells how many codes a word holds.
  Result<> join_rows(const std::string& module, const FileTensor& codes) {
    TRY(need_matrix(codes));
    const FileTensor shape = TRY(need(module + ".weight_shape", codes.name));
    std::uint64_t dims[2]{};
    if ((shape.type != StoredType::kI64 && shape.type != StoredType::kI32) || shape.elements_count() != 2) {
      return fail(ErrorCode::kWeightShapeMismatch,
                  fmt::format("{} is {}; wanted I64 [2]", shape.name, describe(shape)));
    }
    const std::vector<std::byte> stored = TRY(shape.data.read_all());
    for (std::size_t d = 0; d < 2; ++d) std::memcpy(&dims[d], stored.data() + d * stored.size() / 2, stored.size() / 2);
    IntegerMatrix matrix{.layout = IntegerLayout::kRows, .codes = codes, .scales = {}, .zeros = {}};
    matrix.rows = dims[0];
    matrix.columns = dims[1];
    matrix.bits = 0;
    for (const std::uint32_t bits : {2U, 4U, 8U})
      if (matrix.columns != 0 && codes.dims[1] == matrix.columns / (32 / bits) + (matrix.columns % (32 / bits) != 0))
        matrix.bits = bits;
    if (matrix.bits == 0 || matrix.rows != codes.dims[0]) {
      return fail(ErrorCode::kUnsupportedQuantType,
                  fmt::format("{} is {} for a matrix of [{}, {}]; supported are codes of 2, 4 and 8 bits", codes.name,
                              describe(codes), dims[0], dims[1]));
    }
    TRY(check_sides(codes, matrix.rows, matrix.columns));
    matrix.scales = TRY(need(module + ".weight_scale", codes.name));
    TRY(group_by_scales(matrix));
    if (const FileTensor* zeros = take(module + ".weight_zero_point")) matrix.zeros = *zeros;
    const FileTensor* order = take(module + ".weight_g_idx");
    TRY(order_columns(order, matrix));
    used_.insert(codes.name);
    return add(module, std::move(matrix));
  }

  // compressed-tensors, int-quantized: a byte each, a scale a row.
  Result<> join_bytes(const std::string& module, const FileTensor& codes) {
    TRY(need_matrix(codes));
    IntegerMatrix matrix{.layout = IntegerLayout::kBytes, .bits = 8, .codes = codes, .scales = {}, .zeros = {}};
    matrix.rows = codes.dims[0];
    matrix.columns = codes.dims[1];
    matrix.scales = TRY(need(module + ".weight_scale", codes.name));
    if (find(module + ".weight_zero_point") != nullptr) {
      return fail(
          ErrorCode::kUnsupportedQuantType,
          fmt::format("{} has zeros ({}.weight_zero_point); supported are symmetric bytes", codes.name, module));
    }
    TRY(group_by_scales(matrix));
    used_.insert(codes.name);
    return add(module, std::move(matrix));
  }

  Result<> join_nvfp4(const std::string& module, const FileTensor& codes, std::string_view global, bool divides) {
    Nvfp4Matrix matrix{.codes = codes, .scales = {}, .global_scale = {}, .divides = divides};
    matrix.scales = TRY(need(module + ".weight_scale", codes.name));
    matrix.global_scale = TRY(need(module + std::string(global), codes.name));
    TRY(check_nvfp4_matrix(matrix));
    used_.insert(codes.name);
    const std::string name = module + ".weight";
    const std::uint64_t rows = codes.dims[0], columns = codes.dims[1] * 2;
    make(name, StoredType::kBF16, rows, columns, as_bf16(std::move(matrix), name));
    return {};
  }

  Result<> join_mxfp4(const std::string& module, const FileTensor& codes) {
    const Mxfp4Matrix matrix{.codes = codes, .scales = TRY(need(module + std::string(kDeepseekScale), codes.name))};
    TRY(check_mxfp4_matrix(matrix));
    used_.insert(codes.name);
    const std::string name = module + ".weight";
    make(name, StoredType::kMXFP4, codes.dims[0], codes.dims[1] * 2, as_mxfp4(matrix, name));
    return {};
  }

  // Scales of FP8 go by the name that their readers know, one a row as a column.
  void name_fp8_scale(const std::string& module) {
    const FileTensor* scale = find(module + ".weight_scale");
    if (scale == nullptr) scale = find(module + std::string(kDeepseekScale));
    if (scale == nullptr || find(module + ".weight_scale_inv") != nullptr) return;
    used_.insert(scale->name);
    joined_.push_back(std::make_unique<JoinedTensor>(JoinedTensor{module + ".weight_scale_inv", nullptr}));
    FileTensor renamed = *scale;
    renamed.name = joined_.back()->name;
    if (renamed.rank == 1) {
      renamed.rank = 2;
      renamed.dims[1] = 1;
    }
    made_.push_back(renamed);
  }

  const Method& method_;
  std::vector<FileTensor>& tensors_;
  std::map<std::string_view, const FileTensor*> by_name_;
  std::set<std::string_view> used_;  // parts of others; the views outlive it: names are the files'
  std::uint64_t order_bytes_ = 0;
  std::vector<FileTensor> made_;
  std::vector<std::unique_ptr<JoinedTensor>> joined_;
};

}  // namespace

Result<std::vector<std::unique_ptr<JoinedTensor>>> join_quantized(const HfConfig& config,
                                                                  std::vector<FileTensor>& tensors) {
  const Method method = TRY(method_of(config));
  return Joiner(method, tensors).run();
}

}  // namespace llorch::engine::io
