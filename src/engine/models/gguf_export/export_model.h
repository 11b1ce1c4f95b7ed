#pragma once
// A stored model of either format as the GGUF file it will be: metadata, and tensors that are read when they are written.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/gguf_metadata.h"
#include "engine/io/model_files.h"
#include "engine/models/gguf_export/slabs.h"
#include "engine/models/gguf_export/tensor_list.h"

namespace llorch::engine::models {

struct ExportTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // ne0 first
  TensorRole role = TensorRole::kFloats;
  bool fixed = false;                      // keeps its type: nothing is known about it
  plan::DType stored = plan::DType::kF32;  // what read() gives
  float offset = 0;                        // added to every element
  SlabReader read;
  // An earlier tensor of the same values and shape: its bytes are written again where both are stored as one type.
  std::optional<std::size_t> same_as;

  std::uint64_t elements_count() const;
};

struct ExportModel {
  io::GgufMetadata metadata;
  std::vector<ExportTensor> tensors;
  std::vector<std::string> notes;  // for people: what is not quite as it was, or is left out
};

// `files` stay open while the result is used. GGUF: metadata and tensors as they are, in one file. Hugging Face: keys,
// names, shapes and row orders as the field's files have them; without a tokenizer.
// Errors: those of compile_model; FORMAT_CANNOT_EXPRESS (what readers of such a GGUF would compute is not what this model
// does; the message says in what).
base::Result<ExportModel> export_model(const io::ModelFiles& files);

}  // namespace llorch::engine::models
