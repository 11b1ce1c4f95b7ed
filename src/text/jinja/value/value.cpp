#include "text/jinja/value/value.h"

#include "text/jinja/run/objects.h"

namespace llorch::text::jinja {

Value Value::undefined(TextPtr name) {
  Value v;
  v.text_ = std::move(name);
  return v;
}
Value Value::boolean(bool value, Origin origin) {
  Value v(Kind::kBool, origin);
  v.integer_ = value;
  return v;
}
Value Value::integer(Int value, Origin origin) {
  Value v(Kind::kInt, origin);
  v.integer_ = value;
  return v;
}
Value Value::number(double value, Origin origin) {
  Value v(Kind::kFloat, origin);
  v.number_ = value;
  return v;
}
Value Value::string(TextPtr text) {
  Value v(Kind::kString, Origin::kTemplate);
  v.text_ = std::move(text);
  return v;
}
Value Value::object(Kind kind, Object* object, Origin origin) {
  Value v(kind, origin);
  v.object_ = object;
  return v;
}

Sequence& Value::sequence() const { return static_cast<Sequence&>(*object_); }
Dict& Value::dict() const { return static_cast<Dict&>(*object_); }
Range& Value::range() const { return static_cast<Range&>(*object_); }
DictView& Value::dict_view() const { return static_cast<DictView&>(*object_); }
Iterator& Value::iterator() const { return static_cast<Iterator&>(*object_); }
Macro& Value::macro() const { return static_cast<Macro&>(*object_); }
Method& Value::method() const { return static_cast<Method&>(*object_); }
Function& Value::function() const { return static_cast<Function&>(*object_); }
Loop& Value::loop() const { return static_cast<Loop&>(*object_); }
Cycler& Value::cycler() const { return static_cast<Cycler&>(*object_); }
Joiner& Value::joiner() const { return static_cast<Joiner&>(*object_); }

Int Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Heap::list(std::vector<Value> items, Origin origin) {
  budget_.allocate(items.size() * sizeof(Value));
  auto* object = make<Sequence>();
  object->items = std::move(items);
  return Value::object(Kind::kList, object, origin);
}

Value Heap::tuple(std::vector<Value> items, Origin origin) {
  budget_.allocate(items.size() * sizeof(Value));
  auto* object = make<Sequence>();
  object->items = std::move(items);
  return Value::object(Kind::kTuple, object, origin);
}

Value Heap::dict(Origin origin) { return Value::object(Kind::kDict, make<Dict>(), origin); }

base::Result<Value> Heap::string(std::string_view text, Origin origin) {
  return Value::string(TRY(make_text(budget_, text, origin)));
}

}  // namespace llorch::text::jinja
