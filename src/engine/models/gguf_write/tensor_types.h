#pragma once
// Which element type each tensor of a new GGUF file gets.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/contract/dtype.h"
#include "engine/models/gguf_export/export_model.h"

namespace llorch::engine::models {

struct TypeOverride {
  std::string pattern;  // of tensor names; * stands for any text, ? for a character
  contract::DType type{};
};

struct TypeRequest {
  contract::DType type{};
  std::optional<contract::DType> embedding, head;  // absent: default_embedding_type, default_head_type
  std::vector<TypeOverride> overrides;             // the last that matches counts
  bool allow_requantise = false;                   // quantised values may be rounded again
};

struct TensorType {
  contract::DType type{};
  std::optional<contract::DType> wanted;  // the type the rows' length forbids, when `type` stands in for it
};

// What a head (and a table that is also the head) becomes beside matrices of `type`: its errors reach the logits directly.
contract::DType default_head_type(contract::DType type);
// What a table of rows becomes beside them.
contract::DType default_embedding_type(contract::DType type);
// `type`, or the type that comes closest among those whose blocks rows of `cols` elements are made of.
contract::DType fitting_type(contract::DType type, std::uint64_t cols);

// One per tensor: matrices as requested, routers and vectors F32, fixed tensors as stored.
// Errors: INVALID_PARAMS (a pattern that matches no tensor, or one whose type cannot change; a type whose blocks do not fit
// rows it was given for by name; quantised tensors without allow_requantise).
base::Result<std::vector<TensorType>> choose_types(const ExportModel& model, const TypeRequest& request);

// general.file_type for a file mostly of this type.
std::uint32_t gguf_file_type(contract::DType type);
// By name, in any case; nullopt for what models are not quantised to.
std::optional<contract::DType> quantise_target(std::string_view name);
// For messages: "F32, F16, ..."
std::string quantise_target_names();

}  // namespace llorch::engine::models
