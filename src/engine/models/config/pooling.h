#pragma once
// Whether a model's outputs are embeddings, and how the rows of a sequence become one.
#include "base/result.h"
#include "engine/models/config/gguf_keys.h"
#include "engine/models/config/hf_keys.h"
#include "engine/plan/params.h"

namespace llorch::engine::models {

// From `pooling_type` of a GGUF file, or 1_Pooling/config.json of a Hugging Face directory; kNone: a model of logits.
// Errors: CONFIG_KEY_INVALID (a kind of pooling that is not built, or several at once; attention to later rows).
base::Result<plan::Pooling> read_pooling(const GgufKeys& keys);
base::Result<plan::Pooling> read_pooling(const HfKeys& keys);

}  // namespace llorch::engine::models
