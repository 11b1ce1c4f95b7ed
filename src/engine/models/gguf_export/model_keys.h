#pragma once
// A configuration as GGUF metadata: the inverse of the families' read_gguf, and the proof that it is one.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/gguf_metadata.h"
#include "engine/models/config/model_config.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// A rotation's divisors, which GGUF keeps as tensors.
struct RopeTensor {
  std::string name;
  std::vector<float> values;
};

struct GgufModelKeys {
  io::GgufMetadata metadata;  // general.architecture and the keys that begin with it
  std::vector<RopeTensor> rope_tensors;
  std::vector<std::string>
      lost;  // what llama.cpp would compute otherwise, though the family's own reader gets it from these keys
};

// general.architecture of such a model. REQUIRES: the family is found in GGUF.
std::string_view gguf_architecture(const Family& family, const ModelConfig& config);

GgufModelKeys gguf_model_keys(const Family& family, const ModelConfig& config);

// The configuration that a reader of these keys gets. Errors: those of the family's read_gguf.
base::Result<ModelConfig> read_back(const Family& family, const GgufModelKeys& keys, std::uint32_t vocab);

// Whether readers of a GGUF file take x[2i] and x[2i + 1] for a rotation's pair where the model has x[i] and x[i + R/2]: rows of
// queries and keys change places then.
bool pairs_become_neighbours(const ModelConfig& wanted, const ModelConfig& got);

// What a reader of a GGUF file would compute otherwise than the model `wanted` does, once its rows have changed places.
struct KeyDifferences {
  std::vector<std::string> lost;   // another model: "window of 24 in layer 0"
  std::vector<std::string> notes;  // below what stored weights resolve
};
KeyDifferences compare(const Family& family, const ModelConfig& wanted, const ModelConfig& got);

}  // namespace llorch::engine::models
