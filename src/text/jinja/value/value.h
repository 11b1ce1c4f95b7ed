#pragma once
// The values of a running template. Scalars and texts are values; containers and callables are objects of a Heap, which
// frees all of them at once when the render ends, so that cycles need no care.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

namespace llorch::text::jinja {

enum class Kind : std::uint8_t {
  kMissing,  // a variable nothing was assigned to; never the value of an expression
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kDictView,
  kIterator,
  kNamespace,
  kMacro,
  kMethod,
  kFunction,
  kLoop,
  kCycler,
  kJoiner,
};

struct Object {
  virtual ~Object() = default;
};
struct Sequence;
struct Dict;
struct Range;
struct DictView;
struct Iterator;
struct Macro;
struct Method;
struct Function;
struct Loop;
struct Cycler;
struct Joiner;

// Every value knows where it came from: a number or a container of the caller prints as the caller's text.
class Value {
 public:
  Value() = default;
  static Value missing() { return Value(Kind::kMissing, Origin::kTemplate); }
  // `name`: what the template called it, for messages; may be null.
  static Value undefined(TextPtr name = nullptr);
  static Value none(Origin origin = Origin::kTemplate) { return Value(Kind::kNone, origin); }
  static Value boolean(bool value, Origin origin = Origin::kTemplate);
  static Value integer(Int value, Origin origin = Origin::kTemplate);
  static Value number(double value, Origin origin = Origin::kTemplate);
  static Value string(TextPtr text);
  // `object` must be what `kind` says.
  static Value object(Kind kind, Object* object, Origin origin = Origin::kTemplate);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  Origin origin() const { return kind_ == Kind::kString ? text_->origin() : origin_; }

  // REQUIRES the kind that the name says.
  bool as_bool() const { return integer_ != 0; }
  Int as_int() const { return integer_; }  // of a bool too
  double as_float() const { return number_; }
  const Text& as_text() const { return *text_; }
  const TextPtr& text_ptr() const { return text_; }
  std::string_view as_string() const { return text_->bytes(); }
  Object* as_object() const { return object_; }
  Sequence& sequence() const;
  Dict& dict() const;  // of a namespace too
  Range& range() const;
  DictView& dict_view() const;
  Iterator& iterator() const;
  Macro& macro() const;
  Method& method() const;
  Function& function() const;
  Loop& loop() const;
  Cycler& cycler() const;
  Joiner& joiner() const;
  // The template's name of an undefined value, or null.
  const TextPtr& undefined_name() const { return text_; }

 private:
  Value(Kind kind, Origin origin) : kind_(kind), origin_(origin) {}

  Kind kind_ = Kind::kUndefined;
  Origin origin_ = Origin::kTemplate;
  union {
    Int integer_ = 0;
    double number_;
    Object* object_;
  };
  TextPtr text_;
};

// kData when either is.
inline Origin both(Origin a, Origin b) { return a == Origin::kData ? a : b; }

struct Sequence final : Object {
  std::vector<Value> items;
  bool is_group = false;  // of groupby: .grouper and .list
};

// Keys in order of insertion; a key is anything but a list, a dict or a view of keys.
struct Dict final : Object {
  struct Entry {
    Value key, value;
  };
  std::vector<Entry> entries;
  std::multimap<std::size_t, std::size_t> index;  // hash of the key -> entry; only past kIndexFrom entries
  static constexpr std::size_t kIndexFrom = 8;
};

struct Range final : Object {
  Int start = 0, stop = 0, step = 1;
  Int size() const;
};

struct DictView final : Object {
  enum class Part : std::uint8_t { kKeys, kValues, kItems };
  Value dict;
  Part part = Part::kKeys;
};

struct Cycler final : Object {
  std::vector<Value> items;
  std::size_t position = 0;
};

struct Joiner final : Object {
  Value separator;
  bool used = false;
};

class Runtime;

// What a lazy filter returns; each element is computed when it is asked for, once.
struct Iterator : Object {
  // No value: the end.
  virtual base::Result<std::optional<Value>> next(Runtime& run) = 0;
};

class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}
  Heap(const Heap&) = delete;

  Budget& budget() { return budget_; }

  template <class T, class... A>
  T* make(A&&... arguments) {
    budget_.allocate(sizeof(T) + 32);
    auto object = std::make_unique<T>(std::forward<A>(arguments)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }
  // Counts one more element of a container.
  bool grow(std::size_t elements = 1) { return budget_.step(1) && budget_.allocate(elements * sizeof(Value)); }

  Value list(std::vector<Value> items, Origin origin = Origin::kTemplate);
  Value tuple(std::vector<Value> items, Origin origin = Origin::kTemplate);
  Value dict(Origin origin = Origin::kTemplate);
  base::Result<Value> string(std::string_view text, Origin origin = Origin::kTemplate);

 private:
  Budget& budget_;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace llorch::text::jinja
