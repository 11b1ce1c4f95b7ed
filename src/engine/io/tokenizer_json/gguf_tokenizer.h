#pragma once
// The tokenizer of a Hugging Face directory as GGUF metadata.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/gguf_metadata.h"
#include "text/tokenizer_data.h"

namespace llorch::engine::io::tokenizer_json {

// A whole tokenizer.json inside of a GGUF file; it goes before the tokenizer.ggml keys (read_tokenizer).
inline constexpr std::string_view kEmbeddedKey = "tokenizer.huggingface.json";

struct GgufTokenizer {
  GgufMetadata metadata;
  std::vector<std::string> notes;  // for people: what had to be kept in another form, or is missing
};

// tokenizer.ggml keys for byte-level BPE cut by a pattern that GGUF has a name for. What GGUF's keys cannot say, or say
// only nearly, stands in kEmbeddedKey too. Ends of generation, begin tokens and chat templates are keys in any case.
// The keys have a token for each of the `rows` of the model's table and no other (text::fit_to_rows).
// Without a tokenizer.json: nothing but a note. Errors: IO_ERROR; CORRUPT_FILE (no JSON); those of fit_to_rows.
base::Result<GgufTokenizer> gguf_tokenizer(const std::filesystem::path& directory, std::int64_t rows);

// The same from what the files say; `json` is the text of tokenizer.json.
base::Result<GgufTokenizer> gguf_tokenizer(text::TokenizerData data, std::int64_t rows, std::string json);

}  // namespace llorch::engine::io::tokenizer_json
