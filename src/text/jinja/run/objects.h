#pragma once
// The callable values and the variables they keep alive.
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/run/cursor.h"
#include "text/jinja/syntax/ast.h"
#include "text/jinja/value/value.h"

namespace llorch::text::jinja {

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// The variables of one running function.
struct Activation final : Object {
  Activation(Activation* outer, int slots_count)
      : parent(outer), slots(static_cast<std::size_t>(slots_count), Value::missing()) {}
  Activation* parent;
  std::vector<Value> slots;
};

struct Macro final : Object {
  const MacroCode* code = nullptr;
  Activation* defined_in = nullptr;
};

// What attribute lookup finds on Python's types. No function: Python has it, this interpreter does not.
struct Builtin {
  std::string_view name;
  base::Result<Value> (*run)(Runtime& run, const Value& self, CallArgs& arguments);
};

struct Method final : Object {
  Value self;
  const Builtin* builtin = nullptr;
};

// A global function; `self` of the builtin is undefined.
struct Function final : Object {
  const Builtin* builtin = nullptr;
};

// The variable `loop`.
struct Loop final : Object {
  explicit Loop(Cursor items) : cursor(std::move(items)) {}

  Cursor cursor;
  Int index0 = -1;
  int depth0 = 0;
  std::optional<Int> length;
  std::optional<Value> after;  // looked at ahead of time
  bool exhausted = false;      // there is nothing to look at
  std::optional<Value> current, before;
  std::optional<std::vector<Value>> changed_values;
  // Of a recursive loop.
  const Stmt* statement = nullptr;
  Activation* defined_in = nullptr;
};

}  // namespace llorch::text::jinja
