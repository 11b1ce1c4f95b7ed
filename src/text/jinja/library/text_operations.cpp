// What string methods and text filters share.
#include <algorithm>

#include "base/find_text.h"
#include "text/jinja/library/library.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

std::size_t code_point_begin(std::string_view text, std::size_t end) {
  do {
    --end;
  } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

// Appends text[begin, end) mapped, character by character, each with its own origin.
class CaseMapper {
 public:
  CaseMapper(const Text& text, TextBuilder& out) : text_(text), out_(out) {}

  // The context of a final sigma is [context_begin, context_end).
  void map_next(std::size_t& at, Case to, std::size_t context_begin, std::size_t context_end) {
    const std::size_t begin = at;
    const char32_t c = take_code_point(text_.bytes(), at);
    mapped_.clear();
    Neighbours next_to;
    if (to == Case::kLower && c == 0x3A3) {
      const std::string_view context =
          std::string_view(text_.bytes()).substr(context_begin, context_end - context_begin);
      next_to = neighbours_of(context, begin - context_begin);
    }
    append_mapped(mapped_, c, to, next_to);
    out_.append(mapped_, text_.origin_at(begin));
  }

 private:
  const Text& text_;
  TextBuilder& out_;
  std::string mapped_;
};

bool separates_jinja_words(char32_t c) {
  return is_white_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// The filter `title`: words lie between white space and -({[<, and each is lowered on its own.
void map_jinja_title(const Text& text, CaseMapper& mapper) {
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t end = at;
    const bool is_separator = separates_jinja_words(take_code_point(bytes, end));
    while (end < bytes.size()) {
      std::size_t next = end;
      if (separates_jinja_words(take_code_point(bytes, next)) != is_separator) break;
      end = next;
    }
    mapper.map_next(at, Case::kUpper, at, end);
    for (const std::size_t rest = at; at < end;) mapper.map_next(at, Case::kLower, rest, end);
  }
}

}  // namespace

base::Result<> Pieces::add(std::size_t begin, std::size_t end) {
  TRY(run_.check());
  if (!held_.grow(sizeof(Piece))) return base::fail(run_.budget().failure());
  all.push_back({begin, end});
  return {};
}

base::Result<Value> change_case(Runtime& run, const Text& text, Casing casing) {
  const std::string& bytes = text.bytes();
  TRY(run.check(1 + bytes.size() / 8));
  TextBuilder out(run.budget());
  CaseMapper mapper(text, out);
  if (casing == Casing::kJinjaTitle) {
    map_jinja_title(text, mapper);
    return Value::string(TRY(out.take()));
  }
  bool after_cased = false;
  for (std::size_t at = 0; at < bytes.size();) {
    Case to = casing == Casing::kUpper ? Case::kUpper : Case::kLower;
    if (casing == Casing::kCapitalize && at == 0) to = Case::kTitle;
    if (casing == Casing::kTitle) {
      to = after_cased ? Case::kLower : Case::kTitle;
      std::size_t next = at;
      const char32_t c = take_code_point(bytes, next);
      after_cased = is_upper(c) || is_lower(c) || is_title(c);
    }
    mapper.map_next(at, to, 0, bytes.size());
  }
  return Value::string(TRY(out.take()));
}

base::Result<TextPtr> strip_text(Runtime& run, const Text& text, const Value& characters, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0, end = bytes.size();
  TRY(run.check(1 + bytes.size() / 64));
  if (!given_and_not_none(characters)) {
    if (left) begin = leading_white_space(bytes);
    if (right) end = std::max(begin, end - trailing_white_space(bytes));
    return sub_text(run.budget(), text, begin, end);
  }
  if (!characters.is(Kind::kString)) return base::fail(run.error("characters to strip are no string"));
  const std::string_view set = characters.as_string();
  // UTF-8 is self-synchronising: a whole character is found in the set at a character's boundary only.
  const auto in_set = [&](std::size_t from, std::size_t to) {
    return set.find(bytes.substr(from, to - from)) != set.npos;
  };
  while (left && begin < end) {
    TRY(run.check(1 + set.size() / 64));
    std::size_t next = begin;
    take_code_point(bytes, next);
    if (!in_set(begin, next)) break;
    begin = next;
  }
  while (right && end > begin) {
    TRY(run.check(1 + set.size() / 64));
    const std::size_t previous = code_point_begin(bytes, end);
    if (!in_set(previous, end)) break;
    end = previous;
  }
  return sub_text(run.budget(), text, begin, end);
}

base::Result<Value> replace_text(Runtime& run, const Text& text, const Text& from, const Text& to, Int count_max) {
  TextBuilder out(run.budget());
  const std::string& bytes = text.bytes();
  TRY(run.check(1 + bytes.size() / 32));
  std::size_t copied = 0;
  if (from.empty()) {
    // Before every character and at the end.
    for (std::size_t at = 0; at <= bytes.size() && count_max != 0; --count_max) {
      out.append(to);
      TRY(run.check());
      copied = at;
      if (at < bytes.size())
        take_code_point(bytes, at);
      else
        ++at;
      out.append(text, copied, std::min(at, bytes.size()));
      copied = std::min(at, bytes.size());
    }
  } else {
    for (; count_max != 0; --count_max) {
      const std::size_t found = base::find_text(bytes, from.bytes(), copied);
      if (found == std::string::npos) break;
      out.append(text, copied, found);
      out.append(to);
      TRY(run.check());
      copied = found + from.bytes().size();
    }
  }
  out.append(text, copied, bytes.size());
  return Value::string(TRY(out.take()));
}

base::Result<Value> join_texts(Runtime& run, const Text& separator, const Value& items, bool only_strings) {
  TextBuilder out(run.budget());
  Cursor cursor = TRY(Cursor::over(run, items));
  bool first = true;
  while (const auto item = TRY(cursor.next(run))) {
    if (!std::exchange(first, false)) out.append(separator);
    if (only_strings && !item->is(Kind::kString))
      return base::fail(run.error(fmt::format("'join' meets {}", type_name(*item))));
    TRY(print(run, *item, out));
  }
  return Value::string(TRY(out.take()));
}

base::Result<> lines_of(Runtime& run, std::string_view text, bool keep_ends, Pieces& lines) {
  TRY(run.check(1 + text.size() / 16));
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = take_code_point(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    TRY(lines.add(begin, keep_ends ? at : end));
    begin = at;
  }
  return begin < text.size() ? lines.add(begin, text.size()) : base::Result<>();
}

base::Result<Value> center_text(Runtime& run, const Text& text, Int width, std::string_view fill) {
  TextBuilder out(run.budget());
  const Int length = static_cast<Int>(text.length());
  const Int padding = width > length ? width - length : Int{0};
  const Int left = padding / 2 + (padding & width & 1);
  for (Int i = 0; i < padding; ++i) {
    if (i == left) out.append(text);
    out.append(fill, Origin::kTemplate);
    TRY(run.check());
  }
  if (left == padding) out.append(text);
  return Value::string(TRY(out.take()));
}

base::Result<Value> ignore_case(Runtime& run, const Value& value) {
  return value.is(Kind::kString) ? change_case(run, value.as_text(), Casing::kLower) : base::Result<Value>(value);
}

}  // namespace llorch::text::jinja
