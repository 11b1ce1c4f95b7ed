#include "text/jinja/syntax/expressions.h"

#include <array>
#include <optional>
#include <set>
#include <string>

namespace llorch::text::jinja {
namespace {

int nesting_of(const ExprPtr& e) { return e ? e->nesting : 0; }

int nesting_of(const Arguments& arguments) {
  int deepest = std::max(nesting_of(arguments.star), nesting_of(arguments.star_star));
  for (const ExprPtr& e : arguments.positional) deepest = std::max(deepest, nesting_of(e));
  for (const auto& [name, e] : arguments.keyword) deepest = std::max(deepest, nesting_of(e));
  return deepest;
}

std::optional<Comparison> comparison_of(const Token& token) {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kComparisons = {{{"==", Comparison::kEqual},
                                                                                    {"!=", Comparison::kNotEqual},
                                                                                    {"<", Comparison::kLess},
                                                                                    {"<=", Comparison::kLessEqual},
                                                                                    {">", Comparison::kGreater},
                                                                                    {">=", Comparison::kGreaterEqual}}};
  for (const auto& [text, comparison] : kComparisons) {
    if (token.is_operator(text)) return comparison;
  }
  return std::nullopt;
}

template <class... E>
std::vector<ExprPtr> children_of(E... nodes) {
  std::vector<ExprPtr> children;
  (children.push_back(std::move(nodes)), ...);
  return children;
}

}  // namespace

base::Result<ExprPtr> ExpressionParser::make(ExprKind kind, int line, std::vector<ExprPtr> children, std::string text) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->text = std::move(text);
  for (const ExprPtr& child : children) node->nesting = std::max(node->nesting, nesting_of(child) + 1);
  node->children = std::move(children);
  // Operators that follow each other nest without the parser's recursion.
  if (node->nesting > kTemplateNestingMax) return base::fail(stream_.too_deep());
  return node;
}

base::Result<ExprPtr> ExpressionParser::expression(bool conditional_allowed) {
  const TokenStream::Level level(stream_);
  if (level.too_deep()) return base::fail(stream_.too_deep());
  return conditional_allowed ? conditional() : logical_or();
}

base::Result<ExprPtr> ExpressionParser::conditional() {
  const TokenStream::Level level(stream_);
  if (level.too_deep()) return base::fail(stream_.too_deep());
  int line = stream_.line();
  ExprPtr node = TRY(logical_or());
  while (stream_.skip_name("if")) {
    ExprPtr test = TRY(logical_or());
    ExprPtr otherwise;
    if (stream_.skip_name("else")) otherwise = TRY(conditional());
    node = TRY(make(ExprKind::kConditional, line, children_of(std::move(test), std::move(node), std::move(otherwise))));
    line = stream_.line();
  }
  return node;
}

base::Result<ExprPtr> ExpressionParser::logical_or() {
  int line = stream_.line();
  ExprPtr left = TRY(logical_and());
  while (stream_.skip_name("or")) {
    ExprPtr right = TRY(logical_and());
    left = TRY(make(ExprKind::kOr, line, children_of(std::move(left), std::move(right))));
    line = stream_.line();
  }
  return left;
}

base::Result<ExprPtr> ExpressionParser::logical_and() {
  int line = stream_.line();
  ExprPtr left = TRY(logical_not());
  while (stream_.skip_name("and")) {
    ExprPtr right = TRY(logical_not());
    left = TRY(make(ExprKind::kAnd, line, children_of(std::move(left), std::move(right))));
    line = stream_.line();
  }
  return left;
}

base::Result<ExprPtr> ExpressionParser::logical_not() {
  const TokenStream::Level level(stream_);
  if (level.too_deep()) return base::fail(stream_.too_deep());
  const int line = stream_.line();
  if (!stream_.skip_name("not")) return comparison();
  ExprPtr operand = TRY(logical_not());
  return make(ExprKind::kNot, line, children_of(std::move(operand)));
}

base::Result<ExprPtr> ExpressionParser::comparison() {
  const int line = stream_.line();
  std::vector<ExprPtr> operands = children_of(TRY(sum()));
  std::vector<Comparison> operators;
  for (;;) {
    if (const auto comparison = comparison_of(stream_.current())) {
      stream_.skip();
      operators.push_back(*comparison);
    } else if (stream_.skip_name("in")) {
      operators.push_back(Comparison::kIn);
    } else if (stream_.current().is_name("not") && stream_.look().is_name("in")) {
      stream_.skip(2);
      operators.push_back(Comparison::kNotIn);
    } else {
      break;
    }
    operands.push_back(TRY(sum()));
  }
  if (operators.empty()) return std::move(operands[0]);
  ExprPtr node = TRY(make(ExprKind::kCompare, line, std::move(operands)));
  node->operators = std::move(operators);
  return node;
}

base::Result<ExprPtr> ExpressionParser::binary(Rule operand, std::initializer_list<BinaryOperator> operators) {
  int line = stream_.line();
  ExprPtr left = TRY((this->*operand)());
  for (;;) {
    const BinaryOperator* found = nullptr;
    for (const BinaryOperator& op : operators) {
      if (stream_.current().is_operator(op.text)) found = &op;
    }
    if (found == nullptr) return left;
    stream_.skip();
    ExprPtr right = TRY((this->*operand)());
    left = TRY(make(found->kind, line, children_of(std::move(left), std::move(right))));
    line = stream_.line();
  }
}

base::Result<ExprPtr> ExpressionParser::sum() {
  return binary(&ExpressionParser::concat, {{"+", ExprKind::kAdd}, {"-", ExprKind::kSubtract}});
}

base::Result<ExprPtr> ExpressionParser::concat() {
  const int line = stream_.line();
  std::vector<ExprPtr> pieces = children_of(TRY(product()));
  while (stream_.skip_operator("~")) pieces.push_back(TRY(product()));
  if (pieces.size() == 1) return std::move(pieces[0]);
  return make(ExprKind::kConcat, line, std::move(pieces));
}

base::Result<ExprPtr> ExpressionParser::product() {
  return binary(
      &ExpressionParser::power,
      {{"*", ExprKind::kMultiply}, {"/", ExprKind::kDivide}, {"//", ExprKind::kFloorDivide}, {"%", ExprKind::kModulo}});
}

base::Result<ExprPtr> ExpressionParser::power() { return binary(&ExpressionParser::unary, {{"**", ExprKind::kPower}}); }

base::Result<ExprPtr> ExpressionParser::signed_operand(bool with_filters) {
  const TokenStream::Level level(stream_);
  if (level.too_deep()) return base::fail(stream_.too_deep());
  const int line = stream_.line();
  ExprPtr node;
  if (stream_.current().is_operator("-") || stream_.current().is_operator("+")) {
    const ExprKind kind = stream_.next().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    ExprPtr operand = TRY(signed_operand(false));
    node = TRY(make(kind, line, children_of(std::move(operand))));
  } else {
    node = TRY(primary());
  }
  node = TRY(postfix(std::move(node)));
  if (with_filters) node = TRY(filters_and_tests(std::move(node)));
  return node;
}

base::Result<ExprPtr> ExpressionParser::primary() {
  const Token token = stream_.current();
  ExprPtr node = TRY(make(ExprKind::kLiteral, token.line, {}));
  switch (token.type) {
    case TokenType::kName:
      stream_.skip();
      if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        node->value = Value::boolean(token.text[0] == 't' || token.text[0] == 'T');
      } else if (token.text == "none" || token.text == "None") {
        node->value = Value::none();
      } else {
        node->kind = ExprKind::kName;
        node->text = token.text;
        node->value = Value::undefined(literal_text(token.text));
      }
      return node;
    case TokenType::kString: {
      std::string text;
      while (stream_.current().type == TokenType::kString) text += stream_.next().text;
      node->value = Value::string(literal_text(text));
      return node;
    }
    case TokenType::kInteger:
      stream_.skip();
      node->value = Value::integer(token.integer);
      return node;
    case TokenType::kFloat:
      stream_.skip();
      node->value = Value::number(token.number);
      return node;
    default: break;
  }
  if (stream_.skip_operator("(")) {
    node = TRY(tuple({.parenthesised = true}));
    TRY(stream_.expect_operator(")"));
    return node;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  return base::fail(stream_.unexpected("an expression"));
}

base::Result<ExprPtr> ExpressionParser::tuple(const TupleOptions& options) {
  const int line = stream_.line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) TRY(stream_.expect_operator(","));
    const Token& token = stream_.current();
    if (token.type == TokenType::kVariableEnd || token.type == TokenType::kBlockEnd || token.is_operator(")") ||
        (!options.end_name.empty() && token.is_name(options.end_name)))
      break;
    items.push_back(TRY(expression(options.conditional)));
    if (!stream_.current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !options.parenthesised) return base::fail(stream_.unexpected("an expression"));
  return make(ExprKind::kTuple, line, std::move(items));
}

base::Result<ExprPtr> ExpressionParser::list() {
  const int line = stream_.line();
  TRY(stream_.expect_operator("["));
  std::vector<ExprPtr> items;
  while (!stream_.current().is_operator("]")) {
    if (!items.empty()) TRY(stream_.expect_operator(","));
    if (stream_.current().is_operator("]")) break;
    items.push_back(TRY(expression()));
  }
  TRY(stream_.expect_operator("]"));
  return make(ExprKind::kList, line, std::move(items));
}

base::Result<ExprPtr> ExpressionParser::dict() {
  const int line = stream_.line();
  TRY(stream_.expect_operator("{"));
  std::vector<ExprPtr> items;
  while (!stream_.current().is_operator("}")) {
    if (!items.empty()) TRY(stream_.expect_operator(","));
    if (stream_.current().is_operator("}")) break;
    items.push_back(TRY(expression()));
    TRY(stream_.expect_operator(":"));
    items.push_back(TRY(expression()));
  }
  TRY(stream_.expect_operator("}"));
  return make(ExprKind::kDict, line, std::move(items));
}

base::Result<ExprPtr> ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    const Token& token = stream_.current();
    if (token.is_operator(".") || token.is_operator("["))
      node = TRY(subscript(std::move(node)));
    else if (token.is_operator("("))
      node = TRY(call(std::move(node)));
    else
      return node;
  }
}

base::Result<ExprPtr> ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    const Token& token = stream_.current();
    if (token.is_operator("|"))
      node = TRY(filters(std::move(node)));
    else if (token.is_name("is"))
      node = TRY(test(std::move(node)));
    else if (token.is_operator("("))
      node = TRY(call(std::move(node)));
    else
      return node;
  }
}

base::Result<ExprPtr> ExpressionParser::subscript(ExprPtr node) {
  const int line = stream_.line();
  if (stream_.skip_operator(".")) {
    const Token token = stream_.next();
    if (token.type == TokenType::kName) {
      ExprPtr attribute = TRY(make(ExprKind::kAttribute, line, children_of(std::move(node)), token.text));
      attribute->value = Value::string(literal_text(token.text));
      return attribute;
    }
    if (token.type != TokenType::kInteger)
      return base::fail(syntax_error(line, "expected a name or a number after '.'"));
    ExprPtr index = TRY(make(ExprKind::kLiteral, line, {}));
    index->value = Value::integer(token.integer);
    return make(ExprKind::kItem, line, children_of(std::move(node), std::move(index)));
  }
  TRY(stream_.expect_operator("["));
  std::vector<ExprPtr> parts;  // start, stop, step of a slice; one of an index
  bool is_slice = false;
  while (!stream_.current().is_operator("]")) {
    if (stream_.skip_operator(":")) {
      if (parts.empty()) parts.emplace_back();
      if (is_slice && stream_.look(0).is_operator("]")) break;
      is_slice = true;
      if (parts.size() > 2) return base::fail(stream_.unexpected("']'"));
      const bool empty = stream_.current().is_operator(":") || stream_.current().is_operator("]");
      parts.push_back(empty ? nullptr : TRY(expression()));
      continue;
    }
    if (!parts.empty()) break;
    parts.push_back(TRY(expression()));
  }
  if (parts.empty() || (stream_.current().is_operator(",") && !is_slice)) {
    // x[a, b] looks up the tuple (a, b), and x[] the empty one.
    while (stream_.skip_operator(",")) parts.push_back(TRY(expression()));
    ExprPtr key = TRY(make(ExprKind::kTuple, line, std::move(parts)));
    parts = children_of(std::move(key));
  }
  TRY(stream_.expect_operator("]"));
  std::vector<ExprPtr> children = children_of(std::move(node));
  for (ExprPtr& part : parts) children.push_back(std::move(part));
  if (is_slice) children.resize(4);
  return make(is_slice ? ExprKind::kSlice : ExprKind::kItem, line, std::move(children));
}

base::Result<ExprPtr> ExpressionParser::call(ExprPtr node) {
  const int line = stream_.line();
  auto given = TRY(arguments());
  ExprPtr call_node = TRY(make(ExprKind::kCall, line, children_of(std::move(node))));
  call_node->nesting = std::max(call_node->nesting, nesting_of(*given) + 1);
  call_node->arguments = std::move(given);
  return call_node;
}

base::Result<std::unique_ptr<Arguments>> ExpressionParser::arguments() {
  TRY(stream_.expect_operator("("));
  auto given = std::make_unique<Arguments>();
  std::set<std::string> names;
  const auto malformed = [&] { return base::fail(stream_.error("the arguments of a call are out of order")); };
  bool first = true;
  while (!stream_.current().is_operator(")")) {
    if (!first) {
      TRY(stream_.expect_operator(","));
      if (stream_.current().is_operator(")")) break;
    }
    first = false;
    if (stream_.skip_operator("*")) {
      if (given->star || given->star_star) return malformed();
      given->star = TRY(expression());
    } else if (stream_.skip_operator("**")) {
      if (given->star_star) return malformed();
      given->star_star = TRY(expression());
    } else if (stream_.current().type == TokenType::kName && stream_.look().is_operator("=")) {
      if (given->star_star) return malformed();
      std::string name = stream_.next().text;
      stream_.skip();
      if (!names.insert(name).second)
        return base::fail(stream_.error(fmt::format("the argument '{}' is given twice", name)));
      given->keyword.emplace_back(std::move(name), TRY(expression()));
    } else {
      if (given->star || given->star_star || !given->keyword.empty()) return malformed();
      given->positional.push_back(TRY(expression()));
    }
  }
  TRY(stream_.expect_operator(")"));
  return given;
}

base::Result<std::string> ExpressionParser::dotted_name(std::string_view what) {
  std::string name = TRY(stream_.expect_name(what));
  while (stream_.skip_operator(".")) name += "." + TRY(stream_.expect_name(what));
  return name;
}

base::Result<ExprPtr> ExpressionParser::filters(ExprPtr input, bool inline_first) {
  while (inline_first || stream_.current().is_operator("|")) {
    if (!inline_first) stream_.skip();
    inline_first = false;
    const int line = stream_.line();
    std::string name = TRY(dotted_name("the name of a filter"));
    ExprPtr node = TRY(make(ExprKind::kFilter, line, children_of(std::move(input)), std::move(name)));
    node->arguments = stream_.current().is_operator("(") ? TRY(arguments()) : std::make_unique<Arguments>();
    node->nesting = std::max(node->nesting, nesting_of(*node->arguments) + 1);
    input = std::move(node);
  }
  return input;
}

base::Result<ExprPtr> ExpressionParser::test(ExprPtr node) {
  const int line = stream_.line();
  stream_.skip();  // is
  const bool negated = stream_.skip_name("not");
  std::string name = TRY(dotted_name("the name of a test"));
  ExprPtr result = TRY(make(ExprKind::kTest, line, children_of(std::move(node)), std::move(name)));
  const Token& token = stream_.current();
  const bool starts_operand = token.type == TokenType::kName || token.type == TokenType::kString ||
                              token.type == TokenType::kInteger || token.type == TokenType::kFloat ||
                              token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    result->arguments = TRY(arguments());
  } else {
    result->arguments = std::make_unique<Arguments>();
    if (starts_operand && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
      if (token.is_name("is")) return base::fail(stream_.error("tests with 'is' cannot be chained"));
      ExprPtr operand = TRY(primary());
      result->arguments->positional.push_back(TRY(postfix(std::move(operand))));
    }
  }
  result->nesting = std::max(result->nesting, nesting_of(*result->arguments) + 1);
  if (!negated) return result;
  return make(ExprKind::kNot, line, children_of(std::move(result)));
}

}  // namespace llorch::text::jinja
