#pragma once
// What Python's operators do with the values. Functions with a Runtime may fail: a type error, an undefined value, a limit.
#include <functional>

#include "text/jinja/syntax/ast.h"
#include "text/jinja/value/value.h"

namespace llorch::text::jinja {

bool truth(const Value& value);
base::Result<bool> equal(Runtime& run, const Value& a, const Value& b);
// a < b. INVALID_PARAMS: no order between the types.
base::Result<bool> less(Runtime& run, const Value& a, const Value& b);
base::Result<bool> compare(Runtime& run, Comparison comparison, const Value& a, const Value& b);
base::Result<bool> contains(Runtime& run, const Value& container, const Value& element);
// One of kAdd .. kPower.
base::Result<Value> arithmetic(Runtime& run, ExprKind op, const Value& a, const Value& b);
base::Result<Value> negate(Runtime& run, const Value& a);
base::Result<Value> slice(Runtime& run, const Value& value, const Value& start, const Value& stop, const Value& step);

// An integer for an index or a count; INVALID_PARAMS otherwise.
base::Result<Int> index_of(Runtime& run, const Value& value);
// A float of any number.
double to_double(const Value& number);

// Dicts. INVALID_PARAMS: the key cannot be hashed.
base::Result<Value*> dict_find(Runtime& run, Dict& dict, const Value& key);
base::Result<> dict_set(Runtime& run, Dict& dict, const Value& key, Value value);
// False: no such key.
base::Result<bool> dict_erase(Runtime& run, Dict& dict, const Value& key);

// Stable. INVALID_PARAMS: two keys have no order.
struct Keyed {
  Value key, item;
};
base::Result<> sort_by_key(Runtime& run, std::vector<Keyed>& items, bool descending);

// The name of the type in messages.
std::string_view type_name(const Value& value);

}  // namespace llorch::text::jinja
