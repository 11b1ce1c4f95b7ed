#include "text/jinja/library/library.h"
#include "text/jinja/run/runtime.h"
#include "text/jinja/value/operations.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {

base::Result<Value> Runtime::eval(const Expr& expr, Activation& activation) {
  const Level level(*this);
  TRY(level.check());
  TRY(check());
  line_ = expr.line;
  return eval_node(expr, activation);
}

base::Result<Value> Runtime::eval_node(const Expr& expr, Activation& activation) {
  switch (expr.kind) {
    case ExprKind::kLiteral: return expr.value;
    case ExprKind::kName: {
      const Value& value = variable(expr.slot, activation);
      return value.is(Kind::kMissing) ? expr.value : value;
    }
    case ExprKind::kTuple:
    case ExprKind::kList:
    case ExprKind::kDict: return eval_container(expr, activation);
    case ExprKind::kConcat: return eval_concat(expr, activation);
    case ExprKind::kCompare: return eval_comparison(expr, activation);
    case ExprKind::kConditional:
      if (truth(TRY(eval(*expr.children[0], activation)))) return eval(*expr.children[1], activation);
      if (expr.children[2]) return eval(*expr.children[2], activation);
      return Value::undefined();
    case ExprKind::kAttribute: return attribute(TRY(eval(*expr.children[0], activation)), expr.value.text_ptr());
    case ExprKind::kItem: {
      const Value holder = TRY(eval(*expr.children[0], activation));
      return item(holder, TRY(eval(*expr.children[1], activation)));
    }
    case ExprKind::kSlice: return eval_slice(expr, activation);
    case ExprKind::kCall: return eval_call(expr, activation);
    case ExprKind::kFilter: return eval_filter(expr, activation);
    case ExprKind::kTest: {
      const Value value = TRY(eval(*expr.children[0], activation));
      CallArgs arguments = TRY(eval_arguments(*expr.arguments, activation));
      line_ = expr.line;
      return Value::boolean(TRY(apply_test(expr.text, value, arguments)), value.origin());
    }
    default: return eval_operator(expr, activation);
  }
}

base::Result<Value> Runtime::eval_container(const Expr& expr, Activation& activation) {
  if (expr.kind == ExprKind::kDict) {
    Value dict = heap_.dict();
    for (std::size_t i = 0; i < expr.children.size(); i += 2) {
      const Value key = TRY(eval(*expr.children[i], activation));
      TRY(dict_set(*this, dict.dict(), key, TRY(eval(*expr.children[i + 1], activation))));
    }
    return dict;
  }
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) items.push_back(TRY(eval(*child, activation)));
  return expr.kind == ExprKind::kList ? heap_.list(std::move(items)) : heap_.tuple(std::move(items));
}

base::Result<Value> Runtime::eval_operator(const Expr& expr, Activation& activation) {
  const Value left = TRY(eval(*expr.children[0], activation));
  switch (expr.kind) {
    case ExprKind::kAnd: return truth(left) ? eval(*expr.children[1], activation) : base::Result<Value>(left);
    case ExprKind::kOr: return truth(left) ? base::Result<Value>(left) : eval(*expr.children[1], activation);
    case ExprKind::kNot: return Value::boolean(!truth(left), left.origin());
    case ExprKind::kNegate: return negate(*this, left);
    case ExprKind::kPlus:
      if (left.is(Kind::kFloat)) return left;
      return arithmetic(*this, ExprKind::kAdd, Value::integer(0), left);
    default: break;
  }
  const Value right = TRY(eval(*expr.children[1], activation));
  line_ = expr.line;
  return arithmetic(*this, expr.kind, left, right);
}

base::Result<Value> Runtime::eval_concat(const Expr& expr, Activation& activation) {
  TextBuilder builder(budget());
  for (const ExprPtr& child : expr.children) TRY(print(*this, TRY(eval(*child, activation)), builder));
  return take_string(builder);
}

base::Result<Value> Runtime::eval_comparison(const Expr& expr, Activation& activation) {
  Value left = TRY(eval(*expr.children[0], activation));
  Origin origin = left.origin();
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = TRY(eval(*expr.children[i + 1], activation));
    line_ = expr.line;
    origin = both(origin, right.origin());
    if (!TRY(compare(*this, expr.operators[i], left, right))) return Value::boolean(false, origin);
    left = std::move(right);
  }
  return Value::boolean(true, origin);
}

base::Result<Value> Runtime::eval_slice(const Expr& expr, Activation& activation) {
  const Value value = TRY(eval(*expr.children[0], activation));
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i)
    bounds[i] = expr.children[i + 1] ? TRY(eval(*expr.children[i + 1], activation)) : Value::none();
  line_ = expr.line;
  return slice(*this, value, bounds[0], bounds[1], bounds[2]);
}

base::Result<Value> Runtime::eval_call(const Expr& expr, Activation& activation, const Value* caller) {
  const Expr& callee_expr = *expr.children[0];
  Value callee;
  // A method that is called at once needs no object of its own.
  std::optional<Value> self;
  const Builtin* method = nullptr;
  if (callee_expr.kind == ExprKind::kAttribute) {
    self = TRY(eval(*callee_expr.children[0], activation));
    method = find_method(*self, callee_expr.text);
    if (method == nullptr) callee = TRY(attribute(*self, callee_expr.value.text_ptr()));
  } else {
    callee = TRY(eval(callee_expr, activation));
  }
  CallArgs arguments = TRY(eval_arguments(*expr.arguments, activation));
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  line_ = expr.line;
  if (method == nullptr) return call(callee, std::move(arguments));
  const Level level(*this);
  TRY(level.check());
  return call_builtin(*this, *method, *self, arguments);
}

base::Result<Value> Runtime::eval_filter(const Expr& expr, Activation& activation, const Value* block_text) {
  const Level level(*this);
  TRY(level.check());
  Value input;
  if (!expr.children[0])
    input = block_text != nullptr ? *block_text : Value::undefined();
  else if (expr.children[0]->kind == ExprKind::kFilter)
    input = TRY(eval_filter(*expr.children[0], activation, block_text));
  else
    input = TRY(eval(*expr.children[0], activation));
  CallArgs arguments = TRY(eval_arguments(*expr.arguments, activation));
  line_ = expr.line;
  return apply_filter(expr.text, input, arguments);
}

base::Result<CallArgs> Runtime::eval_arguments(const Arguments& arguments, Activation& activation) {
  CallArgs given;
  for (const ExprPtr& argument : arguments.positional) given.positional.push_back(TRY(eval(*argument, activation)));
  for (const auto& [name, argument] : arguments.keyword) {
    TRY(check(name.size() / 64));
    given.keyword.emplace_back(name, TRY(eval(*argument, activation)));
  }
  if (arguments.star) {
    const std::vector<Value> more = TRY(elements_of(*this, TRY(eval(*arguments.star, activation))));
    given.positional.insert(given.positional.end(), more.begin(), more.end());
  }
  if (arguments.star_star) {
    const Value more = TRY(eval(*arguments.star_star, activation));
    if (!more.is(Kind::kDict)) return base::fail(error(fmt::format("'**' before {}", type_name(more))));
    for (const Dict::Entry& entry : more.dict().entries) {
      if (!entry.key.is(Kind::kString)) return base::fail(error("the name of an argument is no string"));
      // It is copied, and compared with each that is there.
      TRY(check(1 + (1 + given.keyword.size()) * (1 + entry.key.as_string().size() / 64)));
      for (const auto& [name, value] : given.keyword) {
        if (name == entry.key.as_string()) return base::fail(error("an argument is given twice"));
      }
      given.keyword.emplace_back(entry.key.as_string(), entry.value);
    }
  }
  return given;
}

}  // namespace llorch::text::jinja
