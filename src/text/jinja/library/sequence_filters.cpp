// Filters on sequences and mappings that compute at once, and the table of all filters.
#include <algorithm>

#include "text/jinja/library/library.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

bool flag(const Value& value) { return given(value) && truth(value); }

base::Result<Value> attr(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"name"}, 1));
  if (!a[0].is(Kind::kString)) return base::fail(run.error("the name of an attribute is no string"));
  const auto own = TRY(run.own_attribute(self, a[0].as_string()));
  return own ? *own : Value::undefined(a[0].text_ptr());
}

base::Result<Value> default_value(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"default_value", "boolean"}, 0));
  const bool replaced = self.is(Kind::kUndefined) || (flag(a[1]) && !truth(self));
  if (!replaced) return self;
  return given(a[0]) ? base::Result<Value>(a[0]) : run.heap().string("");
}

base::Result<Value> length(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  if (self.is(Kind::kLoop)) return *TRY(run.own_attribute(self, "length"));
  const auto size = length_of(self);
  if (!size) return base::fail(run.error(fmt::format("{} has no length", type_name(self))));
  return Value::integer(*size, self.origin());
}

base::Result<Value> first(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  Cursor cursor = TRY(Cursor::over(run, self));
  const auto item = TRY(cursor.next(run));
  return item ? *item : Value::undefined();
}

base::Result<Value> last(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  if (!length_of(self)) return base::fail(run.error(fmt::format("'last' of {}", type_name(self))));
  if (*length_of(self) == 0) return Value::undefined();
  if (self.is(Kind::kDict) || self.is(Kind::kDictView)) return TRY(elements_of(run, self)).back();
  return run.item(self, Value::integer(*length_of(self) - 1));
}

base::Result<Value> list(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  const Origin origin = self.is(Kind::kIterator) ? Origin::kTemplate : self.origin();
  return run.heap().list(TRY(elements_of(run, self)), origin);
}

base::Result<Value> join(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"d", "attribute"}, 0));
  const TextPtr separator = given(a[0]) ? TRY(to_text(run, a[0])) : literal_text("");
  if (!given_and_not_none(a[1])) return join_texts(run, *separator, self, false);
  const std::vector<Value> path = TRY(attribute_path(run, a[1]));
  std::vector<Value> items = TRY(elements_of(run, self));
  for (Value& item : items) item = TRY(follow_path(run, item, path));
  return join_texts(run, *separator, run.heap().list(std::move(items)), false);
}

// Sorting and grouping see strings in lower case unless told otherwise.
base::Result<Value> sort_key(Runtime& run, const Value& item, const std::vector<Value>& path, bool case_sensitive,
                             const Value& otherwise = Value::missing()) {
  const Value key = TRY(follow_path(run, item, path, otherwise));
  return case_sensitive ? base::Result<Value>(key) : ignore_case(run, key);
}

base::Result<Value> sort(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  // Several attributes, with commas between them.
  std::vector<std::vector<Value>> paths;
  if (given(a[2]) && a[2].is(Kind::kString)) {
    CallArgs comma;
    comma.positional.push_back(Value::string(literal_text(",")));
    const Value parts = TRY(call_builtin(run, *find_method(a[2], "split"), a[2], comma));
    for (const Value& part : parts.sequence().items) paths.push_back(TRY(attribute_path(run, part)));
  } else {
    paths.push_back(TRY(attribute_path(run, given(a[2]) ? a[2] : Value::none())));
  }
  std::vector<Keyed> keyed;
  for (Value& item : TRY(elements_of(run, self))) {
    std::vector<Value> keys;
    for (const auto& path : paths) keys.push_back(TRY(sort_key(run, item, path, flag(a[1]))));
    keyed.push_back({run.heap().list(std::move(keys)), std::move(item)});
  }
  TRY(sort_by_key(run, keyed, flag(a[0])));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return run.heap().list(std::move(sorted), self.is(Kind::kIterator) ? Origin::kTemplate : self.origin());
}

base::Result<Value> dictsort(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"case_sensitive", "by", "reverse"}, 0));
  const std::string_view by = !given(a[1]) ? "key" : a[1].is(Kind::kString) ? a[1].as_string() : "";
  if (by != "key" && by != "value") return base::fail(run.error("'dictsort' is by key or by value"));
  if (self.is(Kind::kUndefined)) return base::fail(run.undefined_error(self));
  if (!self.is(Kind::kDict)) return base::fail(run.error(fmt::format("'dictsort' of {}", type_name(self))));
  std::vector<Keyed> keyed;
  for (const Dict::Entry& entry : self.dict().entries) {
    const Value& key = by == "key" ? entry.key : entry.value;
    keyed.push_back(
        {flag(a[0]) ? key : TRY(ignore_case(run, key)), run.heap().tuple({entry.key, entry.value}, self.origin())});
  }
  TRY(sort_by_key(run, keyed, flag(a[2])));
  std::vector<Value> sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return run.heap().list(std::move(sorted), self.origin());
}

template <bool kMax>
base::Result<Value> extreme(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"case_sensitive", "attribute"}, 0));
  const std::vector<Value> path = TRY(attribute_path(run, given(a[1]) ? a[1] : Value::none()));
  std::optional<Keyed> best;
  Cursor cursor = TRY(Cursor::over(run, self));
  while (const auto item = TRY(cursor.next(run))) {
    const Value key = TRY(sort_key(run, *item, path, flag(a[0])));
    if (!best || TRY(kMax ? less(run, best->key, key) : less(run, key, best->key))) best = Keyed{key, *item};
  }
  return best ? best->item : Value::undefined();
}

base::Result<Value> sum(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"attribute", "start"}, 0));
  Value total = given(a[1]) ? a[1] : Value::integer(0);
  if (total.is(Kind::kString)) return base::fail(run.error("'sum' does not join strings"));
  const std::vector<Value> path = TRY(attribute_path(run, given(a[0]) ? a[0] : Value::none()));
  Cursor cursor = TRY(Cursor::over(run, self));
  while (const auto item = TRY(cursor.next(run)))
    total = TRY(arithmetic(run, ExprKind::kAdd, total, TRY(follow_path(run, *item, path))));
  return total;
}

base::Result<Value> groupby(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"attribute", "default", "case_sensitive"}, 1));
  const std::vector<Value> path = TRY(attribute_path(run, a[0]));
  const Value otherwise = given_and_not_none(a[1]) ? a[1] : Value::missing();
  std::vector<Keyed> keyed;
  for (Value& item : TRY(elements_of(run, self))) {
    const Value key = TRY(sort_key(run, item, path, flag(a[2]), otherwise));
    keyed.push_back({key, std::move(item)});
  }
  TRY(sort_by_key(run, keyed, false));
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    const Value key = TRY(follow_path(run, keyed[i].item, path, otherwise));
    std::vector<Value> members;
    const Value group_key = keyed[i].key;
    while (i < keyed.size() && TRY(equal(run, keyed[i].key, group_key))) members.push_back(keyed[i++].item);
    const Value group = run.heap().tuple({key, run.heap().list(std::move(members))});
    group.sequence().is_group = true;
    groups.push_back(group);
  }
  return run.heap().list(std::move(groups));
}

constexpr Builtin kSequenceFilters[] = {
    {"attr", attr},          {"count", length},   {"d", default_value}, {"default", default_value},
    {"dictsort", dictsort},  {"first", first},    {"groupby", groupby}, {"join", join},
    {"last", last},          {"length", length},  {"list", list},       {"max", extreme<true>},
    {"min", extreme<false>}, {"random", nullptr}, {"sort", sort},       {"sum", sum},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

const Builtin* find_filter(std::string_view name) {
  for (const std::span<const Builtin> table : {text_filters(), sequence_filters(), lazy_filters()}) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

base::Result<std::vector<Value>> attribute_path(Runtime& run, const Value& attribute) {
  std::vector<Value> path;
  if (attribute.is(Kind::kNone)) return path;
  if (!attribute.is(Kind::kString)) {
    path.push_back(attribute);
    return path;
  }
  CallArgs dot;
  dot.positional.push_back(Value::string(literal_text(".")));
  const Value parts = TRY(call_builtin(run, *find_method(attribute, "split"), attribute, dot));
  for (const Value& part : parts.sequence().items) {
    const std::string_view text = part.as_string();
    const bool digits =
        !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto number = digits ? parse_int(text, 10) : std::nullopt;
    path.push_back(number ? Value::integer(*number) : part);
  }
  return path;
}

base::Result<Value> follow_path(Runtime& run, Value item, const std::vector<Value>& path, const Value& default_value) {
  for (const Value& part : path) {
    item = TRY(run.item(item, part));
    if (item.is(Kind::kUndefined) && given(default_value)) item = default_value;
  }
  return item;
}

}  // namespace llorch::text::jinja
