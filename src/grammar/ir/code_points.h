#pragma once
// Sets and automata of code points, spelled in bytes: as UTF-8, or as the inside of a JSON string.
#include "grammar/ir/automaton.h"
#include "grammar/ir/builder.h"

namespace llorch::grammar::ir {

enum class Encoding {
  kUtf8,
  // RFC 8259 §7 with one spelling per code point: as itself where that is allowed, else \" \\ \b \f \n \r \t, else \u00XX.
  kJsonString,
};

// Every code point but the surrogates, which UTF-8 cannot spell.
const SymbolSet& all_code_points();

// One code point of the set.
ExprId one_of(Builder& builder, const SymbolSet& set, Encoding encoding);
// A string of the language of `dfa`, whose symbols are code points.
ExprId spelled(Builder& builder, const Dfa& dfa, Encoding encoding);
// One code point of a JSON string in any spelling, escaped pairs of surrogates as one.
ExprId any_json_character(Builder& builder);

// `text` (UTF-8) as the inside of a JSON string.
std::string json_escape(std::string_view text);
// REQUIRES is_valid_utf8(text).
std::vector<Symbol> code_points(std::string_view text);

}  // namespace llorch::grammar::ir
