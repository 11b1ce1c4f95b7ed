#pragma once
#include <cstddef>

namespace llorch::grammar {

// What a grammar's text may cost. A text past a limit is refused with INVALID_PARAMS and the limit it broke, so a hostile
// schema costs no more than these allow. The defaults take the largest published tool schemas with room to spare.
struct Limits {
  std::size_t text_bytes_max = 1 << 20;
  std::size_t depth_max = 64;            // nesting of the text: parentheses, sub-schemas, references to references
  std::size_t rules_max = 8192;          // sub-schemas, named rules and counted repetitions
  std::size_t nfa_states_max = 1 << 19;  // of one rule before it is made deterministic
  std::size_t states_max = 1 << 17;      // of all rules together
  std::size_t alternatives_max = 1024;   // combinations of anyOf branches of one sub-schema
  // Of all JSON schemas of the text: sub-schemas and values looked at, states and edges of automata on the way to what is left of
  // them. About a second. A schema without combinations takes some ten steps a keyword and a value.
  std::size_t schema_steps_max = 1 << 23;
};

}  // namespace llorch::grammar
