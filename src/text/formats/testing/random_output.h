#pragma once
// Outputs with calls as models of a format write them, spelled from the format's own table.
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "text/formats/syntax.h"

namespace llorch::text::formats::testing {

inline constexpr std::string_view kRandomTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
     "text": {"type": "string"}, "unit": {"enum": ["c", "°F"]}, "count": {"type": "integer"},
     "ratio": {"type": "number"}, "flag": {"type": "boolean"},
     "tags": {"type": "array", "items": {"type": "string"}},
     "place": {"type": "object", "properties": {"x": {"type": "integer"}, "label": {"type": "string"}}}},
     "required": ["text"]}}},
  {"type": "function", "function": {"name": "now"}},
  {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
     "key": {"type": "string"}, "nothing": {"type": "null"}}, "required": ["key", "nothing"]}}}])";

struct RandomOutput {
  std::string text, content, reasoning;
  std::vector<std::pair<std::string, boost::json::object>> calls;
};

class RandomOutputs {
 public:
  RandomOutputs(const Syntax& syntax, std::uint64_t seed) : syntax_(syntax), random_(seed) {}

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

  RandomOutput next(bool only_calls) {
    RandomOutput output;
    const Spelling& spelling = syntax_.spelling;
    if (!only_calls && !syntax_.thought.close.empty() && below(2) == 0) {
      output.reasoning = words();
      output.text += spelling.thought_open.empty() ? syntax_.thought.open : spelling.thought_open;
      output.text += (below(2) == 0 ? "\n" : "") + output.reasoning;
      output.text += syntax_.thought.close;
      output.text += spelling.behind_thought;
    }
    const bool takes_content = !syntax_.has_channels && !syntax_.calls[0].is_bare;
    if (!only_calls && takes_content && below(2) == 0) {
      output.content = words();
      output.text += output.content + (below(2) == 0 ? "\n" : "");
    }
    output.text += spelling.list_open;
    const std::size_t count = spelling.allows_several ? 1 + below(3) : 1;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) output.text += spelling.separator;
      output.calls.push_back(call());
      output.text += spelling.open;
      output.text += output.calls.back().first;
      output.text += spelling.behind_name;
      output.text += arguments(output.calls.back().second);
      output.text += spelling.close;
    }
    output.text += spelling.list_close;
    return output;
  }

  // One call alone.
  std::string written(std::string_view name, const boost::json::object& values) const {
    const Spelling& spelling = syntax_.spelling;
    std::string text(spelling.list_open);
    text += spelling.open;
    text += name;
    text += spelling.behind_name;
    text += arguments(values);
    text += spelling.close;
    return text += spelling.list_close;
  }

 private:
  // What raw strings of the format cannot hold.
  bool is_allowed(std::string_view text) const {
    return syntax_.spelling.arguments == Body::kJson || syntax_.spelling.arguments == Body::kPythonic ||
           (text.find("</par") == std::string_view::npos && text.find('<') == std::string_view::npos);
  }

  std::string string() {
    constexpr std::string_view kParts[] = {"a",
                                           "Oslo",
                                           " ",
                                           "\n",
                                           "\"",
                                           "\\",
                                           "'",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "é",
                                           "日本",
                                           "😀",
                                           "<",
                                           "|",
                                           ",",
                                           ":",
                                           "</tool_call>",
                                           "```",
                                           "=",
                                           "(",
                                           "\t",
                                           "12",
                                           ")",
                                           "<think>",
                                           "[TOOL_CALLS]",
                                           "<|tool_call_start|>"};
    std::string text;
    for (std::size_t i = below(8); i > 0; --i) {
      const std::string_view part = kParts[below(std::size(kParts))];
      if (is_allowed(part)) text += part;
    }
    return text;
  }

  std::string words() {
    constexpr std::string_view kWords[] = {"I", "look", "at 3 < 4", "größer", "日本", "a|b", "{x}", "\n\n", "so,"};
    std::string text = "Well";
    for (std::size_t i = below(6); i > 0; --i) text += " " + std::string(kWords[below(std::size(kWords))]);
    return text + ".";
  }

  std::pair<std::string, boost::json::object> call() {
    boost::json::object values;
    switch (below(3)) {
      case 0: return {"now", {}};
      case 1:
        values["key"] = string();
        values["nothing"] = nullptr;
        return {"look_up", std::move(values)};
      default: break;
    }
    values["text"] = string();
    if (below(2) == 0) values["unit"] = below(2) == 0 ? "c" : "°F";
    if (below(2) == 0) values["count"] = static_cast<std::int64_t>(below(2000)) - 1000;
    if (below(2) == 0) values["ratio"] = static_cast<double>(below(100)) + 0.5;
    if (below(2) == 0) values["flag"] = below(2) == 0;
    if (below(2) == 0) {
      boost::json::array tags;
      for (std::size_t i = below(4); i > 0; --i) tags.push_back(boost::json::value(string()));
      values["tags"] = std::move(tags);
    }
    if (below(2) == 0) values["place"] = {{"x", static_cast<std::int64_t>(below(9))}, {"label", string()}};
    return {"get_weather", std::move(values)};
  }

  // `2.5E0` of Boost.JSON is fine for all but the eye.
  std::string arguments(const boost::json::object& values) const {
    std::string text;
    switch (syntax_.spelling.arguments) {
      case Body::kPythonic:
        for (const auto& [key, value] : values) {
          text += (text.empty() ? "" : ", ") + std::string(key) + "=" + boost::json::serialize(value);
        }
        return text;
      case Body::kXml:
        for (const auto& [key, value] : values) {
          text += "<parameter=" + std::string(key) + ">\n";
          text += value.is_string() ? std::string(value.get_string()) : boost::json::serialize(value);
          text += "\n</parameter>\n";
        }
        return text;
      case Body::kBraces: return in_braces(values);
      default: return boost::json::serialize(values);
    }
  }

  std::string in_braces(const boost::json::value& value) const {
    const std::string quote(syntax_.calls[0].quote);
    if (value.is_string()) return quote + std::string(value.get_string()) + quote;
    std::string text;
    if (value.is_array()) {
      for (const auto& item : value.get_array()) text += (text.empty() ? "" : ",") + in_braces(item);
      return "[" + text + "]";
    }
    if (!value.is_object()) return boost::json::serialize(value);
    for (const auto& [key, member] : value.get_object()) {
      text += (text.empty() ? "" : ",") + std::string(key) + ":" + in_braces(member);
    }
    return "{" + text + "}";
  }

  const Syntax& syntax_;
  std::mt19937_64 random_;
};

}  // namespace llorch::text::formats::testing
