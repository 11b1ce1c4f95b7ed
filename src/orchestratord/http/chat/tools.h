#pragma once
// The functions that clients offer to a model, as chat templates take them. Pure.
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::chat {

// How an API spells a function, and how many it takes.
struct FunctionRules {
  std::string_view schema = "parameters";  // the member with the JSON Schema of the arguments
  std::size_t name_bytes_max = 64;
  bool any_characters = false;  // of a name, but control characters; else A-Z, a-z, 0-9, _ and -
  std::size_t tools_max = 128;
};

// Errors of all: INVALID_PARAMS with details {field, reason}.
base::Result<> check_tools_count(std::size_t count, const FunctionRules& rules);
// `function`: {"name", the schema}; `path`: where the request has it.
// A null schema is none.
base::Result<> check_function(const boost::json::object& function, const std::string& path, const FunctionRules& rules);

// [{"type":"function","function":{...}}] as it came, but for members of a function that are null; absent: none.
base::Result<std::optional<wire::JsonArray>> template_tools(const std::optional<wire::JsonArray>& tools,
                                                            const FunctionRules& rules = {});

// The same of functions that lay one level higher in the request.
base::Result<wire::JsonArray> nested_functions(boost::json::array functions);

}  // namespace llorch::orchestratord::http::chat
