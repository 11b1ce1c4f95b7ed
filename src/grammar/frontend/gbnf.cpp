#include "grammar/frontend/gbnf.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/utf8.h"
#include "grammar/ir/code_points.h"
#include "grammar/json_schema/schema_compiler.h"
#include "grammar/token_trie.h"

namespace llorch::grammar::frontend {
namespace {

using ir::ExprId;
using ir::Symbol;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser {
 public:
  GbnfParser(ir::Builder& builder, std::string_view text) : builder_(builder), text_(text) {}

  base::Result<ir::RuleId> parse() {
    if (text_.size() > builder_.limits().text_bytes_max) {
      return failure(fmt::format("the text has more than {} bytes", builder_.limits().text_bytes_max));
    }
    if (!base::is_valid_utf8(text_)) return failure("the text is not UTF-8");
    skip(Lines::kCross);
    while (!at_end()) {
      TRY(rule());
      TRY(builder_.check());
    }
    for (const auto& [name, known] : rules_) {
      if (known.is_defined) continue;
      at_ = known.first_use;
      return failure(fmt::format("the rule {} is not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return failure("there is no rule named root");
    return root->second.id;
  }

 private:
  enum class Lines { kStay, kCross };
  struct KnownRule {
    ir::RuleId id{};
    std::size_t first_use = 0;
    bool is_defined = false;
  };

  tl::unexpected<base::Error> failure(std::string_view what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return base::fail(base::ErrorCode::kInvalidParams, fmt::format("GBNF grammar, line {}: {}", line, what));
  }

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Blanks and comments.
  void skip(Lines lines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines == Lines::kCross)) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (!at_end() && is_name_character(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  KnownRule& known(std::string_view name) {
    const auto [it, added] = rules_.try_emplace(std::string(name));
    if (added) it->second = {builder_.declare(fmt::format("the rule {}", name)), at_, false};
    return it->second;
  }

  base::Result<> rule() {
    const std::string_view of = name();
    if (of.empty()) return failure("a rule is written name ::= alternatives");
    KnownRule& target = known(of);
    if (target.is_defined) return failure(fmt::format("the rule {} is defined twice", of));
    target.is_defined = true;
    skip(Lines::kStay);
    if (!text_.substr(at_).starts_with("::=")) return failure("a rule is written name ::= alternatives");
    at_ += 3;
    skip(Lines::kCross);
    const ExprId body = TRY(choice(Lines::kStay));
    builder_.define(target.id, body);
    if (!at_end() && peek() != '\n') return failure("a line holds more than its rule");
    skip(Lines::kCross);
    return {};
  }

  base::Result<ExprId> choice(Lines lines) {
    std::vector<ExprId> branches{TRY(sequence(lines))};
    while (take('|')) {
      skip(Lines::kCross);
      branches.push_back(TRY(sequence(lines)));
    }
    return branches.size() == 1 ? branches[0] : builder_.choice(std::move(branches));
  }

  base::Result<ExprId> sequence(Lines lines) {
    std::vector<ExprId> parts;
    while (true) {
      const char c = peek();
      ExprId part{};
      if (take('"')) {
        part = TRY(literal());
      } else if (take('[')) {
        part = TRY(set());
      } else if (take('.')) {
        part = ir::one_of(builder_, ir::all_code_points(), ir::Encoding::kUtf8);
      } else if (take('(')) {
        part = TRY(group());
      } else if (take('<')) {
        part = TRY(control_token());
      } else if (take('%')) {
        part = TRY(json());
      } else if (is_name_character(c)) {
        part = builder_.call(known(name()).id);
      } else {
        break;
      }
      skip(Lines::kStay);
      part = TRY(quantified(part));
      parts.push_back(part);
      TRY(builder_.check());
      skip(lines);
    }
    return parts.size() == 1 ? parts[0] : builder_.sequence(std::move(parts));
  }

  // %json and a JSON Schema: the texts valid under it.
  base::Result<ExprId> json() {
    constexpr std::string_view kWord = "json";
    if (!text_.substr(at_).starts_with(kWord)) return failure("a JSON Schema is written %json {...}");
    at_ += kWord.size();
    skip(Lines::kStay);
    if (peek() != '{') return failure("a JSON Schema is written %json {...}");
    const std::size_t bytes = base::json_object_end(text_.substr(at_));
    if (text_[at_ + bytes - 1] != '}') return failure("a JSON Schema is written %json {...}");
    const auto document = TRY(json_schema::Document::parse(text_.substr(at_, bytes), builder_.limits()));
    at_ += bytes;
    return builder_.call(TRY(json_schema::SchemaCompiler(document, builder_).compile()));
  }

  // <[ID]>: the control token with that id.
  base::Result<ExprId> control_token() {
    constexpr std::string_view kWritten = "a control token is written <[ID]>";
    if (!take('[')) return failure(kWritten);
    const std::size_t begin = at_;
    std::uint32_t id = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      id = id * 10 + static_cast<std::uint32_t>(peek() - '0');
      if (id >= TokenTrie::kTokensMax) return failure("no vocabulary has a control token with so large an id");
    }
    if (at_ == begin || !take(']') || !take('>')) return failure(kWritten);
    return builder_.control_token(base::TokenId{id});
  }

  base::Result<ExprId> group() {
    if (++depth_ > builder_.limits().depth_max) {
      return failure(fmt::format("parentheses are nested more than {} deep", builder_.limits().depth_max));
    }
    skip(Lines::kCross);
    const ExprId inner = TRY(choice(Lines::kCross));
    if (!take(')')) return failure("a parenthesis is not closed");
    --depth_;
    return inner;
  }

  base::Result<ExprId> quantified(ExprId part) {
    // Each one nests what is before it, so they count as depth.
    for (std::size_t count = 0;; ++count) {
      ir::Bounds bounds;
      if (take('*')) {
        bounds = {0, ir::kUnbounded};
      } else if (take('+')) {
        bounds = {1, ir::kUnbounded};
      } else if (take('?')) {
        bounds = {0, 1};
      } else if (take('{')) {
        bounds = TRY(counts());
      } else {
        return part;
      }
      if (count == builder_.limits().depth_max) return failure("too many quantifiers in a row");
      part = builder_.repeat(part, bounds);
      skip(Lines::kStay);
    }
  }

  base::Result<ir::Bounds> counts() {
    const auto number = [&]() -> base::Result<std::uint32_t> {
      skip(Lines::kStay);
      const std::size_t begin = at_;
      std::uint64_t value = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
        if (value > ir::kRepeatCountMax) return failure(fmt::format("a repetition is above {}", ir::kRepeatCountMax));
      }
      if (at_ == begin) return failure("a repetition is written {n}, {n,}, {,n} or {n,m}");
      skip(Lines::kStay);
      return static_cast<std::uint32_t>(value);
    };
    ir::Bounds bounds;
    skip(Lines::kStay);
    if (peek() != ',') bounds.min = bounds.max = TRY(number());
    if (take(',')) {
      skip(Lines::kStay);
      bounds.max = peek() == '}' ? ir::kUnbounded : TRY(number());
    }
    if (!take('}')) return failure("a repetition is written {n}, {n,}, {,n} or {n,m}");
    if (bounds.min > bounds.max) return failure("a repetition's minimum is above its maximum");
    return bounds;
  }

  base::Result<ExprId> literal() {
    std::string bytes;
    while (!take('"')) {
      if (at_end() || peek() == '\n') return failure("a literal is not closed");
      const std::size_t begin = at_;
      const Symbol c = TRY(character());
      if (text_[begin] == '\\') {
        append_utf8(bytes, c);
      } else {
        bytes += text_.substr(begin, at_ - begin);
      }
    }
    return builder_.literal(bytes);
  }

  base::Result<ExprId> set() {
    const bool negated = take('^');
    std::vector<ir::SymbolRange> ranges;
    while (!take(']')) {
      if (at_end()) return failure("a bracket is not closed");
      ir::SymbolRange range{};
      range.first = range.last = TRY(character());
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        range.last = TRY(character());
        if (range.last < range.first) return failure("a range in brackets ends before it begins");
      }
      ranges.push_back(range);
    }
    ir::SymbolSet out = ir::intersection(ir::normalise(std::move(ranges)), ir::all_code_points());
    if (negated) out = ir::intersection(ir::complement(out, {0, 0x10FFFF}), ir::all_code_points());
    return ir::one_of(builder_, out, ir::Encoding::kUtf8);
  }

  base::Result<Symbol> character() {
    if (!take('\\')) {
      const base::Utf8Step step = base::next_code_point(text_.substr(at_));
      at_ += step.bytes;
      return static_cast<Symbol>(step.code_point);
    }
    const char c = peek();
    if (!at_end()) ++at_;
    switch (c) {
      case 'n': return Symbol{'\n'};
      case 'r': return Symbol{'\r'};
      case 't': return Symbol{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<Symbol>(c);
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      default: return failure("an escape is one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  base::Result<Symbol> hex(std::size_t digits) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<std::uint64_t>(c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        value = value * 16 + static_cast<std::uint64_t>((c | 0x20) - 'a' + 10);
      } else {
        return failure("hexadecimal digits are missing");
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return failure("this is no Unicode code point");
    return static_cast<Symbol>(value);
  }

  static void append_utf8(std::string& out, Symbol c) {
    const auto byte = [](Symbol bits) { return static_cast<char>(bits); };
    if (c < 0x80) {
      out += byte(c);
    } else if (c < 0x800) {
      out += {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
    } else if (c < 0x10000) {
      out += {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
    } else {
      out +=
          {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
    }
  }

  ir::Builder& builder_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::map<std::string, KnownRule, std::less<>> rules_;
};

}  // namespace

base::Result<ir::RuleId> read_gbnf(ir::Builder& builder, std::string_view text) {
  return GbnfParser(builder, text).parse();
}

}  // namespace llorch::grammar::frontend
