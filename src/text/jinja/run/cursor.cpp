#include "text/jinja/run/cursor.h"

#include "text/jinja/run/runtime.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

std::size_t code_point_bytes(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

Value view_element(Runtime& run, const DictView& view, const Dict::Entry& entry) {
  switch (view.part) {
    case DictView::Part::kKeys: return entry.key;
    case DictView::Part::kValues: return entry.value;
    case DictView::Part::kItems: return run.heap().tuple({entry.key, entry.value}, view.dict.origin());
  }
  return {};
}

}  // namespace

bool is_iterable(const Value& value) {
  return value.is(Kind::kUndefined) || value.is(Kind::kIterator) || value.is(Kind::kLoop) ||
         length_of(value).has_value();
}

std::optional<Int> length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return value.as_text().length();
    case Kind::kList:
    case Kind::kTuple: return value.sequence().items.size();
    case Kind::kDict: return value.dict().entries.size();
    case Kind::kRange: return value.range().size();
    case Kind::kDictView: return value.dict_view().dict.dict().entries.size();
    default: return std::nullopt;
  }
}

base::Result<Cursor> Cursor::over(Runtime& run, const Value& iterable) {
  if (!is_iterable(iterable) || iterable.is(Kind::kLoop))
    return base::fail(run.error(fmt::format("{} cannot be iterated over", type_name(iterable))));
  Cursor cursor(iterable);
  if (iterable.is(Kind::kDict) || iterable.is(Kind::kDictView))
    cursor.size_ = static_cast<std::size_t>(*length_of(iterable));
  return cursor;
}

std::optional<Int> Cursor::length() const { return length_of(source_); }

base::Result<std::optional<Value>> Cursor::next(Runtime& run) {
  TRY(run.check());
  const std::optional<Value> end;
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string_view text = source_.as_string();
      if (at_ >= text.size()) return end;
      const std::size_t begin = at_;
      at_ += code_point_bytes(text, begin);
      return std::optional(Value::string(TRY(sub_text(run.budget(), source_.as_text(), begin, at_))));
    }
    case Kind::kList:
    case Kind::kTuple: {
      const std::vector<Value>& items = source_.sequence().items;
      if (at_ >= items.size()) return end;
      return std::optional(items[at_++]);
    }
    case Kind::kRange: {
      const Range& range = source_.range();
      if (Int{at_} >= range.size()) return end;
      return std::optional(Value::integer(range.start + Int{at_++} * range.step, source_.origin()));
    }
    case Kind::kDict:
    case Kind::kDictView: {
      const bool is_view = source_.is(Kind::kDictView);
      const Dict& dict = is_view ? source_.dict_view().dict.dict() : source_.dict();
      if (dict.entries.size() != size_)
        return base::fail(run.error("a dict changed its size while it was iterated over"));
      if (at_ >= size_) return end;
      const Dict::Entry& entry = dict.entries[at_++];
      return std::optional(is_view ? view_element(run, source_.dict_view(), entry) : entry.key);
    }
    case Kind::kIterator: {
      const Runtime::Level level(run);
      TRY(level.check());
      return source_.iterator().next(run);
    }
    default: return end;
  }
}

base::Result<std::vector<Value>> elements_of(Runtime& run, const Value& iterable) {
  Cursor cursor = TRY(Cursor::over(run, iterable));
  std::vector<Value> elements;
  while (auto element = TRY(cursor.next(run))) {
    if (!run.heap().grow()) return base::fail(run.budget().failure());
    elements.push_back(std::move(*element));
  }
  return elements;
}

base::Result<std::optional<Value>> loop_next(Runtime& run, Loop& loop) {
  if (loop.after) return std::exchange(loop.after, std::nullopt);
  if (loop.exhausted) return std::optional<Value>();
  auto item = TRY(loop.cursor.next(run));
  return item;
}

}  // namespace llorch::text::jinja
