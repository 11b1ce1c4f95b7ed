// The methods of str.
#include <algorithm>

#include "base/find_text.h"
#include "text/jinja/library/library.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

base::Result<const Text*> text_argument(Runtime& run, const Value& value) {
  if (value.is(Kind::kString)) return &value.as_text();
  return base::fail(run.error(fmt::format("a method of strings meets {}", type_name(value))));
}

template <Casing kCasing>
base::Result<Value> cased_method(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  return change_case(run, self.as_text(), kCasing);
}

template <bool kLeft, bool kRight>
base::Result<Value> strip(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 0, 1));
  return Value::string(TRY(strip_text(run, self.as_text(), a[0], kLeft, kRight)));
}

// [begin, end) in bytes of the characters that optional start and stop arguments leave.
struct Window {
  std::size_t begin, end;
  bool valid;  // false: start lies past the end
};
base::Result<Window> window_of(Runtime& run, const Text& text, const Value& start, const Value& stop) {
  const Int length = static_cast<Int>(text.length());
  const auto clamp = [&](const Value& value, Int otherwise) -> base::Result<Int> {
    if (!given_and_not_none(value)) return otherwise;
    Int at = TRY(index_of(run, value));
    if (at < 0) at = at < -length ? Int{0} : at + length;
    return at;
  };
  const Int from = TRY(clamp(start, 0)), to = std::min(TRY(clamp(stop, length)), length);
  if (from > length || from > to) return Window{0, 0, false};
  TRY(run.check_text(2 * text.offset_bytes()));
  return Window{text.offset(static_cast<std::size_t>(from)), text.offset(static_cast<std::size_t>(to)), true};
}

template <bool kAtEnd>
base::Result<Value> has_affix(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 3));
  const Text& text = self.as_text();
  const Window window = TRY(window_of(run, text, a[1], a[2]));
  const std::string_view bytes = std::string_view(text.bytes()).substr(window.begin, window.end - window.begin);
  const std::span<const Value> affixes =
      a[0].is(Kind::kTuple) ? std::span<const Value>(a[0].sequence().items) : std::span(a).first(1);
  Origin origin = self.origin();
  for (const Value& affix : affixes) {
    const std::string_view wanted = TRY(text_argument(run, affix))->bytes();
    origin = both(origin, affix.origin());
    TRY(run.check_text(wanted.size() <= bytes.size() ? wanted.size() : 0));
    if (window.valid && (kAtEnd ? bytes.ends_with(wanted) : bytes.starts_with(wanted)))
      return Value::boolean(true, origin);
  }
  return Value::boolean(false, origin);
}

// Searches from a text's end, linear as base::find_text is: both texts are reversed.
class ReversedTexts {
 public:
  explicit ReversedTexts(Runtime& run) : run_(run), held_(run.budget()) {}

  base::Result<> reverse(std::string_view text, std::string_view wanted) {
    TRY(run_.check(1 + text.size() / 32));
    fits_ = wanted.size() <= text.size();
    if (!fits_) return {};
    if (!held_.grow(text.size() + wanted.size())) return base::fail(run_.budget().failure());
    text_.assign(text.rbegin(), text.rend());
    wanted_.assign(wanted.rbegin(), wanted.rend());
    return {};
  }
  // Where the last one that ends at or before `end` begins, or npos.
  std::size_t find_last(std::size_t end) const {
    const std::size_t found = fits_ ? base::find_text(text_, wanted_, text_.size() - end) : std::string_view::npos;
    return found == std::string_view::npos ? found : text_.size() - found - wanted_.size();
  }

 private:
  Runtime& run_;
  HeldMemory held_;
  std::string text_, wanted_;
  bool fits_ = false;
};

enum class IfAbsent { kMinusOne, kError };

template <bool kLast, IfAbsent kIfAbsent>
base::Result<Value> find_in(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 3));
  const Text& text = self.as_text();
  const std::string_view wanted = TRY(text_argument(run, a[0]))->bytes();
  const Window window = TRY(window_of(run, text, a[1], a[2]));
  TRY(run.check(1 + text.bytes().size() / 32));
  const std::string_view bytes = std::string_view(text.bytes()).substr(0, window.end);
  std::size_t found = std::string_view::npos;
  if (window.valid && kLast) {
    const std::string_view in_window = bytes.substr(window.begin);
    ReversedTexts reversed(run);
    TRY(reversed.reverse(in_window, wanted));
    found = reversed.find_last(in_window.size());
    if (found != std::string_view::npos) found += window.begin;
  } else if (window.valid) {
    found = base::find_text(bytes, wanted, window.begin);
  }
  if (found == std::string_view::npos) {
    if (kIfAbsent == IfAbsent::kError) return base::fail(run.error("a text is not in the string"));
    return Value::integer(-1, self.origin());
  }
  const auto characters = std::count_if(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(found),
                                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return Value::integer(characters, self.origin());
}

base::Result<Value> count(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 3));
  const Text& wanted = *TRY(text_argument(run, a[0]));
  const Window window = TRY(window_of(run, self.as_text(), a[1], a[2]));
  const std::string_view bytes = self.as_string().substr(window.begin, window.end - window.begin);
  TRY(run.check(1 + bytes.size() / 32));
  Int found = 0;
  if (!window.valid) return Value::integer(0, self.origin());
  if (wanted.empty()) {
    found = 1 + std::count_if(bytes.begin(), bytes.end(),
                              [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  } else {
    for (std::size_t at = base::find_text(bytes, wanted.bytes()); at != std::string_view::npos;
         at = base::find_text(bytes, wanted.bytes(), at + wanted.bytes().size())) {
      TRY(run.check());
      ++found;
    }
  }
  return Value::integer(found, self.origin());
}

base::Result<Value> replace_method(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 2, 3));
  const Int limit = given(a[2]) ? TRY(index_of(run, a[2])) : Int{-1};
  return replace_text(run, self.as_text(), *TRY(text_argument(run, a[0])), *TRY(text_argument(run, a[1])), limit);
}

base::Result<Value> join_method(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  return join_texts(run, self.as_text(), a[0], true);
}

// Runs of anything but white space. After `limit` of them (negative: no limit) the rest is one piece.
base::Result<> split_at_space(std::string_view text, Int limit, Pieces& pieces) {
  for (std::size_t at = leading_white_space(text); at < text.size(); at += leading_white_space(text.substr(at))) {
    const std::size_t begin = at;
    if (limit-- == 0) return pieces.add(begin, text.size());
    while (at < text.size() && leading_white_space(text.substr(at)) == 0) take_code_point(text, at);
    TRY(pieces.add(begin, at));
  }
  return {};
}

// The same from the right.
base::Result<> rsplit_at_space(std::string_view text, Int limit, Pieces& pieces) {
  TRY(split_at_space(text, -1, pieces));
  std::vector<Piece>& words = pieces.all;
  if (limit < 0 || static_cast<Int>(words.size()) <= limit) return {};
  const std::size_t joined = words.size() - static_cast<std::size_t>(limit);
  words[joined - 1].begin = 0;
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined - 1));
  return {};
}

base::Result<> split_at(std::string_view text, std::string_view separator, Int limit, Pieces& pieces) {
  std::size_t begin = 0;
  for (; limit != 0; --limit) {
    const std::size_t found = base::find_text(text, separator, begin);
    if (found == std::string_view::npos) break;
    TRY(pieces.add(begin, found));
    begin = found + separator.size();
  }
  return pieces.add(begin, text.size());
}

base::Result<> rsplit_at(Runtime& run, std::string_view text, std::string_view separator, Int limit, Pieces& pieces) {
  ReversedTexts reversed(run);
  TRY(reversed.reverse(text, separator));
  std::size_t end = text.size();
  for (; limit != 0; --limit) {
    const std::size_t found = reversed.find_last(end);
    if (found == std::string_view::npos) break;
    TRY(pieces.add(found + separator.size(), end));
    end = found;
  }
  TRY(pieces.add(0, end));
  std::reverse(pieces.all.begin(), pieces.all.end());
  return {};
}

base::Result<Value> texts(Runtime& run, const Value& self, const std::vector<Piece>& pieces, bool as_tuple = false) {
  std::vector<Value> items;
  for (const Piece& piece : pieces)
    items.push_back(Value::string(TRY(sub_text(run.budget(), self.as_text(), piece.begin, piece.end))));
  return as_tuple ? run.heap().tuple(std::move(items), self.origin())
                  : run.heap().list(std::move(items), self.origin());
}

template <bool kFromRight>
base::Result<Value> split(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"sep", "maxsplit"}, 0));
  const Int limit = given(a[1]) ? TRY(index_of(run, a[1])) : Int{-1};
  const std::string_view text = self.as_string();
  TRY(run.check(1 + text.size() / 16));
  Pieces pieces(run);
  if (!given_and_not_none(a[0])) {
    TRY(kFromRight ? rsplit_at_space(text, limit, pieces) : split_at_space(text, limit, pieces));
    return texts(run, self, pieces.all);
  }
  const Text& separator = *TRY(text_argument(run, a[0]));
  if (separator.empty()) return base::fail(run.error("'split' at an empty text"));
  TRY(kFromRight ? rsplit_at(run, text, separator.bytes(), limit, pieces)
                 : split_at(text, separator.bytes(), limit, pieces));
  return texts(run, self, pieces.all);
}

template <bool kFromRight>
base::Result<Value> partition(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const Text& separator = *TRY(text_argument(run, a[0]));
  if (separator.empty()) return base::fail(run.error("'partition' at an empty text"));
  const std::string_view text = self.as_string();
  TRY(run.check(1 + text.size() / 16));
  std::size_t found = std::string_view::npos;
  if (kFromRight) {
    ReversedTexts reversed(run);
    TRY(reversed.reverse(text, separator.bytes()));
    found = reversed.find_last(text.size());
  } else {
    found = base::find_text(text, separator.bytes());
  }
  const std::size_t size = text.size(), none = kFromRight ? 0 : size;
  if (found == std::string_view::npos) return texts(run, self, {{0, none}, {none, none}, {none, size}}, true);
  Value parts = TRY(texts(run, self, {{0, found}, {0, 0}, {found + separator.bytes().size(), size}}, true));
  parts.sequence().items[1] = a[0];
  return parts;
}

base::Result<Value> splitlines(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"keepends"}, 0));
  Pieces lines(run);
  TRY(lines_of(run, self.as_string(), given(a[0]) && truth(a[0]), lines));
  return texts(run, self, lines.all);
}

template <bool kSuffix>
base::Result<Value> remove_affix(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const std::string_view affix = TRY(text_argument(run, a[0]))->bytes(), text = self.as_string();
  TRY(run.check_text(affix.size()));
  if (kSuffix ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
  const std::size_t begin = kSuffix ? 0 : affix.size(), end = kSuffix ? text.size() - affix.size() : text.size();
  return Value::string(TRY(sub_text(run.budget(), self.as_text(), begin, end)));
}

enum class Side { kLeft, kRight, kBoth };

template <Side kTextAt>
base::Result<Value> justify(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 2));
  const Int width = TRY(index_of(run, a[0]));
  std::string_view fill = " ";
  if (given(a[1])) {
    const Text& wanted = *TRY(text_argument(run, a[1]));
    if (wanted.length() != 1) return base::fail(run.error("a fill text is not one character"));
    fill = wanted.bytes();
  }
  if (kTextAt == Side::kBoth) return center_text(run, self.as_text(), width, fill);
  TextBuilder out(run.budget());
  if (kTextAt == Side::kLeft) out.append(self.as_text());
  for (Int i = static_cast<Int>(self.as_text().length()); i < width; ++i) {
    out.append(fill, given(a[1]) ? a[1].origin() : Origin::kTemplate);
    TRY(run.check());
  }
  if (kTextAt == Side::kRight) out.append(self.as_text());
  return Value::string(TRY(out.take()));
}

base::Result<Value> zfill(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(positional(run, arguments, 1, 1));
  const Int width = TRY(index_of(run, a[0]));
  const std::string_view text = self.as_string();
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  TextBuilder out(run.budget());
  out.append(self.as_text(), 0, sign);
  for (Int i = static_cast<Int>(self.as_text().length()); i < width; ++i) {
    out.append("0", Origin::kTemplate);
    TRY(run.check());
  }
  out.append(self.as_text(), sign, text.size());
  return Value::string(TRY(out.take()));
}

enum class IfEmpty { kFalse, kTrue };

template <bool (*kHolds)(char32_t), IfEmpty kIfEmpty = IfEmpty::kFalse>
base::Result<Value> all_characters(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  const std::string_view text = self.as_string();
  TRY(run.check(1 + text.size() / 16));
  bool holds = !text.empty() || kIfEmpty == IfEmpty::kTrue;
  for (std::size_t at = 0; holds && at < text.size();) holds = kHolds(take_code_point(text, at));
  return Value::boolean(holds, self.origin());
}

bool is_ascii(char32_t c) { return c < 0x80; }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c) || is_digit(c); }

template <bool kUpper>
base::Result<Value> has_case_method(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(positional(run, arguments, 0, 0));
  CallArgs none;
  return Value::boolean(TRY(run.apply_test(kUpper ? "upper" : "lower", self, none)), self.origin());
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", cased_method<Casing::kCapitalize>},
    {"casefold", nullptr},
    {"center", justify<Side::kBoth>},
    {"count", count},
    {"encode", nullptr},
    {"endswith", has_affix<true>},
    {"expandtabs", nullptr},
    {"find", find_in<false, IfAbsent::kMinusOne>},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", find_in<false, IfAbsent::kError>},
    {"isalnum", all_characters<is_alnum>},
    {"isalpha", all_characters<is_alpha>},
    {"isascii", all_characters<is_ascii, IfEmpty::kTrue>},
    {"isdecimal", all_characters<is_decimal>},
    {"isdigit", all_characters<is_digit>},
    {"isidentifier", nullptr},
    {"islower", has_case_method<false>},
    {"isnumeric", nullptr},
    {"isprintable", all_characters<is_printable, IfEmpty::kTrue>},
    {"isspace", all_characters<is_white_space>},
    {"istitle", nullptr},
    {"isupper", has_case_method<true>},
    {"join", join_method},
    {"ljust", justify<Side::kLeft>},
    {"lower", cased_method<Casing::kLower>},
    {"lstrip", strip<true, false>},
    {"maketrans", nullptr},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"rfind", find_in<true, IfAbsent::kMinusOne>},
    {"rindex", find_in<true, IfAbsent::kError>},
    {"rjust", justify<Side::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", strip<true, true>},
    {"swapcase", nullptr},
    {"title", cased_method<Casing::kTitle>},
    {"translate", nullptr},
    {"upper", cased_method<Casing::kUpper>},
    {"zfill", zfill},
};

}  // namespace

std::span<const Builtin> string_methods() { return kStringMethods; }

}  // namespace llorch::text::jinja
