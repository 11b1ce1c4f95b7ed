// The % operator of strings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/run/runtime.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"
#include "text/jinja/value/print.h"

namespace llorch::text::jinja {
namespace {

constexpr int kWidthMax = 1 << 20;
constexpr int kPrecisionMax = 300;

struct Spec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

class Formatter {
 public:
  Formatter(Runtime& run, const Text& format, const Value& arguments)
      : run_(run), format_(format), arguments_(arguments), out_(run.budget()) {}

  base::Result<Value> format() {
    const std::string& text = format_.bytes();
    for (;;) {
      const std::size_t percent = std::min(text.find('%', at_), text.size());
      out_.append(format_, at_, percent);
      if (percent == text.size()) break;
      at_ = percent + 1;
      TRY(run_.check());
      TRY(conversion(percent));
    }
    const bool all_used = !arguments_.is(Kind::kTuple) || used_ == arguments_.sequence().items.size();
    const bool may_ignore = arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) || arguments_.is(Kind::kRange) ||
                            arguments_.is(Kind::kUndefined);
    if (!all_used || (!arguments_.is(Kind::kTuple) && !may_ignore && used_ == 0))
      return base::fail(run_.error("a format string does not use all its arguments"));
    return Value::string(TRY(out_.take()));
  }

 private:
  char peek() const { return at_ < format_.bytes().size() ? format_.bytes()[at_] : '\0'; }

  base::Result<Value> next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      const auto& items = arguments_.sequence().items;
      if (used_ >= items.size()) return base::fail(run_.error("a format string has more places than arguments"));
      return items[used_++];
    }
    if (used_++ > 0) return base::fail(run_.error("a format string has more places than arguments"));
    return arguments_;
  }

  base::Result<int> number(int max) {
    if (peek() == '*') {
      ++at_;
      const Int value = TRY(index_of(run_, TRY(next_argument())));
      if (value > max || value < -max) return base::fail(run_.error("a width or precision is too large"));
      return static_cast<int>(value);
    }
    int value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > max) return base::fail(run_.error("a width or precision is too large"));
    }
    return value;
  }

  base::Result<> conversion(std::size_t percent) {
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t close = format_.bytes().find(')', at_);
      if (close == std::string::npos || !arguments_.is(Kind::kDict))
        return base::fail(run_.error("a format string names an argument, and there is no dict"));
      const Value key = Value::string(TRY(sub_text(run_.budget(), format_, at_ + 1, close)));
      const Value* found = TRY(dict_find(run_, arguments_.dict(), key));
      if (found == nullptr) return base::fail(run_.error("a format string names an argument that is not given"));
      named = *found;
      at_ = close + 1;
    }
    Spec spec;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        spec.left = true;
      else if (c == '0')
        spec.zero = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    spec.width = TRY(number(kWidthMax));
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max(TRY(number(kPrecisionMax)), 0);
    }
    spec.type = peek();
    if (spec.type == '\0') return base::fail(run_.error("a format string ends inside a place"));
    ++at_;
    if (spec.type == '%') {
      out_.append("%", format_.origin_at(percent));
      return {};
    }
    return place(spec, named ? *named : TRY(next_argument()));
  }

  base::Result<> place(const Spec& spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r': {
        TextBuilder builder(run_.budget());
        TRY(spec.type == 's' ? print(run_, value, builder) : print_repr(run_, value, builder));
        TextPtr text = TRY(builder.take());
        if (spec.precision >= 0 && text->length() > static_cast<std::size_t>(spec.precision))
          text = TRY(sub_text(run_.budget(), *text, 0, text->offset(static_cast<std::size_t>(spec.precision))));
        return pad(spec, *text);
      }
      case 'c': return character(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': return integer(spec, value);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G': return floating(spec, value);
      default: return base::fail(run_.error("a format string has an unknown kind of place"));
    }
  }

  base::Result<> character(const Spec& spec, const Value& value) {
    if (value.is(Kind::kString) && value.as_text().length() == 1) return pad(spec, value.as_text());
    if (!value.is_integral()) return base::fail(run_.error("%c needs a character"));
    const Int code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return base::fail(run_.error("%c needs a character"));
    std::string bytes;
    append_utf8(bytes, static_cast<char32_t>(code));
    return pad(spec, *TRY(make_text(run_.budget(), bytes, value.origin())));
  }

  std::string sign_of(const Spec& spec, bool negative) const {
    return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  }

  base::Result<> integer(const Spec& spec, const Value& value) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    std::optional<Int> number;
    if (value.is_integral())
      number = value.as_int();
    else if (decimal && value.is(Kind::kFloat))
      number = truncate_float(value.as_float());
    if (value.is(Kind::kUndefined)) return base::fail(run_.undefined_error(value));
    if (!number) return base::fail(run_.error(fmt::format("%{} needs a number", spec.type)));
    const auto size = *number < 0 ? -static_cast<unsigned __int128>(*number) : static_cast<unsigned __int128>(*number);
    std::string digits, prefix = sign_of(spec, *number < 0);
    switch (spec.type) {
      case 'x': digits = fmt::format("{:x}", size); break;
      case 'X': digits = fmt::format("{:X}", size); break;
      case 'o': digits = fmt::format("{:o}", size); break;
      default: digits = fmt::format("{}", size);
    }
    if (spec.alternate && !decimal) prefix += {'0', spec.type};
    if (spec.precision > static_cast<int>(digits.size()))
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    return padded_number(spec, prefix, digits, value.origin());
  }

  base::Result<> floating(const Spec& spec, const Value& value) {
    if (value.is(Kind::kUndefined)) return base::fail(run_.undefined_error(value));
    if (!value.is_number()) return base::fail(run_.error(fmt::format("%{} needs a number", spec.type)));
    const double number = to_double(value);
    std::string digits;
    if (!std::isfinite(number)) {
      digits = std::isnan(number) ? "nan" : "inf";
      if (spec.type < 'a') digits = std::isnan(number) ? "NAN" : "INF";
    } else {
      const char pattern[] = {'%',
                              spec.alternate ? '#' : '.',
                              spec.alternate ? '.' : '*',
                              spec.alternate ? '*' : spec.type,
                              spec.alternate ? spec.type : '\0',
                              '\0'};
      char buffer[800];
      const int precision = spec.precision < 0 ? 6 : spec.precision;
      const int size = std::snprintf(buffer, sizeof buffer, pattern, precision, std::fabs(number));
      digits.assign(buffer, static_cast<std::size_t>(std::clamp(size, 0, static_cast<int>(sizeof buffer) - 1)));
    }
    return padded_number(spec, sign_of(spec, std::signbit(number) && !std::isnan(number)), digits, value.origin());
  }

  base::Result<> padded_number(const Spec& spec, std::string prefix, const std::string& digits, Origin origin) {
    const std::size_t size = prefix.size() + digits.size(), width = static_cast<std::size_t>(spec.width);
    if (spec.zero && !spec.left && size < width) prefix.append(width - size, '0');
    return pad(spec, *TRY(make_text(run_.budget(), prefix + digits, origin)));
  }

  base::Result<> pad(const Spec& spec, const Text& text) {
    const std::size_t width = static_cast<std::size_t>(spec.width);
    const std::string spaces(text.length() < width ? width - text.length() : 0, ' ');
    if (!spec.left) out_.append(spaces, format_.origin());
    out_.append(text);
    if (spec.left) out_.append(spaces, format_.origin());
    return run_.check();
  }

  Runtime& run_;
  const Text& format_;
  const Value& arguments_;
  TextBuilder out_;
  std::size_t at_ = 0, used_ = 0;
};

}  // namespace

base::Result<Value> format_percent(Runtime& run, const Text& format, const Value& arguments) {
  return Formatter(run, format, arguments).format();
}

}  // namespace llorch::text::jinja
