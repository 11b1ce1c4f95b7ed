#pragma once
// Sampled tokens to text that may be shown: whole code points only, nothing of a stop string.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace llorch::text {

inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopStringTokensMax = 32;

// INVALID_PARAMS when there are more than kStopStringsMax, one is empty, or one is longer than kStopStringTokensMax
// tokens.
base::Result<> validate_stop_strings(const Tokenizer& tokenizer, std::span<const std::string> stop_strings);

// Bytes of tokens in, well-formed UTF-8 out. At most three bytes wait for the rest of their code point; what can no
// longer become one is replaced by U+FFFD (one per maximal ill-formed part, as WHATWG decodes).
class Utf8Assembler {
 public:
  std::string push(std::string_view bytes);
  std::string finish();

 private:
  std::string pending_;
};

struct TextPiece {
  std::string text;      // may be empty: bytes of an unfinished code point, text held back for a stop string
  bool stopped = false;  // a stop string is complete; the text ends before it
};

// One per sequence, not thread-safe. The texts of all pushes and of finish, joined, are the output.
class TextStream {
 public:
  struct Options {
    std::vector<std::string> stop_strings;  // REQUIRES validate_stop_strings
    bool at_text_start = false;  // no text precedes the first token, so a space the tokenizer puts there is dropped
  };
  // `tokenizer` must outlive the stream.
  TextStream(const Tokenizer& tokenizer, Options options);

  // Exactly one piece per sampled token. After a stop every piece is empty.
  TextPiece push(TokenId token);
  // What was held back. Every token event carries one text, so the last token's text is its push and this together.
  TextPiece finish();

 private:
  const Tokenizer* tokenizer_;
  bool drop_space_;
  Utf8Assembler assembler_;
  StopMatcher matcher_;
};

}  // namespace llorch::text
