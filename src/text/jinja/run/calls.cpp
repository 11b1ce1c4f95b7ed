// Attributes, items, calls, and the arguments of builtins.
#include "text/jinja/library/library.h"
#include "text/jinja/run/runtime.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

base::Result<Value> loop_cycle(Runtime& run, const Value& self, CallArgs& arguments) {
  if (arguments.positional.empty() || !arguments.keyword.empty()) return base::fail(run.error("'cycle' has no items"));
  const Int count = static_cast<Int>(arguments.positional.size());
  return arguments.positional[static_cast<std::size_t>(self.loop().index0 % count)];
}

base::Result<Value> loop_changed(Runtime& run, const Value& self, CallArgs& arguments) {
  if (!arguments.keyword.empty()) return base::fail(run.error("'changed' takes no named arguments"));
  Loop& loop = self.loop();
  bool changed = !loop.changed_values || loop.changed_values->size() != arguments.positional.size();
  for (std::size_t i = 0; !changed && i < arguments.positional.size(); ++i)
    changed = !TRY(equal(run, (*loop.changed_values)[i], arguments.positional[i]));
  loop.changed_values = arguments.positional;
  return Value::boolean(changed);
}

base::Result<Value> cycler_next(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  Cycler& cycler = self.cycler();
  const Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}

base::Result<Value> cycler_reset(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  self.cycler().position = 0;
  return Value::none();
}

constexpr Builtin kLoopCycle{"cycle", loop_cycle}, kLoopChanged{"changed", loop_changed};
constexpr Builtin kCyclerNext{"next", cycler_next}, kCyclerReset{"reset", cycler_reset};

base::Result<std::optional<Value>> peek(Runtime& run, Loop& loop) {
  if (!loop.after && !loop.exhausted) {
    loop.after = TRY(loop.cursor.next(run));
    loop.exhausted = !loop.after;
  }
  return loop.after;
}

base::Result<Int> loop_length(Runtime& run, Loop& loop) {
  if (loop.length) return *loop.length;
  loop.length = loop.cursor.length();
  if (loop.length) return *loop.length;
  // A lazy source is computed to its end.
  std::vector<Value> rest;
  while (auto item = TRY(loop.cursor.next(run))) {
    if (!run.heap().grow()) return base::fail(run.budget().failure());
    rest.push_back(std::move(*item));
  }
  loop.length = static_cast<Int>(rest.size()) + loop.index0 + 1 + (loop.after ? 1 : 0);
  loop.cursor = TRY(Cursor::over(run, run.heap().list(std::move(rest))));
  return *loop.length;
}

std::optional<std::size_t> sequence_index(const Value& key, Int length) {
  Int at = key.as_int();
  if (at < 0) at += length;
  if (at < 0 || at >= length) return std::nullopt;
  return static_cast<std::size_t>(at);
}

// container[key] as Python does it; no value: TypeError or LookupError.
base::Result<std::optional<Value>> subscript(Runtime& run, const Value& container, const Value& key) {
  if (container.is(Kind::kDict)) {
    if (key.is_sequence() || key.is(Kind::kDict)) {
      // A key that cannot be hashed is no key.
      const auto found = dict_find(run, container.dict(), key);
      if (!found && run.budget().ok()) return std::optional<Value>();
      const Value* value = TRY(base::Result<Value*>(found));
      return value != nullptr ? std::optional(*value) : std::nullopt;
    }
    const Value* value = TRY(dict_find(run, container.dict(), key));
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }
  if (!key.is_integral()) return std::optional<Value>();
  const std::optional<Int> length = length_of(container);
  if (!length) return std::optional<Value>();
  const auto at = sequence_index(key, *length);
  if (!at) return std::optional<Value>();
  switch (container.kind()) {
    case Kind::kString: {
      const Text& text = container.as_text();
      TRY(run.check(1 + text.bytes().size() / 64));
      return std::optional(Value::string(TRY(sub_text(run.budget(), text, text.offset(*at), text.offset(*at + 1)))));
    }
    case Kind::kList:
    case Kind::kTuple: return std::optional(container.sequence().items[*at]);
    case Kind::kRange:
      return std::optional(
          Value::integer(container.range().start + Int{*at} * container.range().step, container.origin()));
    default: return std::optional<Value>();
  }
}

}  // namespace

base::Result<std::optional<Value>> Runtime::loop_attribute(Loop& loop, std::string_view name) {
  const auto number = [](Int value) { return std::optional(Value::integer(value)); };
  const auto or_undefined = [](const std::optional<Value>& value) {
    return std::optional(value.value_or(Value::undefined()));
  };
  if (name == "index0") return number(loop.index0);
  if (name == "index") return number(loop.index0 + 1);
  if (name == "first") return std::optional(Value::boolean(loop.index0 == 0));
  if (name == "last") return std::optional(Value::boolean(!TRY(peek(*this, loop))));
  if (name == "length") return number(TRY(loop_length(*this, loop)));
  if (name == "revindex0") return number(TRY(loop_length(*this, loop)) - loop.index0 - 1);
  if (name == "revindex") return number(TRY(loop_length(*this, loop)) - loop.index0);
  if (name == "depth0") return number(loop.depth0);
  if (name == "depth") return number(loop.depth0 + 1);
  if (name == "previtem") return or_undefined(loop.before);
  if (name == "nextitem") return or_undefined(TRY(peek(*this, loop)));
  return std::optional<Value>();
}

base::Result<std::optional<Value>> Runtime::object_attribute(const Value& value, std::string_view name) {
  const auto method = [&](const Builtin& builtin) {
    auto* bound = heap_.make<Method>();
    bound->self = value;
    bound->builtin = &builtin;
    return std::optional(Value::object(Kind::kMethod, bound));
  };
  switch (value.kind()) {
    case Kind::kNamespace: {
      const Value* found = TRY(dict_find(*this, value.dict(), TRY(heap_.string(name))));
      return found != nullptr ? std::optional(*found) : std::nullopt;
    }
    case Kind::kLoop:
      if (name == "cycle") return method(kLoopCycle);
      if (name == "changed") return method(kLoopChanged);
      return loop_attribute(value.loop(), name);
    case Kind::kCycler:
      if (name == "next") return method(kCyclerNext);
      if (name == "reset") return method(kCyclerReset);
      if (name == "current") return std::optional(value.cycler().items[value.cycler().position]);
      return std::optional<Value>();
    case Kind::kMacro: {
      const MacroCode& code = *value.macro().code;
      if (name == "name") return std::optional(code.name.empty() ? Value::none() : TRY(heap_.string(code.name)));
      if (name == "catch_kwargs") return std::optional(Value::boolean(code.kwargs_slot >= 0));
      if (name == "catch_varargs") return std::optional(Value::boolean(code.varargs_slot >= 0));
      if (name == "caller") return std::optional(Value::boolean(code.caller_slot >= 0));
      if (name != "arguments") return std::optional<Value>();
      std::vector<Value> names;
      for (const Parameter& parameter : code.parameters) names.push_back(TRY(heap_.string(parameter.name)));
      return std::optional(heap_.tuple(std::move(names)));
    }
    case Kind::kTuple:
      if (!value.sequence().is_group) return std::optional<Value>();
      if (name == "grouper") return std::optional(value.sequence().items[0]);
      if (name == "list") return std::optional(value.sequence().items[1]);
      return std::optional<Value>();
    case Kind::kRange:
      if (name == "start") return std::optional(Value::integer(value.range().start, value.origin()));
      if (name == "stop") return std::optional(Value::integer(value.range().stop, value.origin()));
      if (name == "step") return std::optional(Value::integer(value.range().step, value.origin()));
      return std::optional<Value>();
    default: return std::optional<Value>();
  }
}

base::Result<std::optional<Value>> Runtime::own_attribute(const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) return base::fail(undefined_error(value));
  TRY(check());
  if (const Builtin* builtin = find_method(value, name)) {
    auto* bound = heap_.make<Method>();
    bound->self = value;
    bound->builtin = builtin;
    return std::optional(Value::object(Kind::kMethod, bound));
  }
  return object_attribute(value, name);
}

base::Result<Value> Runtime::attribute(const Value& value, const TextPtr& name) {
  if (auto own = TRY(own_attribute(value, name->bytes()))) return std::move(*own);
  if (auto found = TRY(subscript(*this, value, Value::string(name)))) return std::move(*found);
  return Value::undefined(name);
}

base::Result<Value> Runtime::item(const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) return base::fail(undefined_error(value));
  TRY(check());
  if (auto found = TRY(subscript(*this, value, key))) return std::move(*found);
  if (!key.is(Kind::kString)) return Value::undefined();
  if (auto own = TRY(own_attribute(value, key.as_string()))) return std::move(*own);
  return Value::undefined(key.text_ptr());
}

base::Result<Value> Runtime::call(const Value& callee, CallArgs arguments) {
  const Level level(*this);
  TRY(level.check());
  switch (callee.kind()) {
    case Kind::kUndefined: return base::fail(undefined_error(callee));
    case Kind::kMacro: return call_macro(callee.macro(), arguments);
    case Kind::kMethod: return call_builtin(*this, *callee.method().builtin, callee.method().self, arguments);
    case Kind::kFunction: return call_builtin(*this, *callee.function().builtin, Value::undefined(), arguments);
    case Kind::kLoop: {
      const Args given_arguments = TRY(bind_arguments(*this, arguments, {"iterable"}, 1));
      return call_loop(callee.loop(), given_arguments[0]);
    }
    case Kind::kJoiner: {
      TRY(bind_arguments(*this, arguments, {}, 0));
      Joiner& joiner = callee.joiner();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return heap_.string("");
    }
    default: return base::fail(error(fmt::format("{} is called", type_name(callee))));
  }
}

base::Result<Value> Runtime::apply_filter(std::string_view name, const Value& input, CallArgs& arguments) {
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) return base::fail(error(fmt::format("no filter has the name '{}'", name.substr(0, 100))));
  TRY(check());
  return call_builtin(*this, *filter, input, arguments);
}

base::Result<Value> call_builtin(Runtime& run, const Builtin& builtin, const Value& self, CallArgs& arguments) {
  if (builtin.run == nullptr) return base::fail(run.error(fmt::format("'{}' is not supported", builtin.name)));
  return builtin.run(run, self, arguments);
}

base::Result<std::vector<Value>> bind_arguments(Runtime& run, CallArgs& arguments,
                                                std::initializer_list<std::string_view> names, std::size_t required) {
  std::vector<Value> bound(names.size(), Value::missing());
  if (arguments.positional.size() > names.size()) return base::fail(run.error("too many arguments"));
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.keyword) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) return base::fail(run.error("an argument has an unknown name"));
    Value& slot = bound[static_cast<std::size_t>(place - names.begin())];
    if (!slot.is(Kind::kMissing)) return base::fail(run.error("an argument is given twice"));
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i].is(Kind::kMissing))
      return base::fail(run.error(fmt::format("the argument '{}' is missing", *(names.begin() + i))));
  }
  return bound;
}

}  // namespace llorch::text::jinja
