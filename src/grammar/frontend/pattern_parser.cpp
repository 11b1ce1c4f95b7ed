#include "grammar/frontend/pattern_parser.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "base/utf8.h"

namespace llorch::grammar::frontend {
namespace {

using ir::Symbol;
using ir::SymbolSet;

SymbolSet except(const SymbolSet& set) {
  return ir::intersection(ir::complement(set, {0, 0x10FFFF}), ir::all_code_points());
}

const SymbolSet kDigits{{'0', '9'}};
const SymbolSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// WhiteSpace and LineTerminator of ECMA-262.
const SymbolSet kSpace{{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                       {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const SymbolSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Pattern of_set(SymbolSet set) { return {.kind = Pattern::Kind::kSet, .set = std::move(set)}; }

}  // namespace

tl::unexpected<base::Error> PatternParser::failure(std::string_view what) const {
  return base::fail(base::ErrorCode::kInvalidParams, fmt::format("regular expression, byte {}: {}", at_, what));
}

base::Result<Pattern> PatternParser::parse() {
  if (text_.size() > limits_.text_bytes_max) {
    return failure(fmt::format("it has more than {} bytes", limits_.text_bytes_max));
  }
  if (!base::is_valid_utf8(text_)) return failure("it is not UTF-8");
  Pattern out = TRY(choice());
  if (!at_end()) return failure("a closing parenthesis has no opening one");
  return out;
}

base::Result<Pattern> PatternParser::choice() {
  std::vector<Pattern> branches;
  do {
    branches.push_back(TRY(sequence()));
  } while (take('|'));
  if (branches.size() == 1) return std::move(branches[0]);
  return Pattern{.kind = Pattern::Kind::kChoice, .children = std::move(branches)};
}

base::Result<Pattern> PatternParser::sequence() {
  Pattern out;
  while (!at_end() && peek() != '|' && peek() != ')') {
    if (++nodes_ > limits_.nfa_states_max) return failure("it is too large");
    Pattern part = TRY(atom());
    TRY(quantifier(part));
    out.children.push_back(std::move(part));
  }
  return out;
}

base::Result<Pattern> PatternParser::atom() {
  if (take('(')) return group();
  if (take('[')) return of_set(TRY(set()));
  if (take('.')) return of_set(except(kLineEnds));
  if (take('^')) return Pattern{.kind = Pattern::Kind::kBegin};
  if (take('$')) return Pattern{.kind = Pattern::Kind::kEnd};
  if (take('\\')) return of_set(TRY(escape(false)));
  if (std::string_view("*+?{").find(peek()) != std::string_view::npos) {
    return failure("a quantifier follows nothing; escape it with a backslash to mean the character");
  }
  if (peek() == ']' || peek() == '}')
    return failure("a closing bracket has no opening one; escape it with a backslash");
  const Symbol c = TRY(code_point());
  return of_set({{c, c}});
}

base::Result<Pattern> PatternParser::group() {
  if (++depth_ > limits_.depth_max)
    return failure(fmt::format("groups are nested more than {} deep", limits_.depth_max));
  if (take('?')) {
    if (take('<') && peek() != '=' && peek() != '!') {
      while (!at_end() && peek() != '>') ++at_;  // a named group; the name means nothing here
      if (!take('>')) return failure("a group's name has no end");
    } else if (!take(':')) {
      return failure("look-around and flags are not supported");
    }
  }
  Pattern out = TRY(choice());
  if (!take(')')) return failure("a parenthesis is not closed");
  --depth_;
  return out;
}

base::Result<SymbolSet> PatternParser::set() {
  const bool negated = take('^');
  std::vector<ir::SymbolRange> ranges;
  while (!take(']')) {
    if (at_end()) return failure("a bracket is not closed");
    SymbolSet member = TRY(set_member());
    const bool is_single = member.size() == 1 && member[0].first == member[0].last;
    const bool is_range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
    if (is_range && is_single) {
      ++at_;
      const SymbolSet last = TRY(set_member());
      if (last.size() != 1 || last[0].first != last[0].last || last[0].first < member[0].first) {
        return failure("a range in brackets ends before it begins");
      }
      member[0].last = last[0].last;
    } else if (is_range) {
      return failure("a class such as \\d cannot begin a range; escape the dash");
    }
    ranges.insert(ranges.end(), member.begin(), member.end());
  }
  SymbolSet out = ir::intersection(ir::normalise(std::move(ranges)), ir::all_code_points());
  return negated ? except(out) : out;
}

base::Result<SymbolSet> PatternParser::set_member() {
  if (take('\\')) return escape(true);
  if (peek() == '[') return failure("a bracket within brackets must be escaped");
  const Symbol c = TRY(code_point());
  return SymbolSet{{c, c}};
}

base::Result<SymbolSet> PatternParser::escape(bool in_set) {
  const auto single = [](Symbol c) { return SymbolSet{{c, c}}; };
  if (at_end()) return failure("a backslash at the end escapes nothing");
  const char c = peek();
  ++at_;
  switch (c) {
    case 'd': return kDigits;
    case 'D': return except(kDigits);
    case 'w': return kWord;
    case 'W': return except(kWord);
    case 's': return kSpace;
    case 'S': return except(kSpace);
    case 'n': return single('\n');
    case 'r': return single('\r');
    case 't': return single('\t');
    case 'f': return single('\f');
    case 'v': return single('\v');
    case 'x': return single(TRY(hex(2, 2)));
    case 'u':
      if (take('{')) {
        const Symbol symbol = TRY(hex(1, 6));
        if (!take('}')) return failure("\\u{...} is not closed");
        return single(symbol);
      }
      return single(TRY(hex(4, 4)));
    case '0':
      if (peek() < '0' || peek() > '9') return single(0);
      break;
    case 'b':
      if (in_set) return single('\b');
      break;
    default: break;
  }
  const bool is_letter_or_digit = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  if (is_letter_or_digit) return failure(fmt::format("\\{} is not supported", c));
  --at_;
  return single(TRY(code_point()));
}

base::Result<Symbol> PatternParser::hex(std::size_t digits_min, std::size_t digits_max) {
  Symbol value = 0;
  std::size_t digits = 0;
  for (; digits < digits_max; ++digits, ++at_) {
    const char c = peek();
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<Symbol>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      value = value * 16 + static_cast<Symbol>((c | 0x20) - 'a' + 10);
    } else {
      break;
    }
  }
  if (digits < digits_min) return failure("hexadecimal digits are missing");
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return failure("this is no Unicode code point");
  return value;
}

base::Result<> PatternParser::quantifier(Pattern& pattern) {
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
    return {};
  }
  take('?');  // lazy or greedy: the language is the same
  if (std::string_view("*+?{").find(peek()) != std::string_view::npos && !at_end()) {
    return failure("a quantifier follows a quantifier; put parentheses around the first");
  }
  if (pattern.kind == Pattern::Kind::kBegin || pattern.kind == Pattern::Kind::kEnd) {
    return failure("^ and $ cannot be repeated");
  }
  Pattern inner = std::move(pattern);
  pattern = {.kind = Pattern::Kind::kRepeat, .bounds = bounds};
  pattern.children.push_back(std::move(inner));
  return {};
}

base::Result<ir::Bounds> PatternParser::counts() {
  ir::Bounds bounds;
  bounds.min = bounds.max = TRY(number());
  if (take(',')) bounds.max = peek() == '}' ? ir::kUnbounded : TRY(number());
  if (!take('}')) return failure("a repetition is written {n}, {n,} or {n,m}");
  if (bounds.min > bounds.max) return failure("a repetition's minimum is above its maximum");
  return bounds;
}

base::Result<std::uint32_t> PatternParser::number() {
  std::uint64_t value = 0;
  const std::size_t begin = at_;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
    if (value > ir::kRepeatCountMax) return failure(fmt::format("a repetition is above {}", ir::kRepeatCountMax));
  }
  if (at_ == begin) return failure("a repetition is written {n}, {n,} or {n,m}");
  return static_cast<std::uint32_t>(value);
}

base::Result<Symbol> PatternParser::code_point() {
  const base::Utf8Step step = base::next_code_point(text_.substr(at_));
  at_ += step.bytes;
  return static_cast<Symbol>(step.code_point);
}

}  // namespace llorch::grammar::frontend
