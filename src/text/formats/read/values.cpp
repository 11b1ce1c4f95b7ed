#include "text/formats/read/values.h"

#include <boost/json.hpp>

#include <algorithm>
#include <utility>

#include "base/parse_json.h"

namespace llorch::text::formats {
namespace {

namespace bj = boost::json;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_json(std::string_view text) {
  bj::error_code error;
  const bj::value value = base::parse_json(text, error, {}, {.max_depth = kNestingMax});
  return !error;
}

}  // namespace

std::string json_string(std::string_view text) {
  return bj::serialize(bj::value(bj::string_view(text.data(), text.size())));
}

bool is_string_schema(const bj::value* schema) {
  if (schema == nullptr || !schema->is_object()) return false;
  const bj::object& keywords = schema->get_object();
  if (const bj::value* type = keywords.if_contains("type")) {
    if (type->is_string()) return type->get_string() == "string";
    return type->is_array() && type->get_array().size() == 1 && type->get_array()[0] == "string";
  }
  if (const bj::value* constant = keywords.if_contains("const")) return constant->is_string();
  const bj::value* listed = keywords.if_contains("enum");
  if (listed == nullptr || !listed->is_array() || listed->get_array().empty()) return false;
  return std::all_of(listed->get_array().begin(), listed->get_array().end(),
                     [](const bj::value& value) { return value.is_string(); });
}

const bj::value* parameter_schema(const Tool* tool, std::string_view name) {
  if (tool == nullptr) return nullptr;
  const bj::value* properties = tool->parameters.if_contains("properties");
  if (properties == nullptr || !properties->is_object()) return nullptr;
  return properties->get_object().if_contains({name.data(), name.size()});
}

std::string typed_json(std::string_view text, const bj::value* schema) {
  if (schema == nullptr || is_string_schema(schema)) return json_string(text);
  if (const auto word = json_word(trimmed(text))) return *word;
  return is_json(text) ? std::string(trimmed(text)) : json_string(text);
}

std::optional<std::string> json_word(std::string_view word) {
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  const bool is_number = !word.empty() && (word[0] == '-' || (word[0] >= '0' && word[0] <= '9'));
  return is_number && is_json(word) ? std::optional<std::string>(word) : std::nullopt;
}

bool ObjectText::add(std::string_view name, std::string_view json) {
  if (!names_.emplace(name).second) return false;
  if (names_.size() > 1) text_ += ", ";
  text_ += json_string(name);
  text_ += ": ";
  text_ += json;
  return true;
}

}  // namespace llorch::text::formats
