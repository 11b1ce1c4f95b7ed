#include "grammar/json_schema/value_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace llorch::grammar::json_schema {

namespace json = boost::json;

std::uint32_t ValueNumbers::of(Node value) {
  const auto known = known_.find(value);
  if (known != known_.end()) return known->second;
  std::string spelling = spelling_of(*value);
  const auto number =
      numbers_.try_emplace(std::move(spelling), static_cast<std::uint32_t>(numbers_.size())).first->second;
  known_.emplace(value, number);
  return number;
}

// What a value holds stands in it as numbers, so spellings are together no longer than the document.
std::string ValueNumbers::spelling_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return value.get_bool() ? "true" : "false";
    case json::kind::string: return '"' + std::string(value.get_string());
    case json::kind::array: {
      std::string out = "[";
      for (const json::value& each : value.get_array()) out += fmt::format("{},", of(&each));
      return out;
    }
    case json::kind::object: {
      std::vector<std::pair<std::string_view, std::uint32_t>> members;
      for (const auto& member : value.get_object()) members.emplace_back(member.key(), of(&member.value()));
      std::sort(members.begin(), members.end());
      std::string out = "{";
      for (const auto& [name, number] : members) out += fmt::format("{}:{}{},", name.size(), name, number);
      return out;
    }
    default: return to_string(to_decimal(value));
  }
}

}  // namespace llorch::grammar::json_schema
