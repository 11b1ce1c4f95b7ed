#pragma once
// What embedding and rerank jobs are made of. A vector is its elements as f32, little-endian, in base64 (base/base64.h), wherever it is
// a text; a score is a decimal from 0 to 1 that reads back as the same f32. Field codecs: embedding_fields.h.
#include <cstdint>
#include <vector>

#include "wire/text_or_tokens.h"

namespace llorch::wire {

inline constexpr std::int64_t kEmbeddingInputsMax = 2048;  // of one request

// Of prompt_tokens: a token of a pair's second text is its id and 1 from this bit on, where the tokenizer tells the two apart.
inline constexpr unsigned kTokenTypeShift = 24;

// On the wire one input, or a list of them.
struct EmbeddingInputs {
  std::vector<TextOrTokens> inputs;  // one or more
};

}  // namespace llorch::wire
