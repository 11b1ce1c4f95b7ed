#include <boost/json.hpp>

#include <utility>

#include "text/formats/read/values.h"
#include "text/formats/read/whole_calls.h"

namespace llorch::text::formats {
namespace {

constexpr std::string_view kWordEnd = ",)]}: \t\r\n";

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

std::string take_name(Cursor& cursor) {
  std::string name;
  for (; is_name_byte(cursor.peek()); cursor.next()) name += cursor.peek();
  return name;
}

class PythonReader {
 public:
  PythonReader(std::string_view text, const Tools& tools) : cursor_(text), tools_(tools) {}

  WholeCallList calls() {
    std::vector<WholeCall> calls;
    cursor_.skip_space();
    const bool in_list = cursor_.take("[");
    do {
      cursor_.skip_space();
      if (!call(calls)) return std::nullopt;
      cursor_.skip_space();
    } while (in_list && cursor_.take(","));
    if (in_list && !cursor_.take("]")) return std::nullopt;
    cursor_.skip_space();
    return cursor_.at_end() ? WholeCallList(std::move(calls)) : std::nullopt;
  }

 private:
  bool call(std::vector<WholeCall>& calls) {
    std::string name = take_name(cursor_);
    if (name.empty() || !cursor_.take("(")) return false;
    const Tool* tool = tools_.find(name);
    ObjectText arguments;
    cursor_.skip_space();
    for (std::size_t position = 0; !cursor_.take(")"); ++position) {
      if (position > 0 && !cursor_.take(",")) return false;
      cursor_.skip_space();
      if (!argument(arguments, tool, position)) return false;
      cursor_.skip_space();
    }
    calls.push_back({std::move(name), std::move(arguments).take()});
    return true;
  }

  bool argument(ObjectText& arguments, const Tool* tool, std::size_t position) {
    const Cursor before = cursor_;
    std::string name = take_name(cursor_);
    cursor_.skip_space();
    if (name.empty() || !cursor_.take("=")) {
      cursor_ = before;
      const boost::json::value* properties = tool != nullptr ? tool->parameters.if_contains("properties") : nullptr;
      if (properties == nullptr || !properties->is_object() || position >= properties->get_object().size())
        return false;
      name = std::string((properties->get_object().begin() + static_cast<std::ptrdiff_t>(position))->key());
    }
    cursor_.skip_space();
    const auto json = value(0);
    return json && arguments.add(name, *json);
  }

  std::optional<std::string> value(std::size_t depth) {
    if (depth == kNestingMax) return std::nullopt;
    switch (cursor_.peek()) {
      case '"':
      case '\'': {
        const auto text = string();
        return text ? std::optional(json_string(*text)) : std::nullopt;
      }
      case '[': return list("]", depth);
      case '(': return list(")", depth);
      case '{': return dictionary(depth);
      default: return json_word(cursor_.until(kWordEnd));
    }
  }

  std::optional<std::string> list(std::string_view close, std::size_t depth) {
    cursor_.next();
    std::string json = "[";
    cursor_.skip_space();
    for (bool is_first = true; !cursor_.take(close); is_first = false) {
      if (!is_first && !cursor_.take(",")) return std::nullopt;
      cursor_.skip_space();
      const auto item = value(depth + 1);
      if (!item) return std::nullopt;
      json += (is_first ? "" : ", ") + *item;
      cursor_.skip_space();
    }
    return json + "]";
  }

  std::optional<std::string> dictionary(std::size_t depth) {
    cursor_.next();
    ObjectText object;
    cursor_.skip_space();
    for (bool is_first = true; !cursor_.take("}"); is_first = false) {
      if (!is_first && !cursor_.take(",")) return std::nullopt;
      cursor_.skip_space();
      const auto key = string();
      cursor_.skip_space();
      if (!key || !cursor_.take(":")) return std::nullopt;
      cursor_.skip_space();
      const auto item = value(depth + 1);
      if (!item || !object.add(*key, *item)) return std::nullopt;
      cursor_.skip_space();
    }
    return std::move(object).take();
  }

  std::optional<std::string> string() {
    const char quote = cursor_.peek();
    if (quote != '"' && quote != '\'') return std::nullopt;
    cursor_.next();
    std::string text;
    for (; !cursor_.at_end(); cursor_.next()) {
      if (cursor_.peek() == quote) {
        cursor_.next();
        return text;
      }
      if (cursor_.peek() != '\\') {
        text += cursor_.peek();
      } else if (!escape(text)) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  // The cursor is on the backslash, and on the last byte of the escape afterwards.
  bool escape(std::string& text) {
    cursor_.next();
    constexpr std::string_view kEscapes = "nrtbf0\\\"'/", kMeanings = std::string_view("\n\r\t\b\f\0\\\"'/", 10);
    const std::size_t which = cursor_.at_end() ? std::string_view::npos : kEscapes.find(cursor_.peek());
    if (which != std::string_view::npos) {
      text += kMeanings[which];
      return true;
    }
    if (cursor_.peek() != 'u') return false;
    // As JSON has it: the pair of a code point past the BMP is one escape.
    for (const std::size_t bytes : {5U, 11U}) {
      const std::string json = "\"\\" + std::string(cursor_.rest().substr(0, bytes)) + "\"";
      boost::json::error_code error;
      const boost::json::value value = boost::json::parse(json, error);
      if (error || !value.is_string()) continue;
      text += value.get_string();
      for (std::size_t i = 1; i < bytes; ++i) cursor_.next();
      return true;
    }
    return false;
  }

  Cursor cursor_;
  const Tools& tools_;
};

class BraceReader {
 public:
  BraceReader(std::string_view text, std::string_view quote) : cursor_(text), quote_(quote) {}

  WholeCallList call() {
    cursor_.skip_space();
    if (!cursor_.take("call:")) return std::nullopt;
    std::string name = take_name(cursor_);
    cursor_.skip_space();
    if (name.empty() || cursor_.peek() != '{') return std::nullopt;
    auto arguments = object(0);
    cursor_.skip_space();
    if (!arguments || !cursor_.at_end()) return std::nullopt;
    return std::vector<WholeCall>{{std::move(name), std::move(*arguments)}};
  }

 private:
  std::optional<std::string> value(std::size_t depth) {
    if (depth == kNestingMax) return std::nullopt;
    if (cursor_.take(quote_)) {
      const auto text = cursor_.up_to(quote_);
      return text ? std::optional(json_string(*text)) : std::nullopt;
    }
    if (cursor_.peek() == '{') return object(depth);
    if (cursor_.peek() == '[') return list(depth);
    const std::string_view word = cursor_.until(",]}");
    if (word.empty()) return std::nullopt;
    const auto json = json_word(word);
    return json ? json : json_string(word);
  }

  std::optional<std::string> object(std::size_t depth) {
    cursor_.next();
    ObjectText object;
    cursor_.skip_space();
    for (bool is_first = true; !cursor_.take("}"); is_first = false) {
      if (!is_first && !cursor_.take(",")) return std::nullopt;
      cursor_.skip_space();
      const auto key = cursor_.take(quote_) ? cursor_.up_to(quote_) : cursor_.until(":,{}[]");
      if (!key || key->empty() || !cursor_.take(":")) return std::nullopt;
      cursor_.skip_space();
      const auto item = value(depth + 1);
      if (!item || !object.add(*key, *item)) return std::nullopt;
      cursor_.skip_space();
    }
    return std::move(object).take();
  }

  std::optional<std::string> list(std::size_t depth) {
    cursor_.next();
    std::string json = "[";
    cursor_.skip_space();
    for (bool is_first = true; !cursor_.take("]"); is_first = false) {
      if (!is_first && !cursor_.take(",")) return std::nullopt;
      cursor_.skip_space();
      const auto item = value(depth + 1);
      if (!item) return std::nullopt;
      json += (is_first ? "" : ", ") + *item;
      cursor_.skip_space();
    }
    return json + "]";
  }

  Cursor cursor_;
  std::string_view quote_;
};

// One line break on either side belongs to the notation.
std::string_view without_breaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

WholeCallList read_pythonic(std::string_view text, const Tools& tools) { return PythonReader(text, tools).calls(); }

WholeCallList read_braces(std::string_view text, std::string_view quote) { return BraceReader(text, quote).call(); }

WholeCallList read_xml(std::string_view text, const Tools& tools) {
  Cursor cursor(text);
  cursor.skip_space();
  cursor.take("<function=");
  const auto name = cursor.up_to(">");
  if (!name || name->empty()) return std::nullopt;
  const Tool* tool = tools.find(*name);
  ObjectText arguments;
  for (cursor.skip_space(); !cursor.at_end(); cursor.skip_space()) {
    if (!cursor.take("<parameter=")) return std::nullopt;
    const auto key = cursor.up_to(">");
    const auto value = cursor.up_to("</parameter>");
    if (!key || key->empty() || !value) return std::nullopt;
    if (!arguments.add(*key, typed_json(without_breaks(*value), parameter_schema(tool, *key)))) return std::nullopt;
  }
  return std::vector<WholeCall>{{std::string(*name), std::move(arguments).take()}};
}

}  // namespace llorch::text::formats
