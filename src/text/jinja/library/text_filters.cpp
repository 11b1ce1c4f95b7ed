// Filters on texts and numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/library/library.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

template <Casing kCasing>
base::Result<Value> cased(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  return change_case(run, *TRY(to_text(run, self)), kCasing);
}

base::Result<Value> string(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  return Value::string(TRY(to_text(run, self)));
}

base::Result<Value> trim(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"chars"}, 0));
  return Value::string(TRY(strip_text(run, *TRY(to_text(run, self)), a[0], true, true)));
}

base::Result<Value> replace(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"old", "new", "count"}, 2));
  const Int count = given_and_not_none(a[2]) ? TRY(index_of(run, a[2])) : Int{-1};
  const TextPtr text = TRY(to_text(run, self)), from = TRY(to_text(run, a[0])), to = TRY(to_text(run, a[1]));
  return replace_text(run, *text, *from, *to, count);
}

base::Result<Value> center(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"width"}, 0));
  return center_text(run, *TRY(to_text(run, self)), given(a[0]) ? TRY(index_of(run, a[0])) : Int{80}, " ");
}

base::Result<Value> escape(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  const TextPtr text = TRY(to_text(run, self));
  TextBuilder out(run.budget());
  for (std::size_t at = 0; at < text->bytes().size(); ++at) {
    std::string_view entity;
    switch (text->bytes()[at]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: out.append(*text, at, at + 1); continue;
    }
    out.append(entity, text->origin_at(at));
  }
  return Value::string(TRY(out.take()));
}

base::Result<Value> format(Runtime& run, const Value& self, CallArgs& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty())
    return base::fail(run.error("'format' takes positional or named arguments, not both"));
  Value values = run.heap().tuple(arguments.positional);
  if (!arguments.keyword.empty()) {
    values = run.heap().dict();
    for (const auto& [name, value] : arguments.keyword)
      TRY(dict_set(run, values.dict(), TRY(run.heap().string(name)), value));
  }
  return format_percent(run, *TRY(to_text(run, self)), values);
}

base::Result<Value> indent(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"width", "first", "blank"}, 0));
  if (!self.is(Kind::kString)) return base::fail(run.error(fmt::format("'indent' of {}", type_name(self))));
  TextPtr margin;
  if (given(a[0]) && a[0].is(Kind::kString)) {
    margin = a[0].text_ptr();
  } else {
    const Int width = given(a[0]) ? TRY(index_of(run, a[0])) : Int{4};
    TRY(run.check());
    if (width > 10'000) return base::fail(run.error("'indent' by more than 10000"));
    margin = TRY(make_text(run.budget(), std::string(static_cast<std::size_t>(std::max<Int>(width, 0)), ' '),
                           Origin::kTemplate));
  }
  const bool first = given(a[1]) && truth(a[1]), blank = given(a[2]) && truth(a[2]);
  const Text& text = self.as_text();
  // A line end more, so that the last line is one even when it is empty.
  HeldMemory held(run.budget());
  if (!held.grow(text.bytes().size())) return base::fail(run.budget().failure());
  const std::string padded = text.bytes() + "\n";
  Pieces lines(run);
  TRY(lines_of(run, padded, false, lines));
  TextBuilder out(run.budget());
  bool is_first = true;
  for (const auto& [begin, end] : lines.all) {
    if (!is_first) out.append("\n", Origin::kTemplate);
    if (is_first ? first : (blank || begin < end)) out.append(*margin);
    out.append(text, begin, end);
    TRY(run.check());
    is_first = false;
  }
  return Value::string(TRY(out.take()));
}

base::Result<Value> truncate(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"length", "killwords", "end", "leeway"}, 0));
  const std::optional<Int> size = length_of(self);
  if (!size) return base::fail(run.error(fmt::format("'truncate' of {}", type_name(self))));
  const Value end = given(a[2]) ? a[2] : TRY(run.heap().string("..."));
  if (!end.is(Kind::kString)) return base::fail(run.error("the end of 'truncate' is no string"));
  const Int length = given(a[0]) ? TRY(index_of(run, a[0])) : Int{255};
  const Int leeway = given_and_not_none(a[3]) ? TRY(index_of(run, a[3])) : Int{5};
  const Int end_length = static_cast<Int>(end.as_text().length());
  if (length < end_length || leeway < 0) return base::fail(run.error("'truncate' to less than its end"));
  if (*size <= length || *size - length <= leeway) return self;
  if (!self.is(Kind::kString)) return base::fail(run.error(fmt::format("'truncate' of {}", type_name(self))));
  const Text& text = self.as_text();
  TRY(run.check_text(text.offset_bytes()));
  std::size_t cut = text.offset(static_cast<std::size_t>(length - end_length));
  if (!given(a[1]) || !truth(a[1])) {
    TRY(run.check_text(cut));
    const std::size_t space = std::string_view(text.bytes()).substr(0, cut).rfind(' ');
    if (space != std::string::npos) cut = space;
  }
  TextBuilder out(run.budget());
  out.append(text, 0, cut);
  out.append(end.as_text());
  return Value::string(TRY(out.take()));
}

base::Result<Value> wordcount(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  const TextPtr text = TRY(to_text(run, self));
  TRY(run.check(1 + text->bytes().size() / 16));
  Int words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text->bytes().size();) {
    const char32_t c = take_code_point(text->bytes(), at);
    const bool in_word = is_alpha(c) || is_numeric(c) || is_digit(c) || c == '_';
    words += in_word && !inside;
    inside = in_word;
  }
  return Value::integer(words, self.origin());
}

base::Result<Value> to_json(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0));
  JsonOptions options;
  options.ascii_only = given(a[0]) && truth(a[0]);
  options.sort_keys = given(a[3]) && truth(a[3]);
  if (given_and_not_none(a[1])) {
    options.item_separator = ",";
    if (a[1].is(Kind::kString)) {
      TRY(run.check_text(a[1].as_string().size()));
      options.indent = std::string(a[1].as_string());
    } else {
      const Int width = TRY(index_of(run, a[1]));
      if (width > 100) return base::fail(run.error("'tojson' with an indent of more than 100"));
      options.indent = std::string(static_cast<std::size_t>(std::max<Int>(width, 0)), ' ');
    }
  }
  if (given_and_not_none(a[2])) {
    const std::vector<Value> separators = TRY(elements_of(run, a[2]));
    if (separators.size() != 2 || !separators[0].is(Kind::kString) || !separators[1].is(Kind::kString))
      return base::fail(run.error("the separators of 'tojson' are two strings"));
    TRY(run.check_text(separators[0].as_string().size() + separators[1].as_string().size()));
    options.item_separator = separators[0].as_string();
    options.key_separator = separators[1].as_string();
  }
  TextBuilder out(run.budget());
  TRY(print_json(run, self, options, out));
  return Value::string(TRY(out.take()));
}

base::Result<Value> absolute(Runtime& run, const Value& self, CallArgs& arguments) {
  TRY(bind_arguments(run, arguments, {}, 0));
  if (self.is(Kind::kFloat)) return Value::number(std::fabs(self.as_float()), self.origin());
  const Int value = TRY(index_of(run, self));
  return value < 0 ? negate(run, self) : Value::integer(value, self.origin());
}

base::Result<Value> to_integer(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"default", "base"}, 0));
  const Value otherwise = given(a[0]) ? a[0] : Value::integer(0);
  if (self.is(Kind::kUndefined)) return base::fail(run.undefined_error(self));
  if (self.is_integral()) return Value::integer(self.as_int(), self.origin());
  std::optional<double> number;
  if (self.is(Kind::kString)) {
    TRY(run.check(1 + self.as_string().size() / 16));
    const Int base = given(a[1]) ? TRY(index_of(run, a[1])) : Int{10};
    if (base == 0 || (base >= 2 && base <= 36)) {
      const auto value = parse_int(self.as_string(), static_cast<int>(base));
      if (value) return Value::integer(*value, self.origin());
    }
    number = parse_float(self.as_string());
  } else if (self.is(Kind::kFloat)) {
    number = self.as_float();
  }
  if (!number || std::isnan(*number)) return otherwise;
  const auto whole = truncate_float(*number);
  if (!whole) return base::fail(run.error("a number is too large for an integer"));
  return Value::integer(*whole, self.origin());
}

base::Result<Value> to_float(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"default"}, 0));
  const Value otherwise = given(a[0]) ? a[0] : Value::number(0);
  if (self.is(Kind::kUndefined)) return base::fail(run.undefined_error(self));
  if (self.is_number()) return Value::number(to_double(self), self.origin());
  if (!self.is(Kind::kString)) return otherwise;
  TRY(run.check(1 + self.as_string().size() / 16));
  const auto number = parse_float(self.as_string());
  return number ? Value::number(*number, self.origin()) : otherwise;
}

// Half to even, on the exact decimal value as printf has it.
double round_to(double value, int digits) {
  if (!std::isfinite(value)) return value;
  if (digits >= 0) {
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.*f", std::min(digits, 30), value);
    return digits > 22 ? value : std::strtod(buffer, nullptr);
  }
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(value / unit) * unit;
}

base::Result<Value> round_number(Runtime& run, const Value& self, CallArgs& arguments) {
  const Args a = TRY(bind_arguments(run, arguments, {"precision", "method"}, 0));
  std::string_view method = "common";
  if (given(a[1])) method = a[1].is(Kind::kString) ? a[1].as_string() : "";
  if (method != "common" && method != "ceil" && method != "floor")
    return base::fail(run.error("the method of 'round' is common, ceil or floor"));
  if (self.is(Kind::kUndefined)) return base::fail(run.undefined_error(self));
  if (!self.is_number()) return base::fail(run.error(fmt::format("'round' of {}", type_name(self))));
  const Int wanted = given(a[0]) ? TRY(index_of(run, a[0])) : Int{0};
  if (wanted > 300 || wanted < -300) return base::fail(run.error("'round' to too many digits"));
  const int digits = static_cast<int>(wanted);
  if (method == "common") {
    if (!self.is_integral()) return Value::number(round_to(self.as_float(), digits), self.origin());
    if (digits >= 0) return Value::integer(self.as_int(), self.origin());
    if (digits < -30) return Value::integer(0, self.origin());
    Int unit = 1;
    for (int i = digits; i < 0; ++i) unit *= 10;
    const Value rest = TRY(arithmetic(run, ExprKind::kModulo, self, Value::integer(unit)));
    const Int down = self.as_int() - rest.as_int(), twice = rest.as_int() * 2;
    const bool up = twice > unit || (twice == unit && down / unit % 2 != 0);
    return arithmetic(run, ExprKind::kAdd, Value::integer(down, self.origin()), Value::integer(up ? unit : 0));
  }
  const double unit = std::pow(10.0, digits), scaled = to_double(self) * unit;
  if (!std::isfinite(scaled)) return base::fail(run.error("a number is too large for an integer"));
  // Python's ceil and floor are integers, which have no negative zero.
  return Value::number(((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / unit, self.origin());
}

constexpr Builtin kTextFilters[] = {
    {"abs", absolute},
    {"capitalize", cased<Casing::kCapitalize>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"filesizeformat", nullptr},
    {"float", to_float},
    {"forceescape", escape},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"lower", cased<Casing::kLower>},
    {"pprint", nullptr},
    {"replace", replace},
    {"round", round_number},
    {"safe", string},
    {"string", string},
    {"striptags", nullptr},
    {"title", cased<Casing::kJinjaTitle>},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", cased<Casing::kUpper>},
    {"urlencode", nullptr},
    {"urlize", nullptr},
    {"wordcount", wordcount},
    {"wordwrap", nullptr},
    {"xmlattr", nullptr},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace llorch::text::jinja
