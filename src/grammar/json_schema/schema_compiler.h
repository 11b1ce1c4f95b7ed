#pragma once
// JSON Schema to rules. A rule stands for a set of sub-schemas that must all hold: `allOf` and `$ref` add members to the
// set, `anyOf` splits it, and what the members ask of a property or an item is a set again. Equal sets are one rule, which
// makes recursion a call and bounds the work by the number of sets a schema can form.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "grammar/ir/builder.h"
#include "grammar/ir/code_points.h"
#include "grammar/json_schema/admits.h"
#include "grammar/json_schema/conditions.h"
#include "grammar/json_schema/document.h"
#include "grammar/json_schema/members.h"

namespace llorch::grammar::json_schema {

class SchemaCompiler {
 public:
  // Both outlive the compiler.
  SchemaCompiler(const Document& document, ir::Builder& builder);

  // The rule of the whole schema. INVALID_PARAMS names keyword and pointer.
  base::Result<ir::RuleId> compile();

 private:
  // Expansion (schema_compiler.cpp).
  struct Choice {
    const boost::json::array* branches;  // null: null, or what `nullable` says of itself without being null
    Node nullable;
    std::vector<Node> ancestors;
  };
  struct Expansion {
    Schemas schemas;
    std::unordered_set<Node> seen;  // the same schemas
    std::vector<Choice> choices;    // not made yet
    bool is_impossible = false;
    // Forgets what was added since there were as many.
    void shrink(std::size_t schemas_count, std::size_t choices_count);
  };
  base::Result<ir::RuleId> rule_of(const std::vector<Node>& all);
  base::Result<std::vector<Schemas>> alternatives(const std::vector<Node>& all);
  base::Result<> expand(Node node, std::vector<Node>& ancestors, Expansion& into);
  // The keywords of an object schema, but for `nullable`.
  base::Result<> expand_keywords(Node node, std::vector<Node>& ancestors, Expansion& into);
  // Leaves `expansion` as it is.
  base::Result<> choose(Expansion& expansion, std::vector<Schemas>& out, std::size_t& tried);
  base::Result<ir::ExprId> value(const std::vector<Node>& all);
  base::Result<ir::ExprId> value_of(const Schemas& schemas);
  base::Result<ir::ExprId> typed_value(const Schemas& schemas, std::uint32_t types);

  // Scalars (scalars.cpp).
  base::Result<std::optional<std::vector<Node>>> listed_values(const Schemas& schemas);
  base::Result<ir::ExprId> number(const Schemas& schemas, bool integer);
  base::Result<ir::ExprId> string(const Schemas& schemas);
  // The strings that `schemas` allow, over code points.
  base::Result<ir::Dfa> string_language(const Schemas& schemas);
  base::Result<ir::Dfa> language_of(Node for_messages, const StringConditions& conditions);

  // Arrays and objects (containers.cpp).
  struct Member {
    std::string name;
    bool required = false;
    std::vector<Node> schemas;
  };
  base::Result<ir::ExprId> array(const Schemas& schemas);
  base::Result<ir::ExprId> object(const Schemas& schemas);
  // How many members written the states of an object tell apart.
  base::Result<std::uint32_t> written_max(const Schemas& schemas, const ir::Bounds& count, std::size_t members);
  base::Result<std::vector<Member>> declared_members(const Schemas& schemas);
  // `names`: of names_language().
  base::Result<> add_schemas(const Schemas& schemas, const std::optional<ir::Dfa>& names, std::vector<Member>& members);
  // `"name": value` of members that are not declared; nothing when there can be none.
  base::Result<std::optional<ir::ExprId>> other_member(const Schemas& schemas, std::optional<ir::Dfa> names,
                                                       const std::vector<Member>& declared);
  base::Result<std::vector<const MemberPattern*>> member_patterns(const Schemas& schemas);
  base::Result<std::optional<ir::Dfa>> names_language(const Schemas& schemas);
  base::Result<ir::ExprId> quoted(std::optional<ir::Dfa> names);

  // Counts what no operation on automata does: the states of a language that is copied, or spelled in bytes.
  base::Result<> spend_on(const ir::Dfa& language);
  // ir::intersect(), unite() or subtract(), and what that takes, counted.
  using SetOperation = std::optional<ir::Dfa>(const ir::Dfa&, const ir::Dfa&, std::size_t, ir::Work*);
  base::Result<std::optional<ir::Dfa>> combined(SetOperation& operation, const ir::Dfa& a, const ir::Dfa& b);
  base::Result<std::optional<ir::Dfa>> determinised(const ir::Nfa& nfa);
  const Limits& limits() const { return builder_.limits(); }
  ir::ExprId space() { return builder_.call(space_); }

  const Document& document_;
  ir::Builder& builder_;
  Members members_;
  Validator validator_;
  ir::RuleId space_{};                               // what may stand between tokens of JSON
  ir::RuleId character_{};                           // of a string, in any spelling
  ir::RuleId any_string_{};                          // with its quotes
  std::unordered_map<Node, std::uint32_t> numbers_;  // in the order of discovery
  std::vector<Node> nodes_;
  std::map<std::vector<std::uint32_t>, ir::RuleId> rules_;
  // By their conditions.
  std::map<std::string, ir::ExprId> number_exprs_;
  std::map<std::string, ir::ExprId> string_exprs_;  // without quotes
  std::vector<std::pair<ir::RuleId, std::vector<Node>>> work_;
};

// `value` as JSON, the one way an enum spells it.
std::string to_json(const boost::json::value& value);

}  // namespace llorch::grammar::json_schema
