#include "orchestratord/http/chat/tools.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::chat {
namespace {

namespace json = boost::json;

base::Result<> check_tool(const json::value& tool, const std::string& path) {
  const json::object* object = tool.if_object();
  if (object == nullptr || text_at(*object, "type") != "function") {
    return refused(path + ".type", "unsupported", path + ".type must be function");
  }
  const json::value* function = object->if_contains("function");
  const json::object* described = function == nullptr ? nullptr : function->if_object();
  return check_function(described == nullptr ? json::object() : *described, path + ".function", {});
}

}  // namespace

base::Result<> check_tools_count(std::size_t count, const FunctionRules& rules) {
  if (count <= rules.tools_max) return {};
  return refused("tools", "length",
                 fmt::format("tools has {} elements; at most {} are allowed", count, rules.tools_max));
}

base::Result<> check_function(const json::object& function, const std::string& path, const FunctionRules& rules) {
  const std::string_view name = text_at(function, "name");
  const bool clean = name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                     std::string_view::npos;
  if (name.empty() || name.size() > rules.name_bytes_max || !clean) {
    return refused(
        path + ".name", "charset",
        fmt::format("{}.name must be 1 to {} characters of A-Z, a-z, 0-9, _ and -", path, rules.name_bytes_max));
  }
  const json::value* schema = function.if_contains(rules.schema);
  if (schema != nullptr && !schema->is_object()) {
    const std::string field = fmt::format("{}.{}", path, rules.schema);
    return refused(field, "type", field + " must be a JSON Schema, an object");
  }
  return {};
}

base::Result<std::optional<wire::JsonArray>> template_tools(const std::optional<wire::JsonArray>& tools) {
  if (!tools) return std::nullopt;
  const json::value list = json::parse(tools->text);  // it was read from JSON
  if (list.get_array().empty()) return std::nullopt;
  TRY(check_tools_count(list.get_array().size(), {}));
  for (std::size_t t = 0; t < list.get_array().size(); ++t) {
    TRY(check_tool(list.get_array()[t], fmt::format("tools[{}]", t)));
  }
  return *tools;
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
