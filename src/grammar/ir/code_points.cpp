#include "grammar/ir/code_points.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::grammar::ir {
namespace {

struct ByteRange {
  std::uint8_t first;
  std::uint8_t last;
};
using Spelling = std::vector<ByteRange>;  // any byte of each range, in order

int utf8_bytes(Symbol c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

Spelling utf8_spelling(Symbol first, Symbol last) {
  static constexpr std::array<std::uint8_t, 5> kLead{0, 0, 0xC0, 0xE0, 0xF0};
  const int bytes = utf8_bytes(first);
  Spelling out;
  for (int i = 0; i < bytes; ++i) {
    const int shift = 6 * (bytes - 1 - i);
    const std::uint8_t lead = i == 0 ? kLead[static_cast<std::size_t>(bytes)] : 0x80;
    const Symbol mask = i == 0 ? 0xFF : 0x3F;
    out.push_back({static_cast<std::uint8_t>(lead | (first >> shift & mask)),
                   static_cast<std::uint8_t>(lead | (last >> shift & mask))});
  }
  return out;
}

// Splits [first, last] until every piece is a product of byte ranges: pieces end where the length changes and where a
// lower group of six bits does not run over its whole range.
void append_utf8(std::vector<Spelling>& out, Symbol first, Symbol last) {
  for (const Symbol end : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= end && last > end) {
      append_utf8(out, first, end);
      append_utf8(out, end + 1, last);
      return;
    }
  }
  for (int shift = 6; shift <= 18; shift += 6) {
    const Symbol low = (1u << shift) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      append_utf8(out, first, first | low);
      append_utf8(out, (first | low) + 1, last);
      return;
    }
    if ((last & low) != low) {
      append_utf8(out, first, (last & ~low) - 1);
      append_utf8(out, last & ~low, last);
      return;
    }
  }
  out.push_back(utf8_spelling(first, last));
}

Spelling exactly(std::string_view bytes) {
  Spelling out;
  for (const char c : bytes) out.push_back({static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c)});
  return out;
}

std::string json_escape_of(Symbol c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", c);
  }
}

bool needs_escape(Symbol c) { return c < 0x20 || c == '"' || c == '\\'; }

std::vector<Spelling> spellings(const SymbolSet& set, Encoding encoding) {
  static const SymbolSet kEscaped{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<Spelling> out;
  SymbolSet plain = intersection(set, all_code_points());
  if (encoding == Encoding::kJsonString) {
    for (const SymbolRange& range : intersection(plain, kEscaped)) {
      for (Symbol c = range.first; c <= range.last; ++c) out.push_back(exactly(json_escape_of(c)));
    }
    plain = intersection(plain, complement(kEscaped, {0, 0x10FFFF}));
  }
  for (const SymbolRange& range : plain) append_utf8(out, range.first, range.last);
  return out;
}

void add_spelling(Nfa& nfa, std::uint32_t from, const Spelling& spelling, std::uint32_t to) {
  for (std::size_t i = 0; i < spelling.size(); ++i) {
    const std::uint32_t next = i + 1 == spelling.size() ? to : nfa.add_state();
    nfa.states[from].edges.push_back({spelling[i].first, spelling[i].last, next});
    from = next;
  }
}

// \u and four hexadecimal digits for every code unit of [first, last], whose low byte runs over its whole range.
void add_hex_escape(Nfa& nfa, std::uint32_t from, const std::vector<SymbolRange>& digits, std::uint32_t to) {
  std::uint32_t at = from;
  for (const char c : {'\\', 'u'}) {
    const std::uint32_t next = nfa.add_state();
    nfa.states[at].edges.push_back({static_cast<Symbol>(c), static_cast<Symbol>(c), next});
    at = next;
  }
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::uint32_t next = i + 1 == digits.size() ? to : nfa.add_state();
    for (Symbol digit = digits[i].first; digit <= digits[i].last; ++digit) {
      if (digit < 10) {
        nfa.states[at].edges.push_back({'0' + digit, '0' + digit, next});
      } else {
        nfa.states[at].edges.push_back({'a' + digit - 10, 'a' + digit - 10, next});
        nfa.states[at].edges.push_back({'A' + digit - 10, 'A' + digit - 10, next});
      }
    }
    at = next;
  }
}

}  // namespace

const SymbolSet& all_code_points() {
  static const SymbolSet kAll{{0, 0xD7FF}, {0xE000, 0x10FFFF}};
  return kAll;
}

ExprId spelled(Builder& builder, const Dfa& dfa, Encoding encoding) {
  if (builder.is_over()) return builder.nothing();  // whoever asks the builder is refused
  // A class of thousands of ranges at each of hundreds of lengths takes millions of states, so they are counted as they come.
  const std::size_t states_max = builder.automaton_states_left();
  Nfa nfa;
  nfa.states.resize(dfa.states.size() + 1);
  nfa.accept = static_cast<std::uint32_t>(dfa.states.size());
  for (std::uint32_t i = 0; i < dfa.states.size(); ++i) {
    if (dfa.states[i].accepts) nfa.states[i].epsilons.push_back(nfa.accept);
    for (const Dfa::Edge& edge : dfa.states[i].edges) {
      if (nfa.states.size() > states_max) break;
      for (const Spelling& spelling : spellings({{edge.first, edge.last}}, encoding)) {
        add_spelling(nfa, i, spelling, edge.to);
      }
    }
  }
  return builder.automaton(std::move(nfa));
}

ExprId one_of(Builder& builder, const SymbolSet& set, Encoding encoding) {
  std::vector<std::uint32_t> key{static_cast<std::uint32_t>(encoding)};
  for (const SymbolRange& range : set) key.insert(key.end(), {range.first, range.last});
  return builder.shared(std::move(key), [&] {
    Nfa nfa;
    nfa.start = nfa.add_state();
    nfa.accept = nfa.add_state();
    for (const Spelling& spelling : spellings(set, encoding)) add_spelling(nfa, nfa.start, spelling, nfa.accept);
    return builder.automaton(std::move(nfa));
  });
}

ExprId any_json_character(Builder& builder) {
  Nfa nfa;
  nfa.start = nfa.add_state();
  nfa.accept = nfa.add_state();
  SymbolSet plain{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}};
  for (const Spelling& spelling : spellings(plain, Encoding::kUtf8)) {
    add_spelling(nfa, nfa.start, spelling, nfa.accept);
  }
  for (const char c : std::string_view("\"\\/bfnrt")) {
    add_spelling(nfa, nfa.start, exactly(std::string{'\\', c}), nfa.accept);
  }
  const SymbolRange any{0, 15};
  add_hex_escape(nfa, nfa.start, {{0, 12}, any, any, any}, nfa.accept);
  add_hex_escape(nfa, nfa.start, {{13, 13}, {0, 7}, any, any}, nfa.accept);
  add_hex_escape(nfa, nfa.start, {{14, 15}, any, any, any}, nfa.accept);
  const std::uint32_t between = nfa.add_state();
  add_hex_escape(nfa, nfa.start, {{13, 13}, {8, 11}, any, any}, between);
  add_hex_escape(nfa, between, {{13, 13}, {12, 15}, any, any}, nfa.accept);
  return builder.automaton(std::move(nfa));
}

std::string json_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (needs_escape(static_cast<unsigned char>(c))) {
      out += json_escape_of(static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::vector<Symbol> code_points(std::string_view text) {
  std::vector<Symbol> out;
  while (!text.empty()) {
    const base::Utf8Step step = base::next_code_point(text);
    ASSERT(step.status == base::Utf8Status::kComplete);
    out.push_back(step.code_point);
    text.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace llorch::grammar::ir
