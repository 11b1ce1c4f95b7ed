// Filters whose elements are computed when they are asked for: map, select, reject, unique, batch, slice, items, reverse.
#include <algorithm>

#include "text/jinja/library/library.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

// Elements already computed.
struct Ready final : Iterator {
  explicit Ready(std::vector<Value> elements) : items(std::move(elements)) {}
  base::Result<std::optional<Value>> next(Runtime&) override {
    if (at >= items.size()) return std::optional<Value>();
    return std::optional(items[at++]);
  }
  std::vector<Value> items;
  std::size_t at = 0;
};

Value ready(Runtime& run, std::vector<Value> items) {
  run.budget().allocate(items.size() * sizeof(Value));
  return Value::object(Kind::kIterator, run.heap().make<Ready>(std::move(items)));
}

// Filters of filters begin when the first element is asked for, with a look at what they filter: what is false has no
// elements, whatever it is.
struct Lazy : Iterator {
  Lazy(Value input, CallArgs given_arguments) : source(std::move(input)), arguments(std::move(given_arguments)) {}

  base::Result<std::optional<Value>> next(Runtime& run) final {
    if (ended) return std::optional<Value>();
    if (!cursor) {
      ended = needs_truth && !truth(source);
      if (ended) return std::optional<Value>();
      TRY(prepare(run));
      cursor = TRY(Cursor::over(run, source));
    }
    while (const auto item = TRY(cursor->next(run))) {
      if (auto result = TRY(apply(run, *item))) return result;
    }
    ended = true;
    return std::optional<Value>();
  }

  virtual base::Result<> prepare(Runtime& run) = 0;
  // No value: the element is left out.
  virtual base::Result<std::optional<Value>> apply(Runtime& run, const Value& item) = 0;

  Value source;
  CallArgs arguments;
  std::optional<Cursor> cursor;
  bool needs_truth = true;
  bool ended = false;
};

// A filter's or test's name that comes out of the caller's data is not repeated in messages.
base::Result<std::string> callable_name(Runtime& run, const Value& name, bool exists(std::string_view),
                                        std::string_view what) {
  if (name.is(Kind::kString) && exists(name.as_string())) return std::string(name.as_string());
  return base::fail(run.error(fmt::format("no {} has the name that is given", what)));
}

struct Map final : Lazy {
  using Lazy::Lazy;
  base::Result<> prepare(Runtime& run) override {
    if (!arguments.positional.empty()) {
      const auto exists = [](std::string_view n) { return find_filter(n) != nullptr; };
      filter = TRY(callable_name(run, arguments.positional[0], exists, "filter"));
      arguments.positional.erase(arguments.positional.begin());
      return {};
    }
    const Args a = TRY(bind_arguments(run, arguments, {"attribute", "default"}, 1));
    path = TRY(attribute_path(run, a[0]));
    if (given_and_not_none(a[1])) otherwise = a[1];
    return {};
  }
  base::Result<std::optional<Value>> apply(Runtime& run, const Value& item) override {
    if (filter.empty()) return std::optional(TRY(follow_path(run, item, path, otherwise)));
    CallArgs copy = arguments;
    return std::optional(TRY(run.apply_filter(filter, item, copy)));
  }
  std::string filter;
  std::vector<Value> path;
  Value otherwise = Value::missing();
};

struct Select final : Lazy {
  Select(Value input, CallArgs given_arguments, bool keep_what_passes, bool by_attribute)
      : Lazy(std::move(input), std::move(given_arguments)), keep(keep_what_passes), attribute(by_attribute) {}

  base::Result<> prepare(Runtime& run) override {
    if (attribute) {
      if (arguments.positional.empty()) return base::fail(run.error("the name of an attribute is missing"));
      path = TRY(attribute_path(run, arguments.positional[0]));
      arguments.positional.erase(arguments.positional.begin());
    }
    if (arguments.positional.empty()) return {};
    test = TRY(callable_name(run, arguments.positional[0], test_exists, "test"));
    arguments.positional.erase(arguments.positional.begin());
    return {};
  }
  base::Result<std::optional<Value>> apply(Runtime& run, const Value& item) override {
    const Value value = TRY(follow_path(run, item, path));
    CallArgs copy = arguments;
    const bool passes = test.empty() ? truth(value) : TRY(run.apply_test(test, value, copy));
    return passes == keep ? std::optional(item) : std::nullopt;
  }
  bool keep, attribute;
  std::string test;
  std::vector<Value> path;
};

struct Unique final : Lazy {
  Unique(Value input, CallArgs given_arguments) : Lazy(std::move(input), std::move(given_arguments)) {
    needs_truth = false;
  }
  base::Result<> prepare(Runtime& run) override {
    const Args a = TRY(bind_arguments(run, arguments, {"case_sensitive", "attribute"}, 0));
    case_sensitive = given(a[0]) && truth(a[0]);
    path = TRY(attribute_path(run, given(a[1]) ? a[1] : Value::none()));
    seen = run.heap().dict();
    return {};
  }
  base::Result<std::optional<Value>> apply(Runtime& run, const Value& item) override {
    Value key = TRY(follow_path(run, item, path));
    if (!case_sensitive) key = TRY(ignore_case(run, key));
    if (TRY(dict_find(run, seen.dict(), key)) != nullptr) return std::optional<Value>();
    TRY(dict_set(run, seen.dict(), key, Value::none()));
    return std::optional(item);
  }
  bool case_sensitive = false;
  std::vector<Value> path;
  Value seen;
};

struct Items final : Lazy {
  Items(Value input, CallArgs given_arguments) : Lazy(std::move(input), std::move(given_arguments)) {
    needs_truth = false;
  }
  base::Result<> prepare(Runtime& run) override {
    if (source.is(Kind::kUndefined)) return {};
    if (!source.is(Kind::kDict)) return base::fail(run.error(fmt::format("'items' of {}", type_name(source))));
    source = TRY(call_builtin(run, *find_method(source, "items"), source, arguments));
    return {};
  }
  base::Result<std::optional<Value>> apply(Runtime&, const Value& item) override { return std::optional(item); }
};

template <class T, class... A>
Value lazy(Runtime& run, const Value& self, CallArgs& arguments, A... more) {
  return Value::object(Kind::kIterator, run.heap().make<T>(self, std::move(arguments), more...));
}

base::Result<Value> map(Runtime& run, const Value& self, CallArgs& arguments) {
  return lazy<Map>(run, self, arguments);
}

template <bool kKeep, bool kAttribute>
base::Result<Value> select(Runtime& run, const Value& self, CallArgs& arguments) {
  return lazy<Select>(run, self, arguments, kKeep, kAttribute);
}

base::Result<Value> unique(Runtime& run, const Value& self, CallArgs& arguments) {
  return lazy<Unique>(run, self, arguments);
}

base::Result<Value> items(Runtime& run, const Value& self, CallArgs& arguments) {
  if (!arguments.positional.empty()) return base::fail(run.error("'items' takes no arguments"));
  return lazy<Items>(run, self, arguments);
}

base::Result<Value> batch(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"linecount", "fill_with"}, 1));
  const Int size = TRY(index_of(run, a[0]));
  std::vector<Value> batches, current;
  const auto flush = [&] { batches.push_back(run.heap().list(std::exchange(current, {}))); };
  for (Value& item : TRY(elements_of(run, self))) {
    if (static_cast<Int>(current.size()) == size) flush();
    current.push_back(std::move(item));
  }
  if (current.empty()) return ready(run, std::move(batches));
  if (given_and_not_none(a[1])) {
    for (Int missing = size - static_cast<Int>(current.size()); missing > 0; --missing) {
      if (!run.heap().grow()) return base::fail(run.budget().failure());
      current.push_back(a[1]);
    }
  }
  flush();
  return ready(run, std::move(batches));
}

base::Result<Value> slice_filter(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"slices", "fill_with"}, 1));
  const Int count = TRY(index_of(run, a[0]));
  if (count == 0) return base::fail(run.error("division by zero"));
  const std::vector<Value> all = TRY(elements_of(run, self));
  const Int size = static_cast<Int>(all.size());
  std::vector<Value> slices;
  Int begin = 0;
  for (Int i = 0; i < count; ++i) {
    const bool longer = i < size % count;
    const Int end = begin + size / count + longer;
    if (!run.heap().grow()) return base::fail(run.budget().failure());
    std::vector<Value> part(all.begin() + static_cast<std::ptrdiff_t>(begin),
                            all.begin() + static_cast<std::ptrdiff_t>(end));
    if (given_and_not_none(a[1]) && !longer) part.push_back(a[1]);
    slices.push_back(run.heap().list(std::move(part)));
    begin = end;
  }
  return ready(run, std::move(slices));
}

base::Result<Value> reverse(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  if (self.is(Kind::kString)) return slice(run, self, Value::none(), Value::none(), Value::integer(-1));
  if (!is_iterable(self)) return base::fail(run.error(fmt::format("'reverse' of {}", type_name(self))));
  std::vector<Value> elements = TRY(elements_of(run, self));
  std::reverse(elements.begin(), elements.end());
  if (self.is(Kind::kIterator)) return run.heap().list(std::move(elements));
  return ready(run, std::move(elements));
}

constexpr Builtin kLazyFilters[] = {
    {"batch", batch},
    {"items", items},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice_filter},
    {"unique", unique},
};

}  // namespace

std::span<const Builtin> lazy_filters() { return kLazyFilters; }

}  // namespace llorch::text::jinja
