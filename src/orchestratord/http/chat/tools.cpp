#include "orchestratord/http/chat/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/parse_json.h"
#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::chat {
namespace {

namespace json = boost::json;

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

base::Result<> check_name(std::string_view name, const std::string& path, const FunctionRules& rules) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const bool clean = rules.any_characters ? std::ranges::none_of(name, is_control)
                                          : name.find_first_not_of(kPlain) == std::string_view::npos;
  if (!name.empty() && name.size() <= rules.name_bytes_max && clean) return {};
  const std::string_view allowed =
      rules.any_characters ? "bytes without control characters" : "characters of A-Z, a-z, 0-9, _ and -";
  return refused(path + ".name", "charset",
                 fmt::format("{}.name must be 1 to {} {}", path, rules.name_bytes_max, allowed));
}

base::Result<> check_tool(const json::value& tool, const std::string& path, const FunctionRules& rules) {
  const json::object* object = tool.if_object();
  if (object == nullptr || text_at(*object, "type") != "function") {
    return refused(path + ".type", "unsupported", path + ".type must be function");
  }
  const json::value* function = object->if_contains("function");
  const json::object* described = function == nullptr ? nullptr : function->if_object();
  return check_function(described == nullptr ? json::object() : *described, path + ".function", rules);
}

// Whether there was one.
bool erase_nulls(json::object& object) {
  const auto is_null = [](const json::key_value_pair& member) { return member.value().is_null(); };
  if (std::ranges::none_of(object, is_null)) return false;
  json::object kept;
  for (json::key_value_pair& member : object) {
    if (!is_null(member)) kept.emplace(member.key(), std::move(member.value()));
  }
  object = std::move(kept);
  return true;
}

}  // namespace

base::Result<> check_tools_count(std::size_t count, const FunctionRules& rules) {
  if (count <= rules.tools_max) return {};
  return refused("tools", "length",
                 fmt::format("tools has {} elements; at most {} are allowed", count, rules.tools_max));
}

base::Result<> check_function(const json::object& function, const std::string& path, const FunctionRules& rules) {
  TRY(check_name(text_at(function, "name"), path, rules));
  const json::value* schema = function.if_contains(rules.schema);
  if (schema != nullptr && !schema->is_null() && !schema->is_object()) {
    const std::string field = fmt::format("{}.{}", path, rules.schema);
    return refused(field, "type", field + " must be a JSON Schema, an object");
  }
  return {};
}

base::Result<std::optional<wire::JsonArray>> template_tools(const std::optional<wire::JsonArray>& tools,
                                                            const FunctionRules& rules) {
  if (!tools) return std::nullopt;
  json::value list = base::parse_known_json(tools->text);  // it was read from JSON
  if (list.get_array().empty()) return std::nullopt;
  TRY(check_tools_count(list.get_array().size(), rules));
  bool changed = false;
  for (std::size_t t = 0; t < list.get_array().size(); ++t) {
    json::value& tool = list.get_array()[t];
    TRY(check_tool(tool, fmt::format("tools[{}]", t), rules));
    changed = erase_nulls(tool.get_object().at("function").get_object()) || changed;
  }
  return changed ? wire::JsonArray{json::serialize(list)} : *tools;
}

base::Result<wire::JsonArray> nested_functions(json::array functions) {
  json::array tools;
  for (json::value& function : functions) tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  std::string text = json::serialize(tools);
  // A function lies one level deeper here than the client wrote it: what reads it must be able to.
  json::error_code error;
  (void)json::parse("[" + text + "]", error);
  if (error) return refused("tools", "depth", "tools are nested too deeply");
  return wire::JsonArray{std::move(text)};
}

}  // namespace llorch::orchestratord::http::chat
