#include "text/jinja/value/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/find_text.h"
#include "text/jinja/run/runtime.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {
namespace {

// Past every length, so that a slice's step may be cut to it.
constexpr Int kStepMax = Int{1} << 62;

base::Error type_error(Runtime& run, std::string_view what, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) return run.undefined_error(a);
  if (b.is(Kind::kUndefined)) return run.undefined_error(b);
  return run.error(fmt::format("{} between {} and {}", what, type_name(a), type_name(b)));
}

base::Error overflow(Runtime& run) { return run.error("a number is too large"); }

// -1, 0, 1; 2 when not comparable (NaN).
int order_of_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return (a.as_int() > b.as_int()) - (a.as_int() < b.as_int());
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) {
    const double x = a.as_float(), y = b.as_float();
    return std::isnan(x) || std::isnan(y) ? 2 : (x > y) - (x < y);
  }
  if (b.is(Kind::kFloat)) {
    const int reversed = order_of_numbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  // A float and an integer, exactly.
  const double x = a.as_float();
  if (std::isnan(x)) return 2;
  const auto whole = truncate_float(x);
  if (!whole) return x > 0 ? 1 : -1;
  if (*whole != b.as_int()) return *whole > b.as_int() ? 1 : -1;
  const double fraction = x - std::trunc(x);
  return (fraction > 0) - (fraction < 0);
}

base::Result<bool> equal_sequences(Runtime& run, const Sequence& a, const Sequence& b) {
  if (a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!TRY(equal(run, a.items[i], b.items[i]))) return false;
  }
  return true;
}

base::Result<bool> equal_dicts(Runtime& run, Dict& a, Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Dict::Entry& entry : a.entries) {
    const Value* other = TRY(dict_find(run, b, entry.key));
    if (other == nullptr || !TRY(equal(run, entry.value, *other))) return false;
  }
  return true;
}

base::Result<std::size_t> hash_of(Runtime& run, const Value& key) {
  switch (key.kind()) {
    case Kind::kUndefined: return 2;
    case Kind::kNone: return 1;
    case Kind::kBool:
    case Kind::kInt: return std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(key.as_int()));
    case Kind::kFloat: {
      const auto whole = truncate_float(key.as_float());
      if (whole && static_cast<double>(*whole) == key.as_float())
        return std::hash<std::uint64_t>{}(static_cast<std::uint64_t>(*whole));
      return std::hash<double>{}(key.as_float());
    }
    case Kind::kString:
      TRY(run.check_text(key.as_string().size()));
      return std::hash<std::string_view>{}(key.as_string());
    case Kind::kTuple: {
      const Runtime::Level level(run);
      TRY(level.check());
      TRY(run.check(key.sequence().items.size()));
      std::size_t hash = 7;
      for (const Value& item : key.sequence().items) hash = hash * 31 + TRY(hash_of(run, item));
      return hash;
    }
    case Kind::kList:
    case Kind::kDict: break;
    case Kind::kDictView:
      if (key.dict_view().part != DictView::Part::kValues) break;
      [[fallthrough]];
    case Kind::kRange: return 3;
    default: return std::hash<const void*>{}(key.as_object());
  }
  return base::fail(run.error(fmt::format("{} cannot be a key", type_name(key))));
}

base::Result<Value> integer_arithmetic(Runtime& run, ExprKind op, Int a, Int b, Origin origin) {
  Int result = 0;
  bool overflowed = false;
  switch (op) {
    case ExprKind::kAdd: overflowed = __builtin_add_overflow(a, b, &result); break;
    case ExprKind::kSubtract: overflowed = __builtin_sub_overflow(a, b, &result); break;
    case ExprKind::kMultiply: overflowed = __builtin_mul_overflow(a, b, &result); break;
    case ExprKind::kFloorDivide:
    case ExprKind::kModulo: {
      if (b == 0) return base::fail(run.error("division by zero"));
      if (b == -1) {  // the one quotient that overflows
        overflowed = __builtin_sub_overflow(Int{0}, a, &result);
        if (op == ExprKind::kModulo) return Value::integer(0, origin);
        break;
      }
      Int quotient = a / b, remainder = a % b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        --quotient;
        remainder += b;
      }
      result = op == ExprKind::kModulo ? remainder : quotient;
      break;
    }
    case ExprKind::kDivide:
      if (b == 0) return base::fail(run.error("division by zero"));
      return Value::number(static_cast<double>(a) / static_cast<double>(b), origin);
    default: {
      if (b < 0) {
        if (a == 0) return base::fail(run.error("zero to a negative power"));
        return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)), origin);
      }
      result = 1;
      if (a == 0 || a == 1) return Value::integer(b == 0 ? 1 : a, origin);
      if (a == -1) return Value::integer(b % 2 == 0 ? 1 : -1, origin);
      for (Int i = 0; i < b && !overflowed; ++i) overflowed = __builtin_mul_overflow(result, a, &result);
    }
  }
  if (overflowed) return base::fail(overflow(run));
  return Value::integer(result, origin);
}

base::Result<Value> float_arithmetic(Runtime& run, ExprKind op, double a, double b, Origin origin) {
  switch (op) {
    case ExprKind::kAdd: return Value::number(a + b, origin);
    case ExprKind::kSubtract: return Value::number(a - b, origin);
    case ExprKind::kMultiply: return Value::number(a * b, origin);
    case ExprKind::kPower: {
      if (a == 0 && b < 0) return base::fail(run.error("zero to a negative power"));
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b))
        return base::fail(run.error("a root of a negative number"));
      if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) return base::fail(overflow(run));
      return Value::number(power, origin);
    }
    default: break;
  }
  if (b == 0) return base::fail(run.error("division by zero"));
  if (op == ExprKind::kDivide) return Value::number(a / b, origin);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (remainder == 0) remainder = std::copysign(0.0, b);
  if (op == ExprKind::kModulo) return Value::number(remainder, origin);
  const double floor = std::floor(quotient);
  if (quotient == 0) return Value::number(std::copysign(0.0, a / b), origin);
  return Value::number(quotient - floor > 0.5 ? floor + 1 : floor, origin);
}

base::Result<Value> repeat(Runtime& run, const Value& value, Int count) {
  count = std::max<Int>(count, 0);
  if (value.is(Kind::kString)) {
    TextBuilder builder(run.budget());
    for (Int i = 0; i < count && !value.as_text().empty(); ++i) {
      builder.append(value.as_text());
      TRY(run.check());
    }
    return Value::string(TRY(builder.take()));
  }
  const std::vector<Value>& items = value.sequence().items;
  std::vector<Value> repeated;
  for (Int i = 0; i < count && !items.empty(); ++i) {
    for (const Value& item : items) {
      TRY(run.check());
      if (!run.budget().allocate(sizeof(Value))) return base::fail(run.budget().failure());
      repeated.push_back(item);
    }
  }
  return value.is(Kind::kList) ? run.heap().list(std::move(repeated), value.origin())
                               : run.heap().tuple(std::move(repeated), value.origin());
}

base::Result<Value> join_two(Runtime& run, const Value& a, const Value& b) {
  if (a.is(Kind::kString)) {
    TextBuilder builder(run.budget());
    builder.append(a.as_text());
    builder.append(b.as_text());
    return Value::string(TRY(builder.take()));
  }
  std::vector<Value> items = a.sequence().items;
  const std::vector<Value>& more = b.sequence().items;
  TRY(run.check(items.size() + more.size()));
  items.insert(items.end(), more.begin(), more.end());
  const Origin origin = both(a.origin(), b.origin());
  Value joined =
      a.is(Kind::kList) ? run.heap().list(std::move(items), origin) : run.heap().tuple(std::move(items), origin);
  TRY(run.check());
  return joined;
}

std::string_view operator_name(ExprKind op) {
  switch (op) {
    case ExprKind::kAdd: return "'+'";
    case ExprKind::kSubtract: return "'-'";
    case ExprKind::kMultiply: return "'*'";
    case ExprKind::kDivide: return "'/'";
    case ExprKind::kFloorDivide: return "'//'";
    case ExprKind::kModulo: return "'%'";
    default: return "'**'";
  }
}

void reindex(Runtime& run, Dict& dict) {
  dict.index.clear();
  if (dict.entries.size() <= Dict::kIndexFrom) return;
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    const auto hash = hash_of(run, dict.entries[i].key);
    if (hash) dict.index.emplace(*hash, i);
  }
}

constexpr std::size_t kNoEntry = std::numeric_limits<std::size_t>::max();

base::Result<std::size_t> entry_of(Runtime& run, Dict& dict, const Value& key) {
  const std::size_t hash = TRY(hash_of(run, key));
  if (dict.index.empty()) {
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (TRY(equal(run, dict.entries[i].key, key))) return i;
    }
    return kNoEntry;
  }
  const auto [begin, end] = dict.index.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (TRY(equal(run, dict.entries[it->second].key, key))) return it->second;
  }
  return kNoEntry;
}

// Python's slice.indices.
struct Bounds {
  Int start, stop, step;
};
base::Result<Bounds> slice_bounds(Runtime& run, Int length, const Value& start, const Value& stop, const Value& step) {
  Bounds bounds{};
  bounds.step = step.is(Kind::kNone) ? Int{1} : TRY(index_of(run, step));
  if (bounds.step == 0) return base::fail(run.error("a slice's step is zero"));
  bounds.step = std::min(std::max(bounds.step, -kStepMax), kStepMax);
  const Int lower = bounds.step < 0 ? -1 : 0, upper = bounds.step < 0 ? length - 1 : length;
  const auto clamp = [&](const Value& given, Int otherwise) -> base::Result<Int> {
    if (given.is(Kind::kNone)) return otherwise;
    Int at = TRY(index_of(run, given));
    if (at < 0) at = at < -length ? Int{-1} : at + length;
    return std::min(std::max(at, lower), upper);
  };
  bounds.start = TRY(clamp(start, bounds.step < 0 ? upper : lower));
  bounds.stop = TRY(clamp(stop, bounds.step < 0 ? lower : upper));
  return bounds;
}

base::Result<Value> slice_text(Runtime& run, const Text& text, const Bounds& bounds, Int count) {
  TRY(run.check_text(2 * text.offset_bytes()));
  if (bounds.step == 1) {
    const std::size_t begin = text.offset(static_cast<std::size_t>(bounds.start));
    const std::size_t end = count == 0 ? begin : text.offset(static_cast<std::size_t>(bounds.start + count));
    return Value::string(TRY(sub_text(run.budget(), text, begin, end)));
  }
  std::vector<std::size_t> offsets;
  TRY(run.check(text.length()));
  const bool ascii = text.length() == text.bytes().size();
  HeldMemory held(run.budget());
  if (!ascii && !held.grow((text.length() + 1) * sizeof(std::size_t))) return base::fail(run.budget().failure());
  for (std::size_t at = 0; !ascii && at <= text.bytes().size(); ++at) {
    if (at == text.bytes().size() || (static_cast<unsigned char>(text.bytes()[at]) & 0xC0) != 0x80)
      offsets.push_back(at);
  }
  TextBuilder builder(run.budget());
  for (Int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(bounds.start + i * bounds.step);
    if (ascii)
      builder.append(text, at, at + 1);
    else
      builder.append(text, offsets[at], offsets[at + 1]);
  }
  return Value::string(TRY(builder.take()));
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: return "an undefined value";
    case Kind::kNone: return "none";
    case Kind::kBool: return "a boolean";
    case Kind::kInt: return "an integer";
    case Kind::kFloat: return "a float";
    case Kind::kString: return "a string";
    case Kind::kList: return "a list";
    case Kind::kTuple: return "a tuple";
    case Kind::kDict: return "a dict";
    case Kind::kRange: return "a range";
    case Kind::kDictView: return "a view of a dict";
    case Kind::kIterator: return "an iterator";
    case Kind::kNamespace: return "a namespace";
    case Kind::kMacro: return "a macro";
    case Kind::kMethod: return "a method";
    case Kind::kFunction: return "a function";
    case Kind::kLoop: return "a loop";
    case Kind::kCycler: return "a cycler";
    case Kind::kJoiner: return "a joiner";
  }
  return "a value";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_float() != 0;
    case Kind::kString: return !value.as_text().empty();
    default: return length_of(value).value_or(1) != 0;
  }
}

double to_double(const Value& number) {
  return number.is(Kind::kFloat) ? number.as_float() : static_cast<double>(number.as_int());
}

base::Result<Int> index_of(Runtime& run, const Value& value) {
  if (value.is_integral()) return value.as_int();
  if (value.is(Kind::kUndefined)) return base::fail(run.undefined_error(value));
  return base::fail(run.error(fmt::format("{} where an integer is needed", type_name(value))));
}

base::Result<bool> equal(Runtime& run, const Value& a, const Value& b) {
  TRY(run.check());
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  const Runtime::Level level(run);
  TRY(level.check());
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      if (a.as_string().size() != b.as_string().size()) return false;
      TRY(run.check_text(a.as_string().size()));
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple: return equal_sequences(run, a.sequence(), b.sequence());
    case Kind::kDict: return equal_dicts(run, a.dict(), b.dict());
    case Kind::kRange: {
      const Range &x = a.range(), &y = b.range();
      const Int size = x.size();
      return size == y.size() && (size == 0 || (x.start == y.start && (size == 1 || x.step == y.step)));
    }
    default: return a.as_object() == b.as_object();
  }
}

base::Result<bool> less(Runtime& run, const Value& a, const Value& b) {
  TRY(run.check());
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b) == -1;
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    TRY(run.check_text(std::min(a.as_string().size(), b.as_string().size())));
    return a.as_string() < b.as_string();
  }
  if (!a.is_sequence() || a.kind() != b.kind()) return base::fail(type_error(run, "no order", a, b));
  const Runtime::Level level(run);
  TRY(level.check());
  const std::vector<Value>&x = a.sequence().items, &y = b.sequence().items;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!TRY(equal(run, x[i], y[i]))) return less(run, x[i], y[i]);
  }
  return x.size() < y.size();
}

base::Result<bool> compare(Runtime& run, Comparison comparison, const Value& a, const Value& b) {
  const bool nan = a.is_number() && b.is_number() && order_of_numbers(a, b) == 2;
  switch (comparison) {
    case Comparison::kEqual: return equal(run, a, b);
    case Comparison::kNotEqual: return !TRY(equal(run, a, b));
    case Comparison::kLess: return less(run, a, b);
    case Comparison::kGreater: return less(run, b, a);
    case Comparison::kLessEqual: return !TRY(less(run, b, a)) && !nan;
    case Comparison::kGreaterEqual: return !TRY(less(run, a, b)) && !nan;
    case Comparison::kIn: return contains(run, b, a);
    case Comparison::kNotIn: return !TRY(contains(run, b, a));
  }
  return false;
}

base::Result<bool> contains(Runtime& run, const Value& container, const Value& element) {
  if (container.is(Kind::kString)) {
    if (!element.is(Kind::kString)) return base::fail(type_error(run, "'in'", element, container));
    TRY(run.check(1 + container.as_string().size() / 32));
    return base::find_text(container.as_string(), element.as_string()) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) return TRY(dict_find(run, container.dict(), element)) != nullptr;
  if (container.is(Kind::kDictView) && container.dict_view().part == DictView::Part::kKeys)
    return TRY(dict_find(run, container.dict_view().dict.dict(), element)) != nullptr;
  if (!is_iterable(container)) return base::fail(type_error(run, "'in'", element, container));
  Cursor cursor = TRY(Cursor::over(run, container));
  while (const auto item = TRY(cursor.next(run))) {
    if (TRY(equal(run, *item, element))) return true;
  }
  return false;
}

base::Result<Value> arithmetic(Runtime& run, ExprKind op, const Value& a, const Value& b) {
  TRY(run.check());
  const Origin origin = both(a.origin(), b.origin());
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(run, op, a.as_int(), b.as_int(), origin);
  if (a.is_number() && b.is_number()) return float_arithmetic(run, op, to_double(a), to_double(b), origin);
  if (op == ExprKind::kAdd && a.kind() == b.kind() && (a.is(Kind::kString) || a.is_sequence()))
    return join_two(run, a, b);
  if (op == ExprKind::kMultiply) {
    if ((a.is(Kind::kString) || a.is_sequence()) && b.is_integral()) return repeat(run, a, b.as_int());
    if ((b.is(Kind::kString) || b.is_sequence()) && a.is_integral()) return repeat(run, b, a.as_int());
  }
  if (op == ExprKind::kModulo && a.is(Kind::kString)) return format_percent(run, a.as_text(), b);
  return base::fail(type_error(run, operator_name(op), a, b));
}

base::Result<Value> negate(Runtime& run, const Value& a) {
  if (a.is(Kind::kFloat)) return Value::number(-a.as_float(), a.origin());
  if (a.is_integral()) return integer_arithmetic(run, ExprKind::kSubtract, 0, a.as_int(), a.origin());
  if (a.is(Kind::kUndefined)) return base::fail(run.undefined_error(a));
  return base::fail(run.error(fmt::format("a sign before {}", type_name(a))));
}

base::Result<Value> slice(Runtime& run, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is(Kind::kUndefined)) return base::fail(run.undefined_error(value));
  const bool is_range = value.is(Kind::kRange);
  if (!value.is(Kind::kString) && !value.is_sequence() && !is_range)
    return base::fail(run.error(fmt::format("{} has no slices", type_name(value))));
  const Bounds bounds = TRY(slice_bounds(run, *length_of(value), start, stop, step));
  Range taken;
  taken.start = bounds.start;
  taken.stop = bounds.stop;
  taken.step = bounds.step;
  const Int count = taken.size();
  if (value.is(Kind::kString)) return slice_text(run, value.as_text(), bounds, count);
  if (is_range) {
    const Range& range = value.range();
    auto* cut = run.heap().make<Range>();
    cut->step = range.step * bounds.step;
    if (cut->step > kStepMax || cut->step < -kStepMax) return base::fail(overflow(run));
    cut->start = range.start + bounds.start * range.step;
    cut->stop = range.start + bounds.stop * range.step;
    return Value::object(Kind::kRange, cut, value.origin());
  }
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) {
    TRY(run.check());
    items.push_back(value.sequence().items[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return value.is(Kind::kList) ? run.heap().list(std::move(items), value.origin())
                               : run.heap().tuple(std::move(items), value.origin());
}

base::Result<Value*> dict_find(Runtime& run, Dict& dict, const Value& key) {
  const std::size_t entry = TRY(entry_of(run, dict, key));
  return entry == kNoEntry ? nullptr : &dict.entries[entry].value;
}

base::Result<> dict_set(Runtime& run, Dict& dict, const Value& key, Value value) {
  if (Value* existing = TRY(dict_find(run, dict, key))) {
    *existing = std::move(value);
    return {};
  }
  if (!run.heap().grow(3)) return base::fail(run.budget().failure());
  dict.entries.push_back({key, std::move(value)});
  if (!dict.index.empty())
    dict.index.emplace(TRY(hash_of(run, key)), dict.entries.size() - 1);
  else
    reindex(run, dict);
  return {};
}

base::Result<bool> dict_erase(Runtime& run, Dict& dict, const Value& key) {
  const std::size_t entry = TRY(entry_of(run, dict, key));
  if (entry == kNoEntry) return false;
  TRY(run.check(dict.entries.size()));
  dict.entries.erase(dict.entries.begin() + static_cast<std::ptrdiff_t>(entry));
  reindex(run, dict);
  return true;
}

base::Result<> sort_by_key(Runtime& run, std::vector<Keyed>& items, bool descending) {
  std::optional<base::Error> failure;
  const auto before = [&](const Keyed& a, const Keyed& b) {
    if (failure) return false;
    const auto result = descending ? less(run, b.key, a.key) : less(run, a.key, b.key);
    if (!result) failure = result.error();
    return result && *result;
  };
  std::stable_sort(items.begin(), items.end(), before);
  if (failure) return base::fail(std::move(*failure));
  return {};
}

}  // namespace llorch::text::jinja
