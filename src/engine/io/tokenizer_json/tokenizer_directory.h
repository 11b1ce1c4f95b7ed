#pragma once
// The tokenizer of a Hugging Face model directory as plain data.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_data.h"

namespace llorch::engine::io::tokenizer_json {

// The content of the files; an absent file is an absent value.
struct TokenizerFiles {
  std::string tokenizer;                                            // tokenizer.json
  std::optional<std::string> tokenizer_config, special_tokens_map;  // which token is BOS, EOS; chat templates
  std::optional<std::string> generation_config, config;             // what ends a generation
  std::optional<std::string> chat_template_jinja;                   // goes before the templates of tokenizer_config
  std::optional<std::string> chat_template_json;                    // the form of image models; comes last
  std::vector<text::NamedChatTemplate> more_chat_templates;         // additional_chat_templates/NAME.jinja
};

// CORRUPT_FILE: no JSON. CONFIG_KEY_INVALID: files that contradict themselves. UNSUPPORTED_TOKENIZER: a section or step
// this build cannot do exactly; text::Tokenizer::create may still find another. Bounded by a small multiple of the sizes.
base::Result<text::TokenizerData> parse_tokenizer_files(const TokenizerFiles& files);

// The same from the files of `directory`. IO_ERROR too.
base::Result<text::TokenizerData> read_tokenizer_directory(const std::filesystem::path& directory);

// The tokenizer of a model: a Hugging Face directory's or a GGUF file's. In a file with a tokenizer.json inside
// (gguf_tokenizer.h) that one counts; begin and end tokens and chat templates are the keys' then.
base::Result<text::TokenizerData> read_tokenizer(const std::filesystem::path& model);

}  // namespace llorch::engine::io::tokenizer_json
