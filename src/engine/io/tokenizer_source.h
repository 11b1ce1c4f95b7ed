#pragma once
// The tokenizer of a GGUF file as plain data: the one place where engine/io knows text.
#include <cstddef>
#include <string>

#include "base/result.h"
#include "engine/io/gguf.h"
#include "text/tokenizer_data.h"

namespace llorch::engine::io {

// How a converter spells a row of the model's table that no token has; its kind is unused.
std::string padding_spelling(std::size_t id);

// Reads the tokenizer.ggml.* keys; copies, so the file may close. CONFIG_KEY_MISSING,
// CONFIG_KEY_INVALID. Whether this build can run the tokenizer is text::Tokenizer::create's to say.
base::Result<text::TokenizerData> read_tokenizer_data(const GgufFile& file);
// Only what tokens are for: begin, end and unknown, what is added to a text, chat templates. Keys that are not there leave
// what `data` has.
base::Result<> read_tokenizer_roles(const GgufFile& file, text::TokenizerData& data);

}  // namespace llorch::engine::io
