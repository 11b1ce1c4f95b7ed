#pragma once
// Whether a value is valid under a schema: which values of an enum the conditions beside it leave.
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grammar/json_schema/conditions.h"
#include "grammar/json_schema/members.h"
#include "grammar/json_schema/value_numbers.h"

namespace llorch::grammar::json_schema {

// Remembers every verdict and what it read of a schema, so that the number of paths to a schema does not matter. What is
// left, schemas times values, is counted in `builder`'s steps.
class Validator {
 public:
  // All outlive it.
  Validator(const Document& document, ir::Builder& builder, Members& members)
      : document_(document), builder_(builder), members_(members) {}

  // REQUIRES a value of the document.
  base::Result<bool> admits(Node schema, Node value);

 private:
  // Keywords of one schema, each read when a value first asks for it.
  struct Facts {
    std::optional<std::uint32_t> types;
    std::optional<std::unordered_set<std::uint32_t>> listed;  // numbers of the values of `enum`
    std::optional<StringConditions> string;
    std::vector<ir::Dfa> languages;  // of the first patterns in `string`
    std::optional<NumberConditions> number;
  };
  using Question = std::pair<Node, Node>;  // schema, value
  struct QuestionHash {
    std::size_t operator()(const Question& question) const {
      return std::hash<Node>()(question.first) * 1000003 + std::hash<Node>()(question.second);
    }
  };

  base::Result<Facts*> facts_of(Node schema);
  base::Result<bool> check_all(Node schema, Facts& facts, Node value);
  base::Result<bool> check_listed(Node schema, Facts& facts, Node value);
  base::Result<bool> check_branches(Node schema, Node value);
  base::Result<bool> check_string(Node schema, Facts& facts, std::string_view text);
  base::Result<bool> check_number(Node schema, Facts& facts, const boost::json::value& value);
  base::Result<bool> check_array(Node schema, const boost::json::array& values);
  base::Result<bool> check_object(Node schema, const boost::json::object& members);
  bool has_twins(const boost::json::array& values);

  const Document& document_;
  ir::Builder& builder_;
  Members& members_;
  ValueNumbers numbers_;
  std::unordered_map<Node, Facts> facts_;
  std::unordered_map<Question, bool, QuestionHash> verdicts_;
  std::map<std::string, boost::json::value, std::less<>> names_;  // of members, as values for `propertyNames`
  std::size_t depth_ = 0;
};

}  // namespace llorch::grammar::json_schema
