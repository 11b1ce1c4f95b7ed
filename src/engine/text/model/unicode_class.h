#pragma once
// The character classes that pre-tokenizer patterns name.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llorch::engine::text::model {

enum class CharClass : std::uint8_t {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s: the property White_Space
  kOther,   // the rest, ill-formed bytes too
};

struct Char {
  CharClass char_class;
  std::size_t bytes;
};

// The character at the start of non-empty `text`; an ill-formed byte stands alone.
Char next_char(std::string_view text);

}  // namespace llorch::engine::text::model
