#pragma once
// What an output may look like, compiled once per request text from a JSON Schema, a regular expression or a GBNF
// grammar. docs/internals/constrained-output.md lists what each of them supports.
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/token_id.h"
#include "grammar/limits.h"

namespace llorch::grammar {

namespace ir {
class RuleSet;
}

// Immutable; shared by any number of threads and matchers. Knows bytes, not tokens: one grammar serves every vocabulary,
// unless it names control tokens. Every string of its language is well-formed UTF-8 with control tokens between its
// characters, and the language is never empty.
//
// All three: INVALID_PARAMS when the text is malformed, uses something unsupported (never ignored), breaks a limit or
// describes nothing at all. The message names the keyword with its JSON pointer, or the byte offset.
class Grammar {
 public:
  // `schema`: JSON text. The language is JSON texts valid under the schema (draft 2020-12), one spelling per string
  // where the schema constrains the string, properties in declared order.
  static base::Result<std::shared_ptr<const Grammar>> from_json_schema(std::string_view schema,
                                                                       const Limits& limits = {});
  // The whole output matches the expression.
  static base::Result<std::shared_ptr<const Grammar>> from_regex(std::string_view expression,
                                                                 const Limits& limits = {});
  // The whole output derives from the rule `root`.
  static base::Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text, const Limits& limits = {});

  // The control tokens that a GBNF grammar names; ascending.
  std::span<const base::TokenId> control_tokens() const;

  const ir::RuleSet& rules() const { return *rules_; }

 private:
  explicit Grammar(std::shared_ptr<const ir::RuleSet> rules) : rules_(std::move(rules)) {}

  std::shared_ptr<const ir::RuleSet> rules_;
};

}  // namespace llorch::grammar
