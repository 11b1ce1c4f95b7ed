#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "base/result.h"

namespace llorch::text::formats {

struct Tool {
  std::string name;
  boost::json::object parameters;  // JSON Schema of the arguments; empty where the tool states none
};

// What a request offers to the model.
class Tools {
 public:
  Tools() = default;
  // `json`: an array of {"type": "function", "function": {"name", "parameters"}}. INVALID_PARAMS with details {field,
  // reason}: malformed, or two tools of one name.
  static base::Result<Tools> parse(std::string_view json);

  const Tool* find(std::string_view name) const;
  const std::vector<Tool>& all() const { return tools_; }
  bool empty() const { return tools_.empty(); }

 private:
  std::vector<Tool> tools_;
};

}  // namespace llorch::text::formats
