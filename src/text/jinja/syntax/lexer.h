#pragma once
// Template text to tokens: delimiters, whitespace control, literals (Jinja2 3.1 with trim_blocks and lstrip_blocks).
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/value/number.h"

namespace llorch::text::jinja {

enum class TokenType : std::uint8_t {
  kData,  // text outside of tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // text: unescaped
  kInteger,
  kFloat,
  kOperator,  // text: the operator
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;
  Int integer = 0;
  double number = 0;

  bool is(TokenType t, std::string_view value) const { return type == t && text == value; }
  bool is_operator(std::string_view value) const { return is(TokenType::kOperator, value); }
  bool is_name(std::string_view value) const { return is(TokenType::kName, value); }
};

// CONFIG_KEY_INVALID, with the line.
base::Error syntax_error(int line, std::string_view what);

// The last token is kEnd. REQUIRES well-formed UTF-8.
base::Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace llorch::text::jinja
