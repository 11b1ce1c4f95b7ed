#pragma once
// Whether a model's outputs are embeddings or scores, and how the rows of a sequence become one.
#include "base/result.h"
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models {

// Pooling, linear layers behind it, and whether what comes out is a score. A model without pooling is one of logits.
// GGUF: `pooling_type`; dense_2 and dense_3, or with rank cls and cls.output.
// Hugging Face: 1_Pooling with 2_Dense and 3_Dense, or 1_LogitScore, as Sentence Transformers saves them, or a class that ends in
// ForSequenceClassification.
// REQUIRES: `config` says how rows see each other, and the width. Errors: CONFIG_KEY_INVALID (a kind that is not built, or several
// at once; attention to later rows by a family that has none, or without pooling; labels that are no score); MISSING_WEIGHT.
base::Result<> read_outputs(const GgufKeys& keys, const WeightNames& names, ModelConfig& config);
base::Result<> read_outputs(const HfKeys& keys, const WeightNames& names, ModelConfig& config);

}  // namespace llorch::engine::models
