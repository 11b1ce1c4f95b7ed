#include "text/jinja/syntax/scopes.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "base/assert.h"
#include "text/jinja/syntax/lexer.h"
#include "text/jinja/syntax/undeclared.h"

namespace llorch::text::jinja {
namespace {

// A variable: the level of the scope that owns it, and its name. Scopes side by side share the variables of their level.
struct Variable {
  int level;
  std::string name;
  auto operator<=>(const Variable&) const = default;
};

// How many names are copied for branches: names in all branches, or a small template takes minutes.
struct Copies {
  std::size_t left = 1u << 20;
  int refused_at = 0;  // line; 0: none
};

// What one scope knows of names. A first pass over the scope's statements (not into inner scopes) fills it.
struct Symbols {
  struct Entry {
    Load::Kind kind = Load::Kind::kMissing;
    std::optional<Variable> alias;
  };
  const Symbols* parent = nullptr;
  int level = 0;
  std::map<std::string, Entry> own;
  std::set<std::string> stores;
  Copies* copies = nullptr;

  // False: the limit is passed, and the program is refused.
  bool may_copy(std::size_t times, int line) {
    const std::size_t count = times * (1 + own.size() + stores.size());
    if (copies->refused_at != 0) return false;
    if (count > copies->left) copies->refused_at = line;
    copies->left -= std::min(count, copies->left);
    return copies->refused_at == 0;
  }
  std::optional<Variable> find(const std::string& name) const {
    for (const Symbols* scope = this; scope != nullptr; scope = scope->parent) {
      if (scope->own.contains(name)) return Variable{scope->level, name};
    }
    return std::nullopt;
  }
  void load(const std::string& name) {
    if (!find(name)) own[name] = {Load::Kind::kResolve, std::nullopt};
  }
  void store(const std::string& name) {
    stores.insert(name);
    if (own.contains(name)) return;
    const auto outer = parent != nullptr ? parent->find(name) : std::nullopt;
    own[name] = {outer ? Load::Kind::kAlias : Load::Kind::kMissing, outer};
  }
  void parameter(const std::string& name) {
    stores.insert(name);
    own[name] = {Load::Kind::kParameter, std::nullopt};
  }
  // Joins what the branches of an if assign. What only some of them assign keeps the outer value in the others.
  void join(std::initializer_list<const Symbols*> branches) {
    std::map<std::string, std::size_t> stored;
    for (const Symbols* branch : branches) {
      for (const std::string& name : branch->stores) stored[name] += !stores.contains(name);
    }
    std::erase_if(stored, [](const auto& entry) { return entry.second == 0; });
    for (const Symbols* branch : branches) {
      for (const auto& [name, entry] : branch->own) own[name] = entry;
      stores.insert(branch->stores.begin(), branch->stores.end());
    }
    for (const auto& [name, count] : stored) {
      if (count == branches.size()) continue;
      const auto outer = parent != nullptr ? parent->find(name) : std::nullopt;
      own[name] = {outer ? Load::Kind::kAlias : Load::Kind::kResolve, outer};
    }
  }
};

void collect(const ExprPtr& expr, Symbols& symbols) {
  if (!expr) return;
  if (expr->kind == ExprKind::kName) symbols.load(expr->text);
  for (const ExprPtr& child : expr->children) collect(child, symbols);
  if (!expr->arguments) return;
  for (const ExprPtr& argument : expr->arguments->positional) collect(argument, symbols);
  for (const auto& [name, argument] : expr->arguments->keyword) collect(argument, symbols);
  collect(expr->arguments->star, symbols);
  collect(expr->arguments->star_star, symbols);
}

void collect(const Target& target, Symbols& symbols, bool as_parameter) {
  switch (target.kind) {
    case Target::Kind::kName:
      if (as_parameter)
        symbols.parameter(target.name);
      else
        symbols.store(target.name);
      return;
    case Target::Kind::kNamespaceAttribute: symbols.load(target.name); return;
    case Target::Kind::kTuple:
      for (const Target& item : target.items) collect(item, symbols, as_parameter);
  }
}

void collect(const Block& block, Symbols& symbols);

// A branch of an elif counts as an if of its own without else. What is known of names is copied for each.
void collect_if(const Stmt& stmt, Symbols& symbols) {
  if (!symbols.may_copy(3, stmt.line)) return;
  const auto body_of = [&](std::size_t i, const Symbols& before) {
    Symbols branch = before;
    collect(stmt.branches[i].second, branch);
    return branch;
  };
  collect(stmt.branches[0].first, symbols);
  const Symbols body = body_of(0, symbols);
  Symbols elifs = symbols;
  for (std::size_t i = 1; i < stmt.branches.size(); ++i) {
    if (!elifs.may_copy(2, stmt.line)) break;
    collect(stmt.branches[i].first, elifs);
    const Symbols branch = body_of(i, elifs), without = elifs;
    elifs.join({&branch, &without, &without});
  }
  Symbols otherwise = symbols;
  collect(stmt.else_body, otherwise);
  symbols.join({&body, &elifs, &otherwise});
}

void collect(const Stmt& stmt, Symbols& symbols) {
  switch (stmt.kind) {
    case StmtKind::kOutput:
    case StmtKind::kFor:
    case StmtKind::kCallBlock:
    case StmtKind::kFilterBlock: collect(stmt.expr, symbols); return;
    case StmtKind::kIf: collect_if(stmt, symbols); return;
    case StmtKind::kSet:
      collect(stmt.expr, symbols);
      collect(stmt.target, symbols, false);
      return;
    case StmtKind::kSetBlock: collect(stmt.target, symbols, false); return;
    case StmtKind::kMacro: symbols.store(stmt.macro->name); return;
    case StmtKind::kWith:
      for (const auto& [target, value] : stmt.bindings) collect(value, symbols);
      return;
    case StmtKind::kText:
    case StmtKind::kGeneration:
    case StmtKind::kBreak:
    case StmtKind::kContinue: return;
  }
}

void collect(const Block& block, Symbols& symbols) {
  for (const auto& stmt : block) collect(*stmt, symbols);
}

// One activation record: the template itself, a macro, a call block, a loop's test, a recursive loop.
struct Function {
  Function* parent = nullptr;
  int first_level = 0;  // variables of lower levels belong to the functions around it
  std::map<Variable, int> slots;
  bool has_inner = false;

  int slot(const Variable& variable) {
    return slots.try_emplace(variable, static_cast<int>(slots.size())).first->second;
  }
  SlotRef reference(const Variable& variable) {
    SlotRef ref;
    Function* owner = this;
    for (; variable.level < owner->first_level; owner = owner->parent) ++ref.hops;
    ref.slot = owner->slot(variable);
    return ref;
  }
};

class Binder {
 public:
  base::Result<> run(Program& program) {
    Copies copies;
    Symbols symbols;
    symbols.copies = &copies;
    Function function;
    collect(program.body, symbols);
    TRY(bind(program.body, symbols, function));
    program.scope = scope_of(symbols, function);
    program.slots_count = static_cast<int>(function.slots.size());
    if (copies.refused_at != 0)
      return base::fail(syntax_error(copies.refused_at, "it has too many names in too many branches"));
    return {};
  }

 private:
  static Symbols inside(const Symbols& outer) {
    Symbols symbols;
    symbols.parent = &outer;
    symbols.level = outer.level + 1;
    symbols.copies = outer.copies;
    return symbols;
  }

  static Function function_inside(Function& outer, const Symbols& symbols) {
    outer.has_inner = true;
    Function function;
    function.parent = &outer;
    function.first_level = symbols.level;
    return function;
  }

  static Scope scope_of(const Symbols& symbols, Function& function) {
    Scope scope;
    for (const auto& [name, entry] : symbols.own) {
      Load load;
      load.slot = function.slot({symbols.level, name});
      load.kind = entry.kind;
      load.name = name;
      if (entry.alias) load.alias = function.reference(*entry.alias);
      scope.loads.push_back(std::move(load));
    }
    return scope;
  }

  SlotRef reference(const std::string& name, Symbols& symbols, Function& function) {
    symbols.load(name);
    return function.reference(*symbols.find(name));
  }

  void bind(const ExprPtr& expr, Symbols& symbols, Function& function) {
    if (!expr) return;
    if (expr->kind == ExprKind::kName) expr->slot = reference(expr->text, symbols, function);
    for (const ExprPtr& child : expr->children) bind(child, symbols, function);
    if (!expr->arguments) return;
    for (const ExprPtr& argument : expr->arguments->positional) bind(argument, symbols, function);
    for (const auto& [name, argument] : expr->arguments->keyword) bind(argument, symbols, function);
    bind(expr->arguments->star, symbols, function);
    bind(expr->arguments->star_star, symbols, function);
  }

  base::Result<> bind(Target& target, Symbols& symbols, Function& function) {
    if (target.kind == Target::Kind::kTuple) {
      for (Target& item : target.items) TRY(bind(item, symbols, function));
      return {};
    }
    if (target.kind == Target::Kind::kName && target.name == "loop" && loops_ > 0)
      return base::fail(syntax_error(target.line, "a loop cannot assign to 'loop'"));
    target.slot = reference(target.name, symbols, function);
    return {};
  }

  base::Result<> bind(const Block& block, Symbols& symbols, Function& function) {
    for (const auto& stmt : block) TRY(bind(*stmt, symbols, function));
    return {};
  }

  base::Result<> bind(Stmt& stmt, Symbols& symbols, Function& function) {
    switch (stmt.kind) {
      case StmtKind::kText:
      case StmtKind::kBreak:
      case StmtKind::kContinue: return {};
      case StmtKind::kOutput: bind(stmt.expr, symbols, function); return {};
      case StmtKind::kSet: bind(stmt.expr, symbols, function); return bind(stmt.target, symbols, function);
      case StmtKind::kIf:
        for (auto& [test, body] : stmt.branches) {
          bind(test, symbols, function);
          TRY(bind(body, symbols, function));
        }
        return bind(stmt.else_body, symbols, function);
      case StmtKind::kMacro:
        stmt.slot = reference(stmt.macro->name, symbols, function);
        return bind_function(stmt, symbols, function);
      case StmtKind::kCallBlock: bind(stmt.expr, symbols, function); return bind_function(stmt, symbols, function);
      case StmtKind::kGeneration: return bind_function(stmt, symbols, function);
      case StmtKind::kFor: return bind_for(stmt, symbols, function);
      case StmtKind::kSetBlock: TRY(bind(stmt.target, symbols, function)); return bind_body(stmt, symbols, function);
      case StmtKind::kFilterBlock:
      case StmtKind::kWith: return bind_body(stmt, symbols, function);
    }
    return {};
  }

  // Set blocks, filter blocks and with: one inner scope in the same function.
  base::Result<> bind_body(Stmt& stmt, Symbols& outer, Function& function) {
    Symbols symbols = inside(outer);
    for (const auto& [target, value] : stmt.bindings) collect(target, symbols, true);
    collect(stmt.body, symbols);
    collect(stmt.expr, symbols);
    for (auto& [target, value] : stmt.bindings) {
      bind(value, outer, function);
      TRY(bind(target, symbols, function));
    }
    bind(stmt.expr, symbols, function);
    TRY(bind(stmt.body, symbols, function));
    stmt.scope = scope_of(symbols, function);
    return {};
  }

  base::Result<> bind_function(Stmt& stmt, Symbols& outer, Function& outer_function) {
    MacroCode& code = *stmt.macro;
    Symbols symbols = inside(outer);
    Function function = function_inside(outer_function, symbols);
    bool own_caller = false, own_kwargs = false, own_varargs = false;
    for (const Parameter& parameter : code.parameters) {
      symbols.parameter(parameter.name);
      own_kwargs |= parameter.name == "kwargs";
      own_varargs |= parameter.name == "varargs";
    }
    for (const Parameter& parameter : code.parameters) collect(parameter.default_value, symbols);
    collect(code.body, symbols);
    UndeclaredNames special({"caller", "kwargs", "varargs"});
    special.visit(code.body);
    const auto slot_of = [&](const std::string& name) {
      symbols.parameter(name);
      return function.slot({symbols.level, name});
    };
    for (Parameter& parameter : code.parameters) {
      parameter.slot = function.slot({symbols.level, parameter.name});
      if (parameter.name != "caller") continue;
      own_caller = true;
      if (special.uses("caller") && !parameter.default_value)
        return base::fail(syntax_error(stmt.line, "a parameter named 'caller' needs a default"));
      if (special.uses("caller")) code.caller_slot = parameter.slot;
    }
    if (special.uses("caller") && !own_caller) code.caller_slot = slot_of("caller");
    if (special.uses("kwargs") && !own_kwargs) code.kwargs_slot = slot_of("kwargs");
    if (special.uses("varargs") && !own_varargs) code.varargs_slot = slot_of("varargs");
    for (Parameter& parameter : code.parameters) bind(parameter.default_value, symbols, function);
    TRY(bind(code.body, symbols, function));
    code.scope = scope_of(symbols, function);
    code.slots_count = static_cast<int>(function.slots.size());
    code.keeps_activation = function.has_inner;
    return {};
  }

  base::Result<> bind_for(Stmt& stmt, Symbols& outer, Function& outer_function) {
    LoopCode& loop = *stmt.loop;
    bind(stmt.expr, outer, outer_function);
    UndeclaredNames special({"loop"});
    special.visit(stmt.body);
    loop.extended = loop.recursive || special.uses("loop");
    ++loops_;

    if (stmt.test) {
      Symbols symbols = inside(outer);
      Function function = function_inside(outer_function, symbols);
      collect(loop.test_target, symbols, true);
      collect(stmt.test, symbols);
      TRY(bind(loop.test_target, symbols, function));
      bind(stmt.test, symbols, function);
      loop.test_scope = scope_of(symbols, function);
      loop.test_slots_count = static_cast<int>(function.slots.size());
    }

    Symbols symbols = inside(outer), else_symbols = inside(outer);
    Function own_function;
    if (loop.recursive) own_function = function_inside(outer_function, symbols);
    Function& function = loop.recursive ? own_function : outer_function;
    if (loop.extended) {
      symbols.parameter("loop");
      loop.loop_slot = function.slot({symbols.level, "loop"});
    }
    collect(stmt.target, symbols, true);
    collect(stmt.body, symbols);
    collect(stmt.else_body, else_symbols);
    TRY(bind(stmt.target, symbols, function));
    TRY(bind(stmt.body, symbols, function));
    TRY(bind(stmt.else_body, else_symbols, function));
    loop.body_scope = scope_of(symbols, function);
    loop.else_scope = scope_of(else_symbols, function);
    loop.slots_count = static_cast<int>(own_function.slots.size());
    --loops_;
    return {};
  }

  int loops_ = 0;
};

}  // namespace

base::Result<> bind_names(Program& program) { return Binder().run(program); }

}  // namespace llorch::text::jinja
