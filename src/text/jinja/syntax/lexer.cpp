#include "text/jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/value/characters.h"

namespace llorch::text::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return is_name_start(c) || is_ascii_digit(c); }

// Line ends become \n; one at the very end is dropped.
std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  base::Result<std::vector<Token>> run() {
    while (at_ < source_.size()) TRY(lex_outside());
    push(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  struct End {
    std::size_t begin, stop;  // of the whole closing delimiter with what it takes along
    bool found = false;
  };

  std::string_view rest(std::size_t from) const { return std::string_view(source_).substr(from); }
  bool looking_at(std::size_t at, std::string_view what) const { return rest(at).starts_with(what); }
  std::size_t skip_space(std::size_t at) const { return at + leading_white_space(rest(at)); }

  void push(TokenType type, std::string text = {}) { tokens_.push_back({type, line_, std::move(text), 0, 0}); }

  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    if (to > at_) line_starting_ = source_[to - 1] == '\n';
    at_ = to;
  }

  // Text before a tag at `end`, less what the tag's sign or lstrip_blocks take from it.
  void push_data(std::size_t end, char sign, bool is_variable) {
    std::string_view text = rest(at_).substr(0, end - at_);
    if (sign == '-') {
      text.remove_suffix(trailing_white_space(text));
    } else if (sign != '+' && !is_variable) {
      const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 == 0
      if ((line_begin > 0 || line_starting_) && trim_white_space(text.substr(line_begin)).empty())
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) push(TokenType::kData, std::string(text));
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // `close` ("%}", "#}") at `at`, with its sign, the white space after a minus, the line end of trim_blocks.
  End block_close(std::size_t at, std::string_view close) const {
    std::size_t begin = at;
    const char sign = sign_at(at);
    if (sign != '\0') ++at;
    if (!looking_at(at, close)) return {};
    at += close.size();
    if (sign == '-')
      at = skip_space(at);
    else if (sign == '\0' && looking_at(at, "\n"))
      ++at;
    return {begin, at, true};
  }

  base::Result<> lex_outside() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push(TokenType::kData, std::string(rest(at_)));
        advance(source_.size());
        return {};
      }
      if (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#') break;
    }
    const char kind = source_[tag + 1], sign = sign_at(tag + 2);
    push_data(tag, sign, kind == '{');
    const std::size_t inside = tag + 2 + (sign != '\0');
    if (kind == '#') return lex_comment(inside);
    if (kind == '%') {
      if (const std::size_t raw = raw_begin(inside); raw != 0) return lex_raw(raw);
    }
    advance(inside);
    return lex_tag(kind == '{');
  }

  base::Result<> lex_comment(std::size_t inside) {
    for (std::size_t at = inside; at < source_.size(); ++at) {
      if (const End end = block_close(at, "#}"); end.found) {
        advance(end.stop);
        return {};
      }
    }
    return base::fail(syntax_error(line_, "a comment does not end"));
  }

  // Where the text after {% raw %} begins; 0: not a raw tag.
  std::size_t raw_begin(std::size_t at) const {
    at = skip_space(at);
    if (!looking_at(at, "raw")) return 0;
    at = skip_space(at + 3);
    if (looking_at(at, "-%}")) return skip_space(at + 3);
    return looking_at(at, "%}") ? at + 2 : 0;
  }

  base::Result<> lex_raw(std::size_t begin) {
    advance(begin);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t at = skip_space(tag + 2 + (sign != '\0'));
      if (!looking_at(at, "endraw")) continue;
      const End end = block_close(skip_space(at + 6), "%}");
      if (!end.found) continue;
      push_data(tag, sign, false);
      advance(end.stop);
      return {};
    }
    return base::fail(syntax_error(line_, "a raw block does not end"));
  }

  base::Result<> lex_tag(bool is_variable) {
    push(is_variable ? TokenType::kVariableBegin : TokenType::kBlockBegin);
    std::vector<char> open;
    while (at_ < source_.size()) {
      if (open.empty() && lex_tag_end(is_variable)) return {};
      const std::size_t space = leading_white_space(rest(at_));
      if (space > 0) {
        advance(at_ + space);
        continue;
      }
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        TRY(lex_number());
      } else if (is_name_start(c)) {
        std::size_t end = at_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        push(TokenType::kName, source_.substr(at_, end - at_));
        advance(end);
      } else if (c == '\'' || c == '"') {
        TRY(lex_string(c));
      } else {
        TRY(lex_operator(open));
      }
    }
    return base::fail(
        syntax_error(line_, is_variable ? "an expression does not end with }}" : "a tag does not end with %}"));
  }

  bool lex_tag_end(bool is_variable) {
    if (!is_variable) {
      const End end = block_close(at_, "%}");
      if (!end.found) return false;
      push(TokenType::kBlockEnd);
      advance(end.stop);
      return true;
    }
    const bool strip = looking_at(at_, "-}}");
    if (!strip && !looking_at(at_, "}}")) return false;
    push(TokenType::kVariableEnd);
    advance(strip ? skip_space(at_ + 3) : at_ + 2);
    return true;
  }

  // Digits with single underscores between them, from `at`; at itself when there are none.
  std::size_t digits_end(std::size_t at) const {
    while (at < source_.size() && is_ascii_digit(source_[at])) {
      ++at;
      if (at + 1 < source_.size() && source_[at] == '_' && is_ascii_digit(source_[at + 1])) ++at;
    }
    return at;
  }

  // The end of a float at `at_`, or `at_`.
  std::size_t float_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return at_;
    std::size_t end = digits_end(at_);
    bool is_float = false;
    if (looking_at(end, ".") && digits_end(end + 1) > end + 1) {
      end = digits_end(end + 1);
      is_float = true;
    }
    if (looking_at(end, "e") || looking_at(end, "E")) {
      const std::size_t exponent = end + 1 + (sign_at(end + 1) != '\0');
      if (digits_end(exponent) > exponent) return digits_end(exponent);
    }
    return is_float ? end : at_;
  }

  // The end of the integer at `at_` with prefix or without.
  std::size_t integer_end() const {
    const auto based = [&](char letter, auto&& is_digit_of) {
      std::size_t end = at_ + 2;
      if ((source_[at_ + 1] | 0x20) != letter) return at_;
      while (end < source_.size()) {
        const std::size_t digit = end + (source_[end] == '_');
        if (digit >= source_.size() || !is_digit_of(source_[digit])) break;
        end = digit + 1;
      }
      return end > at_ + 2 ? end : at_;
    };
    if (source_[at_] != '0') return digits_end(at_);
    if (at_ + 2 < source_.size()) {
      const std::size_t binary = based('b', [](char c) { return c == '0' || c == '1'; });
      const std::size_t octal = based('o', [](char c) { return c >= '0' && c <= '7'; });
      const std::size_t hex =
          based('x', [](char c) { return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      if (const std::size_t end = std::max({binary, octal, hex}); end > at_) return end;
    }
    std::size_t end = at_ + 1;
    while (looking_at(end, "0") || looking_at(end, "_0")) end += looking_at(end, "0") ? 1 : 2;
    return end;
  }

  base::Result<> lex_number() {
    if (const std::size_t end = float_end(); end > at_) {
      push(TokenType::kFloat);
      const auto value = parse_float(rest(at_).substr(0, end - at_));
      if (!value) return base::fail(syntax_error(line_, "a number is malformed"));
      tokens_.back().number = *value;
      advance(end);
      return {};
    }
    const std::size_t end = integer_end();
    const auto value = parse_int(rest(at_).substr(0, end - at_), 0);
    if (!value) return base::fail(syntax_error(line_, "an integer is too large"));
    push(TokenType::kInteger);
    tokens_.back().integer = *value;
    advance(end);
    return {};
  }

  base::Result<> lex_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return base::fail(syntax_error(line_, "a string does not end"));
    push(TokenType::kString, TRY(unescape(rest(at_ + 1).substr(0, end - at_ - 1))));
    advance(end + 1);
    return {};
  }

  base::Result<std::string> unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kPlain = "\\'\"abfnrtv", kMeaning = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t plain = kPlain.find(c); plain != std::string_view::npos) {
        out += kMeaning[plain];
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        std::size_t digits = 0;
        for (; digits < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++digits, ++i)
          value = value * 8 + static_cast<char32_t>(text[i] - '0');
        --i;
        append_utf8(out, value);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::string_view hex = text.substr(i + 1, count);
        std::uint32_t value = 0;
        const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
        if (error != std::errc() || end != hex.data() + count || value > 0x10FFFF ||
            (value >= 0xD800 && value < 0xE000))
          return base::fail(syntax_error(line_, "an escape in a string names no character"));
        append_utf8(out, value);
        i += count;
      } else if (c == 'N') {
        return base::fail(syntax_error(line_, "\\N{...} in a string is not supported"));
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  base::Result<> lex_operator(std::vector<char>& open) {
    constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return looking_at(at_, op); });
    if (found == kOperators.end()) return base::fail(syntax_error(line_, "a character has no meaning here"));
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        return base::fail(syntax_error(line_, fmt::format("'{}' closes nothing", c)));
      open.pop_back();
    }
    push(TokenType::kOperator, std::string(*found));
    advance(at_ + found->size());
    return {};
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

base::Error syntax_error(int line, std::string_view what) {
  return {base::ErrorCode::kConfigKeyInvalid, fmt::format("chat template, line {}: {}", line, what), {}};
}

base::Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(normalised(source)).run(); }

}  // namespace llorch::text::jinja
