// The methods of dict, list, tuple and range, and which names Python's other types have.
#include <algorithm>

#include "text/jinja/library/library.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
base::Result<Args> positional(Runtime& run, CallArgs& arguments, std::size_t required, std::size_t allowed) {
  if (!arguments.keyword.empty()) return base::fail(run.error("a method takes no named arguments"));
  if (arguments.positional.size() < required || arguments.positional.size() > allowed)
    return base::fail(run.error("a method has too few or too many arguments"));
  Args bound = arguments.positional;
  bound.resize(allowed, Value::missing());
  return bound;
}

namespace {

template <DictView::Part kPart>
base::Result<Value> dict_view(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  auto* view = run.heap().make<DictView>();
  view->dict = self;
  view->part = kPart;
  return Value::object(Kind::kDictView, view, self.origin());
}

base::Result<Value> dict_get(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 2));
  if (const Value* found = TRY(dict_find(run, self.dict(), a[0]))) return *found;
  return given(a[1]) ? a[1] : Value::none();
}

base::Result<Value> dict_pop(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 2));
  const Value* found = TRY(dict_find(run, self.dict(), a[0]));
  if (found == nullptr)
    return given(a[1]) ? base::Result<Value>(a[1]) : base::fail(run.error("'pop' of a key that is not there"));
  Value value = *found;
  TRY(dict_erase(run, self.dict(), a[0]));
  return value;
}

base::Result<Value> dict_setdefault(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 2));
  if (const Value* found = TRY(dict_find(run, self.dict(), a[0]))) return *found;
  Value value = given(a[1]) ? a[1] : Value::none();
  TRY(dict_set(run, self.dict(), a[0], value));
  return value;
}

base::Result<Value> dict_update(Runtime& run, const Value& self, CallArgs& arguments) {
  const Builtin* make_dict = find_global("dict");
  const Value more = TRY(call_builtin(run, *make_dict, Value::undefined(), arguments));
  for (const Dict::Entry& entry : more.dict().entries) TRY(dict_set(run, self.dict(), entry.key, entry.value));
  return Value::none();
}

base::Result<Value> dict_clear(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  self.dict().entries.clear();
  self.dict().index.clear();
  return Value::none();
}

base::Result<Value> dict_copy(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  Value copy = run.heap().dict(self.origin());
  for (const Dict::Entry& entry : self.dict().entries) TRY(dict_set(run, copy.dict(), entry.key, entry.value));
  return copy;
}

constexpr Builtin kDictMethods[] = {
    {"clear", dict_clear},
    {"copy", dict_copy},
    {"fromkeys", nullptr},
    {"get", dict_get},
    {"items", dict_view<DictView::Part::kItems>},
    {"keys", dict_view<DictView::Part::kKeys>},
    {"pop", dict_pop},
    {"popitem", nullptr},
    {"setdefault", dict_setdefault},
    {"update", dict_update},
    {"values", dict_view<DictView::Part::kValues>},
};

std::vector<Value>& items_of(const Value& self) { return self.sequence().items; }

base::Result<> grow_one(Runtime& run) {
  if (!run.heap().grow()) return base::fail(run.budget().failure());
  return {};
}

base::Result<Value> list_append(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  TRY(grow_one(run));
  items_of(self).push_back(a[0]);
  return Value::none();
}

base::Result<Value> list_extend(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const std::vector<Value> more = TRY(elements_of(run, a[0]));
  items_of(self).insert(items_of(self).end(), more.begin(), more.end());
  return Value::none();
}

base::Result<Value> list_insert(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 2, 2));
  const Int size = static_cast<Int>(items_of(self).size());
  Int at = TRY(index_of(run, a[0]));
  if (at < 0) at = at < -size ? Int{0} : at + size;
  TRY(grow_one(run));
  TRY(run.check(items_of(self).size() / 64));
  items_of(self).insert(items_of(self).begin() + static_cast<std::ptrdiff_t>(std::min(at, size)), a[1]);
  return Value::none();
}

base::Result<Value> list_pop(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 0, 1));
  std::vector<Value>& items = items_of(self);
  const Int size = static_cast<Int>(items.size());
  Int at = given(a[0]) ? TRY(index_of(run, a[0])) : Int{-1};
  if (at < 0) at += size;
  if (at < 0 || at >= size) return base::fail(run.error("'pop' of an item that is not there"));
  TRY(run.check(items.size() / 64));
  Value value = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  return value;
}

base::Result<std::optional<std::size_t>> position_of(Runtime& run, const Value& self, const Value& wanted) {
  for (std::size_t i = 0; i < items_of(self).size(); ++i) {
    if (TRY(equal(run, items_of(self)[i], wanted))) return std::optional(i);
  }
  return std::optional<std::size_t>();
}

base::Result<Value> list_remove(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const auto at = TRY(position_of(run, self, a[0]));
  if (!at) return base::fail(run.error("'remove' of an item that is not there"));
  TRY(run.check(items_of(self).size() / 64));
  items_of(self).erase(items_of(self).begin() + static_cast<std::ptrdiff_t>(*at));
  return Value::none();
}

base::Result<Value> list_index(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const auto at = TRY(position_of(run, self, a[0]));
  if (!at) return base::fail(run.error("'index' of an item that is not there"));
  return Value::integer(*at);
}

base::Result<Value> list_count(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  Int count = 0;
  for (std::size_t i = 0; i < items_of(self).size(); ++i) count += TRY(equal(run, items_of(self)[i], a[0]));
  return Value::integer(count);
}

base::Result<Value> list_reverse(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  TRY(run.check(items_of(self).size()));
  std::reverse(items_of(self).begin(), items_of(self).end());
  return Value::none();
}

base::Result<Value> list_clear(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  items_of(self).clear();
  return Value::none();
}

base::Result<Value> list_copy(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  TRY(run.check(items_of(self).size()));
  return run.heap().list(items_of(self), self.origin());
}

base::Result<Value> list_sort(Runtime& run, const Value& self, CallArgs& arguments) {
  if (!arguments.positional.empty()) return base::fail(run.error("'sort' takes named arguments only"));
  const Args a = TRY(bind_arguments(run, arguments, {"key", "reverse"}, 0));
  if (given_and_not_none(a[0])) return base::fail(run.error("'sort' with a key is not supported"));
  std::vector<Keyed> keyed;
  for (const Value& item : items_of(self)) keyed.push_back({item, {}});
  TRY(sort_by_key(run, keyed, given(a[1]) && truth(a[1])));
  std::transform(keyed.begin(), keyed.end(), items_of(self).begin(), [](const Keyed& k) { return k.key; });
  return Value::none();
}

constexpr Builtin kListMethods[] = {
    {"append", list_append}, {"clear", list_clear},     {"copy", list_copy},     {"count", list_count},
    {"extend", list_extend}, {"index", list_index},     {"insert", list_insert}, {"pop", list_pop},
    {"remove", list_remove}, {"reverse", list_reverse}, {"sort", list_sort},
};
constexpr Builtin kTupleMethods[] = {{"count", list_count}, {"index", list_index}};

// What Python has and templates have no use for.
constexpr Builtin kRangeMethods[] = {{"count", nullptr}, {"index", nullptr}};
constexpr Builtin kIntMethods[] = {
    {"as_integer_ratio", nullptr},
    {"bit_count", nullptr},
    {"bit_length", nullptr},
    {"conjugate", nullptr},
    {"denominator", nullptr},
    {"from_bytes", nullptr},
    {"imag", nullptr},
    {"numerator", nullptr},
    {"real", nullptr},
    {"to_bytes", nullptr},
};
constexpr Builtin kFloatMethods[] = {
    {"as_integer_ratio", nullptr}, {"conjugate", nullptr}, {"fromhex", nullptr}, {"hex", nullptr}, {"imag", nullptr},
    {"is_integer", nullptr},       {"real", nullptr},
};
constexpr Builtin kViewMethods[] = {{"isdisjoint", nullptr}, {"mapping", nullptr}};

std::span<const Builtin> methods_of(const Value& self) {
  switch (self.kind()) {
    case Kind::kString: return string_methods();
    case Kind::kDict: return kDictMethods;
    case Kind::kList: return kListMethods;
    case Kind::kTuple: return kTupleMethods;
    case Kind::kRange: return kRangeMethods;
    case Kind::kBool:
    case Kind::kInt: return kIntMethods;
    case Kind::kFloat: return kFloatMethods;
    case Kind::kDictView: return kViewMethods;
    default: return {};
  }
}

}  // namespace

const Builtin* find_method(const Value& self, std::string_view name) {
  const auto methods = methods_of(self);
  const auto found =
      std::lower_bound(methods.begin(), methods.end(), name,
                       [](const Builtin& builtin, std::string_view wanted) { return builtin.name < wanted; });
  return found != methods.end() && found->name == name ? &*found : nullptr;
}

}  // namespace llorch::text::jinja
