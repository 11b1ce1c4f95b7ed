#pragma once
// The parsed template. Names are bound to slots by scopes.h; nothing changes after that.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value/value.h"

namespace llorch::text::jinja {

enum class ExprKind : std::uint8_t {
  kLiteral,  // value
  kName,     // text, slot
  kTuple,    // children
  kList,     // children
  kDict,     // children: key, value, key, value, ...
  kNegate,
  kPlus,
  kNot,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr,
  kConcat,       // children
  kCompare,      // children: operands, operators: between them
  kConditional,  // children: test, then, else (may be null)
  kAttribute,    // children[0].text
  kItem,         // children[0][children[1]]
  kSlice,        // children[0][children[1] : children[2] : children[3]], the last three may be null
  kCall,         // children[0](arguments)
  kFilter,       // children[0] | text(arguments); null inside a filter block
  kTest,         // children[0] is text(arguments)
};

enum class Comparison : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// Where a variable lives: `hops` functions up, then an index into that activation.
struct SlotRef {
  int hops = 0;
  int slot = 0;
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keyword;
  ExprPtr star, star_star;  // may be null
};

struct Expr {
  ExprKind kind;
  int line;
  int nesting = 1;  // levels below and including this one
  std::string text;
  Value value;
  SlotRef slot;
  std::vector<ExprPtr> children;
  std::vector<Comparison> operators;
  std::unique_ptr<Arguments> arguments;
};

// What a scope does on entry: variables that it stores or reads get their first value.
struct Load {
  enum class Kind : std::uint8_t {
    kParameter,  // the scope's owner assigns it
    kResolve,    // from the render's variables, then the globals, by name
    kAlias,      // from an outer scope's variable
    kMissing,
  };
  int slot = 0;
  Kind kind = Kind::kMissing;
  std::string name;
  SlotRef alias;
};

struct Scope {
  std::vector<Load> loads;
};

enum class StmtKind : std::uint8_t {
  kText,         // text
  kOutput,       // expr
  kIf,           // branches, else_body
  kFor,          // target, expr (iterable), test, body, else_body, loop
  kSet,          // target, expr
  kSetBlock,     // target, expr (a filter chain, may be null), body, scope
  kMacro,        // macro, slot
  kCallBlock,    // macro (the block), expr (the call)
  kFilterBlock,  // expr (a filter chain), body, scope
  kWith,         // bindings, body, scope
  kGeneration,   // macro (the block): its text as it is
  kBreak,
  kContinue,
};

// An assignment's left side.
struct Target {
  enum class Kind : std::uint8_t { kName, kTuple, kNamespaceAttribute };
  Kind kind = Kind::kName;
  int line = 0;
  std::string name, attribute;
  SlotRef slot;
  std::vector<Target> items;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  ExprPtr default_value;  // may be null
  int slot = 0;
};

// The code of a macro or a call block.
struct MacroCode {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  Scope scope;
  int slots_count = 0;
  bool keeps_activation = false;  // a macro inside may outlive the call
  // Slots of the special parameters; -1: not used.
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
};

struct LoopCode {
  bool recursive = false;
  bool extended = false;  // the body uses `loop`
  int loop_slot = -1;
  Scope body_scope, else_scope, test_scope;
  Target test_target;        // the target as the test sees it
  int test_slots_count = 0;  // the test is a function of its own
  int slots_count = 0;       // so is the loop, if recursive
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr expr, test;
  Target target;
  SlotRef slot;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Block body, else_body;
  Scope scope;
  std::unique_ptr<MacroCode> macro;
  std::unique_ptr<LoopCode> loop;
};

struct Program {
  Block body;
  Scope scope;
  int slots_count = 0;
};

}  // namespace llorch::text::jinja
