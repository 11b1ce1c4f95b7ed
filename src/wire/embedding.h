#pragma once
// What embedding jobs are made of. A vector is its elements as f32, little-endian, in base64 (base/base64.h), wherever it is
// a text. Field codecs: embedding_fields.h.
#include <cstdint>
#include <string>
#include <vector>

namespace llorch::wire {

inline constexpr std::int64_t kEmbeddingInputsMax = 2048;  // of one request

// On the wire a text, or a list of token ids.
struct EmbeddingInput {
  std::string text;
  std::vector<std::int32_t> tokens;  // not empty: instead of `text`, taken as they are
};

// On the wire one input, or a list of them.
struct EmbeddingInputs {
  std::vector<EmbeddingInput> inputs;  // one or more
};

}  // namespace llorch::wire
