#pragma once
// The expression half of the parser.
#include <initializer_list>
#include <string_view>

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/token_stream.h"

namespace llorch::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  struct TupleOptions {
    bool conditional = true;         // `a if b` may stand without parentheses
    bool parenthesised = false;      // so it may be empty
    std::string_view end_name = {};  // a name that ends it
  };
  base::Result<ExprPtr> expression(bool conditional = true);
  // One expression, or a tuple when commas follow.
  base::Result<ExprPtr> tuple(const TupleOptions& options);
  // `| filter | filter`, around `input` (may be null). `inline_first`: the first has no bar.
  base::Result<ExprPtr> filters(ExprPtr input, bool inline_first = false);
  base::Result<ExprPtr> primary();

 private:
  using Rule = base::Result<ExprPtr> (ExpressionParser::*)();
  struct BinaryOperator {
    std::string_view text;
    ExprKind kind;
  };

  base::Result<ExprPtr> make(ExprKind kind, int line, std::vector<ExprPtr> children, std::string text = {});
  base::Result<ExprPtr> binary(Rule operand, std::initializer_list<BinaryOperator> operators);
  base::Result<ExprPtr> conditional();
  base::Result<ExprPtr> logical_or();
  base::Result<ExprPtr> logical_and();
  base::Result<ExprPtr> logical_not();
  base::Result<ExprPtr> comparison();
  base::Result<ExprPtr> sum();
  base::Result<ExprPtr> concat();
  base::Result<ExprPtr> product();
  base::Result<ExprPtr> power();
  base::Result<ExprPtr> unary() { return signed_operand(true); }
  base::Result<ExprPtr> signed_operand(bool with_filters);
  base::Result<ExprPtr> list();
  base::Result<ExprPtr> dict();
  base::Result<ExprPtr> postfix(ExprPtr node);
  base::Result<ExprPtr> filters_and_tests(ExprPtr node);
  base::Result<ExprPtr> subscript(ExprPtr node);
  base::Result<ExprPtr> test(ExprPtr node);
  base::Result<ExprPtr> call(ExprPtr node);
  base::Result<std::unique_ptr<Arguments>> arguments();
  base::Result<std::string> dotted_name(std::string_view what);

  TokenStream& stream_;
};

}  // namespace llorch::text::jinja
