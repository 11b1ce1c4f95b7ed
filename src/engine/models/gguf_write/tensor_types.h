#pragma once
// Which element type each tensor of a new GGUF file gets.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/models/gguf_export/export_model.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::models {

struct TypeOverride {
  std::string pattern;  // of tensor names; * stands for any text, ? for a character
  plan::DType type{};
};

struct TypeRequest {
  plan::DType type{};
  std::optional<plan::DType> embedding, head;  // absent: default_embedding_type, default_head_type
  std::vector<TypeOverride> overrides;         // the last that matches counts
  bool allow_requantize = false;               // quantized values may be rounded again
};

struct TensorType {
  plan::DType type{};
  std::optional<plan::DType> wanted;  // the type the rows' length forbids, when `type` stands in for it
};

// What a head (and a table that is also the head) becomes beside matrices of `type`: its errors reach the logits directly.
plan::DType default_head_type(plan::DType type);
// What a table of rows becomes beside them.
plan::DType default_embedding_type(plan::DType type);
// `type`, or the type that comes closest among those whose blocks rows of `cols` elements are made of.
plan::DType fitting_type(plan::DType type, std::uint64_t cols);

// One per tensor: matrices as requested, routers and vectors F32, fixed tensors as stored.
// Errors: INVALID_PARAMS (a pattern that matches no tensor, or one whose type cannot change; a type whose blocks do not fit
// rows it was given for by name; quantized tensors without allow_requantize).
base::Result<std::vector<TensorType>> choose_types(const ExportModel& model, const TypeRequest& request);

// general.file_type for a file mostly of this type.
std::uint32_t gguf_file_type(plan::DType type);
// By name, in any case; nullopt for what models are not quantized to.
std::optional<plan::DType> quantize_target(std::string_view name);
// For messages: "F32, F16, ..."
std::string quantize_target_names();

}  // namespace llorch::engine::models
