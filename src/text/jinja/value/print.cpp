#include "text/jinja/value/print.h"

#include <algorithm>

#include "text/jinja/run/runtime.h"
#include "text/jinja/value/characters.h"
#include "text/jinja/value/operations.h"

namespace llorch::text::jinja {
namespace {

base::Result<> print_text_repr(Runtime& run, const Text& text, TextBuilder& out) {
  const std::string& bytes = text.bytes();
  TRY(run.check(1 + bytes.size() / 16));
  const bool double_quotes = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  const std::string_view quotes(&quote, 1);
  out.append(quotes, text.origin());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = take_code_point(bytes, at);
    const Origin origin = text.origin_at(begin);
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      out.append(std::string{'\\', static_cast<char>(c)}, origin);
    else if (c == '\n' || c == '\r' || c == '\t')
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", origin);
    else if (is_printable(c))
      out.append(text, begin, at);
    else if (c < 0x100)
      out.append(fmt::format("\\x{:02x}", static_cast<unsigned>(c)), origin);
    else if (c < 0x10000)
      out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), origin);
    else
      out.append(fmt::format("\\U{:08x}", static_cast<unsigned>(c)), origin);
  }
  out.append(quotes, text.origin());
  return {};
}

// The elements are copied: a loop runs the template to know its length, and the template may change the container.
base::Result<> print_items(Runtime& run, const std::vector<Value>& items, Origin origin, TextBuilder& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", origin);
    const Value item = items[i];
    TRY(print_repr(run, item, out));
  }
  return {};
}

base::Result<> print_dict(Runtime& run, const Dict& dict, Origin origin, TextBuilder& out) {
  out.append("{", origin);
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", origin);
    const Dict::Entry entry = dict.entries[i];
    TRY(print_repr(run, entry.key, out));
    out.append(": ", origin);
    TRY(print_repr(run, entry.value, out));
  }
  out.append("}", origin);
  return {};
}

base::Result<> print_view(Runtime& run, const Value& value, TextBuilder& out) {
  constexpr std::string_view kNames[] = {"dict_keys([", "dict_values([", "dict_items(["};
  const Origin origin = value.origin();
  out.append(kNames[static_cast<std::size_t>(value.dict_view().part)], origin);
  TRY(print_items(run, TRY(elements_of(run, value)), origin, out));
  out.append("])", origin);
  return {};
}

std::string range_repr(const Range& range) {
  if (range.step == 1) return fmt::format("range({}, {})", range.start, range.stop);
  return fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
}

// json.dumps of one string.
base::Result<> print_json_string(Runtime& run, const Text& text, bool ascii_only, TextBuilder& out) {
  const std::string& bytes = text.bytes();
  TRY(run.check(1 + bytes.size() / 16));
  out.append("\"", text.origin());
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  std::size_t plain = 0;  // where the bytes not yet copied begin
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = take_code_point(bytes, at);
    std::string escape;
    const std::size_t letter = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (letter != std::string_view::npos)
      escape = {'\\', kLetters[letter]};
    else if (c < 0x20 || (ascii_only && c > 0x7E && c < 0x10000))
      escape = fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else if (ascii_only && c >= 0x10000)
      escape = fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0u + (static_cast<unsigned>(c) >> 10),
                           0xDC00u + (static_cast<unsigned>(c) & 0x3FF));
    if (escape.empty()) continue;
    out.append(text, plain, begin);
    out.append(escape, text.origin_at(begin));
    plain = at;
  }
  out.append(text, plain, bytes.size());
  out.append("\"", text.origin());
  return {};
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& run, const JsonOptions& options, TextBuilder& out) : run_(run), options_(options), out_(out) {}

  base::Result<> print_value(const Value& value) {
    const Runtime::Level level(run_);
    TRY(level.check());
    TRY(run_.check());
    const Origin origin = value.origin();
    switch (value.kind()) {
      case Kind::kNone: out_.append("null", origin); return {};
      case Kind::kBool: out_.append(value.as_bool() ? "true" : "false", origin); return {};
      case Kind::kInt: out_.append(print_int(value.as_int()), origin); return {};
      case Kind::kFloat: out_.append(float_text(value.as_float()), origin); return {};
      case Kind::kString: return print_json_string(run_, value.as_text(), options_.ascii_only, out_);
      case Kind::kList:
      case Kind::kTuple: return print_list(value);
      case Kind::kDict: return print_object(value);
      case Kind::kUndefined: return base::fail(run_.undefined_error(value));
      default: return base::fail(run_.error(fmt::format("tojson of {}", type_name(value))));
    }
  }

 private:
  static std::string float_text(double value) {
    std::string text = print_float(value);
    if (text == "inf") return "Infinity";
    if (text == "-inf") return "-Infinity";
    return text == "nan" ? "NaN" : text;
  }

  void new_line(Origin origin) {
    if (!options_.indent) return;
    out_.append("\n", origin);
    for (int i = 0; i < nested_; ++i) out_.append(*options_.indent, origin);
  }

  base::Result<> print_list(const Value& value) {
    const std::vector<Value>& items = value.sequence().items;
    const Origin origin = value.origin();
    if (items.empty()) {
      out_.append("[]", origin);
      return {};
    }
    out_.append("[", origin);
    ++nested_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(options_.item_separator, origin);
      new_line(origin);
      TRY(print_value(items[i]));
    }
    --nested_;
    new_line(origin);
    out_.append("]", origin);
    return {};
  }

  base::Result<> print_key(const Value& key) {
    if (key.is(Kind::kString)) return print_json_string(run_, key.as_text(), options_.ascii_only, out_);
    if (key.is(Kind::kTuple)) return base::fail(run_.error("tojson of a dict with a tuple as key"));
    out_.append("\"", key.origin());
    TRY(print_value(key));
    out_.append("\"", key.origin());
    return {};
  }

  base::Result<> print_object(const Value& value) {
    const Origin origin = value.origin();
    std::vector<Keyed> entries;
    for (const Dict::Entry& entry : value.dict().entries) entries.push_back({entry.key, entry.value});
    if (entries.empty()) {
      out_.append("{}", origin);
      return {};
    }
    if (options_.sort_keys) TRY(sort_by_key(run_, entries, false));
    out_.append("{", origin);
    ++nested_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(options_.item_separator, origin);
      new_line(origin);
      TRY(print_key(entries[i].key));
      out_.append(options_.key_separator, origin);
      TRY(print_value(entries[i].item));
    }
    --nested_;
    new_line(origin);
    out_.append("}", origin);
    return {};
  }

  Runtime& run_;
  const JsonOptions& options_;
  TextBuilder& out_;
  int nested_ = 0;
};

}  // namespace

base::Result<> print_repr(Runtime& run, const Value& value, TextBuilder& out) {
  const Runtime::Level level(run);
  TRY(level.check());
  TRY(run.check());
  const Origin origin = value.origin();
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined: out.append("Undefined", origin); return {};
    case Kind::kNone: out.append("None", origin); return {};
    case Kind::kBool: out.append(value.as_bool() ? "True" : "False", origin); return {};
    case Kind::kInt: out.append(print_int(value.as_int()), origin); return {};
    case Kind::kFloat: out.append(print_float(value.as_float()), origin); return {};
    case Kind::kString: return print_text_repr(run, value.as_text(), out);
    case Kind::kList:
      out.append("[", origin);
      TRY(print_items(run, value.sequence().items, origin, out));
      out.append("]", origin);
      return {};
    case Kind::kTuple:
      out.append("(", origin);
      TRY(print_items(run, value.sequence().items, origin, out));
      out.append(value.sequence().items.size() == 1 ? ",)" : ")", origin);
      return {};
    case Kind::kDict: return print_dict(run, value.dict(), origin, out);
    case Kind::kNamespace:
      out.append("<Namespace ", origin);
      TRY(print_dict(run, value.dict(), origin, out));
      out.append(">", origin);
      return {};
    case Kind::kRange: out.append(range_repr(value.range()), origin); return {};
    case Kind::kDictView: return print_view(run, value, out);
    case Kind::kMacro: {
      const std::string& name = value.macro().code->name;
      out.append(name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name), origin);
      return {};
    }
    case Kind::kLoop: {
      const Loop& loop = value.loop();
      const auto length = TRY(run.own_attribute(value, "length"));
      out.append(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, length->as_int()), origin);
      return {};
    }
    default: return base::fail(run.error(fmt::format("{} has no text", type_name(value))));
  }
}

base::Result<> print(Runtime& run, const Value& value, TextBuilder& out) {
  if (value.is(Kind::kString)) {
    out.append(value.as_text());
    return run.check();
  }
  if (value.is(Kind::kUndefined) || value.is(Kind::kMissing)) return {};
  return print_repr(run, value, out);
}

base::Result<TextPtr> to_text(Runtime& run, const Value& value) {
  if (value.is(Kind::kString)) return value.text_ptr();
  TextBuilder builder(run.budget());
  TRY(print(run, value, builder));
  return builder.take();
}

base::Result<> print_json(Runtime& run, const Value& value, const JsonOptions& options, TextBuilder& out) {
  return JsonPrinter(run, options, out).print_value(value);
}

}  // namespace llorch::text::jinja
