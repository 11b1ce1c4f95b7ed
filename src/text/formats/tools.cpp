#include "text/formats/tools.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/keyed_hash.h"
#include "base/parse_json.h"

namespace llorch::text::formats {
namespace {

constexpr std::size_t kNameBytesMax = 256;

tl::unexpected<base::Error> refused_tool(std::string field, std::string_view reason, std::string_view what) {
  std::string message = fmt::format("{} {}", field, what);
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::string(reason)));
}

}  // namespace

base::Result<Tools> Tools::parse(std::string_view text) {
  boost::json::error_code error;
  const boost::json::value parsed = base::parse_json(text, error);
  if (error || !parsed.is_array()) return refused_tool("tools", "type", "must be an array");
  Tools tools;
  std::unordered_set<std::string_view, base::KeyedHash> names;
  for (std::size_t i = 0; i < parsed.get_array().size(); ++i) {
    const std::string field = fmt::format("tools[{}].function", i);
    const boost::json::object* tool = parsed.get_array()[i].if_object();
    const boost::json::value* function = tool != nullptr ? tool->if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) return refused_tool(field, "type", "must be an object");
    const boost::json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) return refused_tool(field + ".name", "type", "must be a string");
    const std::string_view spelled(name->get_string().data(), name->get_string().size());
    if (spelled.empty() || spelled.size() > kNameBytesMax) {
      return refused_tool(field + ".name", "length", fmt::format("must have 1 to {} bytes", kNameBytesMax));
    }
    if (!names.insert(spelled).second) return refused_tool(field + ".name", "combination", "is the name of two tools");
    const boost::json::value* parameters = function->get_object().if_contains("parameters");
    if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
      return refused_tool(field + ".parameters", "type", "must be an object");
    }
    const bool has_schema = parameters != nullptr && parameters->is_object();
    tools.tools_.push_back({std::string(spelled), has_schema ? parameters->get_object() : boost::json::object()});
  }
  return tools;
}

const Tool* Tools::find(std::string_view name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

}  // namespace llorch::text::formats
