#include "text/jinja/run/runtime.h"
#include "text/jinja/value/operations.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {
namespace {

// Names of arguments that are compared, or moved up, in the time of a step.
constexpr std::size_t kNamesPerStep = 8;

// The elements of a loop that pass its test. Lazy: a test sees what the body did before.
struct TestedItems final : Iterator {
  TestedItems(Cursor items, const Stmt& loop, Activation& activation_of_test)
      : cursor(std::move(items)), statement(loop), activation(activation_of_test) {}

  base::Result<std::optional<Value>> next(Runtime& run) override {
    while (auto item = TRY(cursor.next(run))) {
      if (TRY(run.test_passes(statement, *item, activation))) return item;
    }
    return std::optional<Value>();
  }

  Cursor cursor;
  const Stmt& statement;
  Activation& activation;
};

}  // namespace

base::Result<Runtime::Flow> Runtime::exec(const Block& block, Activation& activation, TextBuilder& out) {
  const Level level(*this);
  TRY(level.check());
  for (const auto& stmt : block) {
    TRY(check());
    const Flow flow = TRY(exec(*stmt, activation, out));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

base::Result<> Runtime::output(const Value& value, TextBuilder& out) {
  TRY(print(*this, value, out));
  if (!budget().output(out.size())) return base::fail(budget().failure());
  return {};
}

base::Result<Runtime::Flow> Runtime::exec(const Stmt& stmt, Activation& activation, TextBuilder& out) {
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      out.append(stmt.text, Origin::kTemplate);
      if (!budget().output(out.size())) return base::fail(budget().failure());
      return Flow::kNormal;
    case StmtKind::kOutput: TRY(output(TRY(eval(*stmt.expr, activation)), out)); return Flow::kNormal;
    case StmtKind::kIf: return exec_if(stmt, activation, out);
    case StmtKind::kFor: {
      const Value iterable = TRY(eval(*stmt.expr, activation));
      if (!stmt.loop->recursive) return exec_for(stmt, iterable, activation, out, 0, activation);
      Loop loop(TRY(Cursor::over(*this, Value::undefined())));
      loop.statement = &stmt;
      loop.defined_in = &activation;
      loop.depth0 = -1;
      TRY(output(TRY(call_loop(loop, iterable)), out));
      return Flow::kNormal;
    }
    case StmtKind::kSet: TRY(assign(stmt.target, TRY(eval(*stmt.expr, activation)), activation)); return Flow::kNormal;
    case StmtKind::kSetBlock: return exec_set_block(stmt, activation);
    case StmtKind::kMacro: variable(stmt.slot, activation) = make_macro(*stmt.macro, activation); return Flow::kNormal;
    case StmtKind::kCallBlock: return exec_call_block(stmt, activation, out);
    case StmtKind::kGeneration:
      TRY(output(TRY(call(make_macro(*stmt.macro, activation), {})), out));
      return Flow::kNormal;
    case StmtKind::kFilterBlock: return exec_filter_block(stmt, activation, out);
    case StmtKind::kWith: {
      enter(stmt.scope, activation);
      for (const auto& [target, value] : stmt.bindings) TRY(assign(target, TRY(eval(*value, activation)), activation));
      const Flow flow = TRY(exec(stmt.body, activation, out));
      leave(stmt.scope, activation);
      return flow;
    }
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

base::Result<Runtime::Flow> Runtime::exec_if(const Stmt& stmt, Activation& activation, TextBuilder& out) {
  for (const auto& [test, body] : stmt.branches) {
    if (truth(TRY(eval(*test, activation)))) return exec(body, activation, out);
  }
  return exec(stmt.else_body, activation, out);
}

base::Result<bool> Runtime::test_passes(const Stmt& loop_statement, const Value& value, Activation& activation) {
  TRY(assign(loop_statement.loop->test_target, value, activation));
  return truth(TRY(eval(*loop_statement.test, activation)));
}

// `activation` holds the loop's variables, `test_parent` is where the statement stands.
base::Result<Runtime::Flow> Runtime::exec_for(const Stmt& stmt, const Value& iterable, Activation& activation,
                                              TextBuilder& out, int depth0, Activation& test_parent) {
  const LoopCode& code = *stmt.loop;
  Cursor cursor = TRY(Cursor::over(*this, iterable));
  if (stmt.test) {
    auto* test_activation = make_activation(&test_parent, code.test_slots_count);
    enter(code.test_scope, *test_activation);
    Iterator* tested = heap_.make<TestedItems>(std::move(cursor), stmt, *test_activation);
    cursor = TRY(Cursor::over(*this, Value::object(Kind::kIterator, tested)));
  }
  Loop* loop = nullptr;
  if (code.extended) {
    loop = heap_.make<Loop>(std::move(cursor));
    loop->depth0 = depth0;
    loop->statement = code.recursive ? &stmt : nullptr;
    loop->defined_in = &test_parent;
  }
  bool nothing_ran_to_its_end = true;
  for (;;) {
    auto element = loop != nullptr ? TRY(loop_next(*this, *loop)) : TRY(cursor.next(*this));
    if (!element) break;
    if (loop != nullptr) {
      ++loop->index0;
      loop->before = std::exchange(loop->current, *element);
      activation.slots[static_cast<std::size_t>(code.loop_slot)] = Value::object(Kind::kLoop, loop);
    }
    TRY(assign(stmt.target, *element, activation));
    enter(code.body_scope, activation);
    const Flow flow = TRY(exec(stmt.body, activation, out));
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) nothing_ran_to_its_end = false;
  }
  leave(code.body_scope, activation);
  if (!nothing_ran_to_its_end || stmt.else_body.empty()) return Flow::kNormal;
  enter(code.else_scope, activation);
  const Flow flow = TRY(exec(stmt.else_body, activation, out));
  leave(code.else_scope, activation);
  return flow;
}

base::Result<Runtime::Flow> Runtime::exec_set_block(const Stmt& stmt, Activation& activation) {
  TextBuilder body(budget());
  enter(stmt.scope, activation);
  const Flow flow = TRY(exec(stmt.body, activation, body));
  if (flow != Flow::kNormal) return flow;
  Value value = TRY(take_string(body));
  if (stmt.expr) value = TRY(eval_filter(*stmt.expr, activation, &value));
  TRY(assign(stmt.target, value, activation));
  leave(stmt.scope, activation);
  return Flow::kNormal;
}

base::Result<Runtime::Flow> Runtime::exec_filter_block(const Stmt& stmt, Activation& activation, TextBuilder& out) {
  TextBuilder body(budget());
  enter(stmt.scope, activation);
  const Flow flow = TRY(exec(stmt.body, activation, body));
  if (flow != Flow::kNormal) return flow;
  const Value text = TRY(take_string(body));
  TRY(output(TRY(eval_filter(*stmt.expr, activation, &text)), out));
  leave(stmt.scope, activation);
  return Flow::kNormal;
}

Value Runtime::make_macro(const MacroCode& code, Activation& activation) {
  auto* macro = heap_.make<Macro>();
  macro->code = &code;
  macro->defined_in = &activation;
  return Value::object(Kind::kMacro, macro);
}

base::Result<Runtime::Flow> Runtime::exec_call_block(const Stmt& stmt, Activation& activation, TextBuilder& out) {
  const Value caller = make_macro(*stmt.macro, activation);
  TRY(output(TRY(eval_call(*stmt.expr, activation, &caller)), out));
  return Flow::kNormal;
}

base::Result<Value> Runtime::call_loop(const Loop& loop, const Value& iterable) {
  if (loop.statement == nullptr) return base::fail(error("'loop' is called, and the loop is not recursive"));
  const Level level(*this);
  TRY(level.check());
  auto* activation = make_activation(loop.defined_in, loop.statement->loop->slots_count);
  TRY(check());
  TextBuilder body(budget());
  TRY(exec_for(*loop.statement, iterable, *activation, body, loop.depth0 + 1, *loop.defined_in));
  return take_string(body);
}

base::Result<> Runtime::bind_parameters(const Macro& macro, CallArgs& arguments, Activation& activation) {
  const MacroCode& code = *macro.code;
  const auto slot = [&](int index) -> Value& { return activation.slots[static_cast<std::size_t>(index)]; };
  const auto take_keyword = [&](std::string_view name) -> std::optional<Value> {
    for (auto it = arguments.keyword.begin(); it != arguments.keyword.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.keyword.erase(it);
      return value;
    }
    return std::nullopt;
  };
  const std::size_t given = std::min(arguments.positional.size(), code.parameters.size());
  // Each of the others is looked for among the named arguments.
  TRY(check((code.parameters.size() - given) * arguments.keyword.size() / kNamesPerStep));
  bool caller_bound = false;
  for (std::size_t i = 0; i < code.parameters.size(); ++i) {
    caller_bound |= code.parameters[i].name == "caller";
    slot(code.parameters[i].slot) =
        i < given ? arguments.positional[i] : take_keyword(code.parameters[i].name).value_or(Value::missing());
  }
  if (code.caller_slot >= 0 && !caller_bound) {
    const auto caller = take_keyword("caller");
    slot(code.caller_slot) = caller && !caller->is(Kind::kNone) ? *caller : Value::undefined(literal_text("caller"));
  }
  if (code.kwargs_slot >= 0) {
    Value rest = heap_.dict();
    for (auto& [name, value] : arguments.keyword) TRY(dict_set(*this, rest.dict(), TRY(heap_.string(name)), value));
    slot(code.kwargs_slot) = rest;
  } else if (!arguments.keyword.empty()) {
    return base::fail(error(fmt::format("the macro '{}' has no parameter of a given name", code.name)));
  }
  std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                          arguments.positional.end());
  if (code.varargs_slot >= 0)
    slot(code.varargs_slot) = heap_.tuple(std::move(rest));
  else if (!rest.empty())
    return base::fail(error(fmt::format("the macro '{}' takes {} arguments", code.name, code.parameters.size())));
  return {};
}

base::Result<Value> Runtime::call_macro(const Macro& macro, CallArgs& arguments) {
  const MacroCode& code = *macro.code;
  const int line = line_;
  TRY(check(static_cast<std::uint64_t>(code.slots_count) / 16));
  std::optional<Activation> on_stack;
  HeldMemory held(budget());
  const bool fits = code.keeps_activation || held.grow(static_cast<std::size_t>(code.slots_count) * sizeof(Value));
  if (!fits) return base::fail(budget().failure());
  Activation* activation = code.keeps_activation ? make_activation(macro.defined_in, code.slots_count)
                                                 : &on_stack.emplace(macro.defined_in, code.slots_count);
  TRY(bind_parameters(macro, arguments, *activation));
  enter(code.scope, *activation);
  for (const Parameter& parameter : code.parameters) {
    Value& slot = activation->slots[static_cast<std::size_t>(parameter.slot)];
    if (!slot.is(Kind::kMissing)) continue;
    slot = parameter.default_value ? TRY(eval(*parameter.default_value, *activation))
                                   : Value::undefined(TRY(heap_.string(parameter.name)).text_ptr());
  }
  TextBuilder body(budget());
  TRY(exec(code.body, *activation, body));
  line_ = line;
  return take_string(body);
}

}  // namespace llorch::text::jinja
