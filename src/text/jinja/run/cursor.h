#pragma once
// Iteration over any value, one element at a time, as Python's iter() and next() do it.
#include <optional>

#include "text/jinja/value/value.h"

namespace llorch::text::jinja {

class Cursor {
 public:
  // INVALID_PARAMS: not iterable.
  static base::Result<Cursor> over(Runtime& run, const Value& iterable);

  // No value: the end. INVALID_PARAMS: a dict changed its size, or computing a lazy element failed.
  base::Result<std::optional<Value>> next(Runtime& run);
  // len() of what it iterates over; no value: it has none.
  std::optional<Int> length() const;

 private:
  explicit Cursor(Value source) : source_(std::move(source)) {}

  Value source_;
  std::size_t at_ = 0;    // elements, bytes of a string
  std::size_t size_ = 0;  // of the dict when the iteration began
};

// len(value); no value: it has none.
std::optional<Int> length_of(const Value& value);
bool is_iterable(const Value& value);
// All elements. Bounded by the budget.
base::Result<std::vector<Value>> elements_of(Runtime& run, const Value& iterable);

}  // namespace llorch::text::jinja
