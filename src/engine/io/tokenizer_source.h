#pragma once
// The tokenizer of a GGUF file as plain data: the one place where engine/io knows engine/text.
#include "base/result.h"
#include "engine/io/gguf.h"
#include "engine/text/tokenizer_data.h"

namespace llorch::engine::io {

// Reads the tokenizer.ggml.* keys (engine.md §4.1); copies, so the file may close. CONFIG_KEY_MISSING,
// CONFIG_KEY_INVALID. Whether this build can run the tokenizer is text::Tokenizer::create's to say.
base::Result<text::TokenizerData> read_tokenizer_data(const GgufFile& file);

}  // namespace llorch::engine::io
