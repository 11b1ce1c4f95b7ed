#pragma once
// How files write the bytes of a token.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/normalizer/normalizer.h"
#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text::model {

// Each REQUIRES data.kinds of the size of data.tokens. Control tokens add nothing to the output, unknown ones U+FFFD; no
// model makes a control, unknown or byte token of a text that spells it.

// U+2581 for a space, <0xXX> for single bytes.
std::vector<TokenSpelling> spm_spellings(const TokenizerData& data);
// One character per byte.
std::vector<TokenSpelling> byte_bpe_spellings(const TokenizerData& data);

// What decoding takes away at the start of a text.
enum class LeadingSpace : std::uint8_t {
  kKeep,
  kDropOne,
  kDropInFirstToken,  // all that the first token holds
};

struct DecodedSpellings {
  std::vector<TokenSpelling> spellings;
  LeadingSpace leading_space = LeadingSpace::kKeep;
  bool byte_level = false;  // keys are bytes, not characters
};
// As the decoders of a tokenizer.json say; tokens found in normalized text are spelled as `normalizer` does. UNSUPPORTED_TOKENIZER
// when what a token adds would depend on its neighbours, or when the steps make too much of the tokens.
base::Result<DecodedSpellings> decoded_spellings(const TokenizerData& data, const normalizer::Normalizer& normalizer);

// The lowest token of each byte, among those of kind kByte.
std::array<std::optional<TokenId>, 256> byte_tokens(const TokenizerData& data);

// What byte-level BPE falls back on: the tokens whose key is one byte.
Fallback byte_level_fallback(const Vocabulary& vocabulary, std::optional<TokenId> unknown);

// `text` with U+2581, as which SPM files write a space, as U+0020.
std::string spm_plain_spaces(std::string_view text);

// The bytes a byte-level BPE file spells as `text`; nullopt when a character stands for no byte.
std::optional<std::string> bytes_of_byte_bpe(std::string_view text);

}  // namespace llorch::text::model
