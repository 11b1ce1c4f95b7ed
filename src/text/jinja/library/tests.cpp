// What may stand after `is`, and as the test of select and its kin.
#include <algorithm>

#include "text/jinja/library/library.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

using Arity = std::size_t;
using TestFunction = base::Result<bool> (*)(Runtime& run, const Value& value, const Value& argument);

struct NamedTest {
  std::string_view name;
  Arity arguments;
  TestFunction run;
};

template <Kind kKind>
base::Result<bool> is_kind(Runtime&, const Value& value, const Value&) {
  return value.is(kKind);
}

template <Comparison kComparison>
base::Result<bool> compares(Runtime& run, const Value& value, const Value& argument) {
  return compare(run, kComparison, value, argument);
}

template <bool kWanted>
base::Result<bool> is_boolean(Runtime&, const Value& value, const Value&) {
  return value.is(Kind::kBool) && value.as_bool() == kWanted;
}

template <int kRemainder>
base::Result<bool> has_remainder(Runtime& run, const Value& value, const Value&) {
  const Value rest = TRY(arithmetic(run, ExprKind::kModulo, value, Value::integer(2)));
  return equal(run, rest, Value::integer(kRemainder));
}

base::Result<bool> divisible_by(Runtime& run, const Value& value, const Value& argument) {
  const Value rest = TRY(arithmetic(run, ExprKind::kModulo, value, argument));
  return equal(run, rest, Value::integer(0));
}

// All cased characters are of one case, and there is one.
template <bool (*kIsCase)(char32_t)>
base::Result<bool> has_case(Runtime& run, const Value& value, const Value&) {
  const TextPtr text = TRY(to_text(run, value));
  TRY(run.check(1 + text->bytes().size() / 16));
  bool found = false;
  for (std::size_t at = 0; at < text->bytes().size();) {
    const char32_t c = take_code_point(text->bytes(), at);
    if (kIsCase(c))
      found = true;
    else if (is_upper(c) || is_lower(c) || is_title(c))
      return false;
  }
  return found;
}

base::Result<bool> same_as(Runtime& run, const Value& value, const Value& argument) {
  if (value.kind() != argument.kind()) return false;
  switch (value.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt: return equal(run, value, argument);
    case Kind::kFloat:
    case Kind::kString: return base::fail(run.error("'sameas' of numbers and strings is not supported"));
    default: return value.as_object() == argument.as_object();
  }
}

base::Result<bool> is_sequence(Runtime&, const Value& value, const Value&) {
  switch (value.kind()) {
    case Kind::kUndefined:  // has a length, and __getitem__ is there to refuse
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange: return true;
    default: return false;
  }
}

base::Result<bool> is_callable(Runtime&, const Value& value, const Value&) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kLoop:
    case Kind::kJoiner: return true;
    default: return false;
  }
}

bool filter_exists(std::string_view name) { return find_filter(name) != nullptr; }

// Python looks the value up in a dict, which refuses what cannot be a key.
base::Result<bool> names_one(Runtime& run, const Value& value, bool exists(std::string_view)) {
  if (value.is(Kind::kString)) return exists(value.as_string());
  Dict none;
  return TRY(dict_find(run, none, value)) != nullptr;
}

constexpr NamedTest kTests[] = {
    {"!=", 1, compares<Comparison::kNotEqual>},
    {"<", 1, compares<Comparison::kLess>},
    {"<=", 1, compares<Comparison::kLessEqual>},
    {"==", 1, compares<Comparison::kEqual>},
    {">", 1, compares<Comparison::kGreater>},
    {">=", 1, compares<Comparison::kGreaterEqual>},
    {"boolean", 0, is_kind<Kind::kBool>},
    {"callable", 0, is_callable},
    {"defined", 0,
     [](Runtime&, const Value& v, const Value&) -> base::Result<bool> { return !v.is(Kind::kUndefined); }},
    {"divisibleby", 1, divisible_by},
    {"eq", 1, compares<Comparison::kEqual>},
    {"equalto", 1, compares<Comparison::kEqual>},
    {"escaped", 0, [](Runtime&, const Value&, const Value&) -> base::Result<bool> { return false; }},
    {"even", 0, has_remainder<0>},
    {"false", 0, is_boolean<false>},
    {"filter", 0, [](Runtime& run, const Value& v, const Value&) { return names_one(run, v, filter_exists); }},
    {"float", 0, is_kind<Kind::kFloat>},
    {"ge", 1, compares<Comparison::kGreaterEqual>},
    {"greaterthan", 1, compares<Comparison::kGreater>},
    {"gt", 1, compares<Comparison::kGreater>},
    {"in", 1, compares<Comparison::kIn>},
    {"integer", 0, is_kind<Kind::kInt>},
    {"iterable", 0, [](Runtime&, const Value& v, const Value&) -> base::Result<bool> { return is_iterable(v); }},
    {"le", 1, compares<Comparison::kLessEqual>},
    {"lessthan", 1, compares<Comparison::kLess>},
    {"lower", 0, has_case<is_lower>},
    {"lt", 1, compares<Comparison::kLess>},
    {"mapping", 0, is_kind<Kind::kDict>},
    {"ne", 1, compares<Comparison::kNotEqual>},
    {"none", 0, is_kind<Kind::kNone>},
    {"number", 0, [](Runtime&, const Value& v, const Value&) -> base::Result<bool> { return v.is_number(); }},
    {"odd", 0, has_remainder<1>},
    {"sameas", 1, same_as},
    {"sequence", 0, is_sequence},
    {"string", 0, is_kind<Kind::kString>},
    {"test", 0, [](Runtime& run, const Value& v, const Value&) { return names_one(run, v, test_exists); }},
    {"true", 0, is_boolean<true>},
    {"undefined", 0, is_kind<Kind::kUndefined>},
    {"upper", 0, has_case<is_upper>},
};

const NamedTest* find_test(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const NamedTest& t) { return t.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool test_exists(std::string_view name) { return find_test(name) != nullptr; }

base::Result<bool> Runtime::apply_test(std::string_view name, const Value& value, CallArgs& arguments) {
  const NamedTest* test = find_test(name);
  if (test == nullptr) return base::fail(error(fmt::format("no test has the name '{}'", name.substr(0, 100))));
  TRY(check());
  if (!arguments.keyword.empty() || arguments.positional.size() != test->arguments)
    return base::fail(error(fmt::format("the test '{}' takes {} arguments", test->name, test->arguments)));
  return test->run(*this, value, test->arguments == 1 ? arguments.positional[0] : Value::undefined());
}

}  // namespace llorch::text::jinja
