#include "wire/json_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json_text.h"

namespace llorch::wire {
namespace {

namespace bj = boost::json;

// In valid JSON a colon outside of strings belongs to one member.
std::size_t members_written(std::string_view json) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      at = base::json_string_end(json, at);
    } else {
      count += json[at++] == ':';
    }
  }
  return count;
}

std::size_t members_kept(const bj::value& value) {
  std::size_t count = 0;
  if (const auto* object = value.if_object()) {
    count = object->size();
    for (const auto& member : *object) count += members_kept(member.value());
  } else if (const auto* array = value.if_array()) {
    for (const auto& item : *array) count += members_kept(item);
  }
  return count;
}

// The first key that an object already has.
std::string first_duplicate(std::string_view json) {
  std::vector<std::set<std::string>> objects;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t begin = at;
    at = json[at] == '"' ? base::json_string_end(json, at) : at + 1;
    if (json[begin] == '{') objects.emplace_back();
    if (json[begin] == '}') objects.pop_back();
    if (json[begin] != '"') continue;
    const std::size_t next = json.find_first_not_of(" \t\r\n", at);
    if (next == std::string_view::npos || json[next] != ':') continue;
    const bj::value key = bj::parse(bj::string_view(json.data() + begin, at - begin));
    std::string name(key.get_string());
    if (!objects.back().insert(name).second) return name;
  }
  return {};
}

// A key may be anything a client likes; only a name is repeated to them.
bool is_name(std::string_view key) {
  return !key.empty() && key.size() <= 64 &&
         key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
             std::string_view::npos;
}

base::Result<> refuse_duplicate_keys(std::string_view json, const bj::value& parsed) {
  if (members_written(json) == members_kept(parsed)) return {};
  const std::string key = first_duplicate(json);
  const std::string field = is_name(key) ? key : "?";
  return base::fail(base::Error{
      base::ErrorCode::kInvalidParams, fmt::format("{} stands twice in one object; give each field once", field), {}}
                        .with("field", field)
                        .with("reason", std::string("duplicate")));
}

bool is_finite(const bj::value& value) {
  if (const double* number = value.if_double()) return std::isfinite(*number);
  if (const auto* array = value.if_array()) return std::ranges::all_of(*array, is_finite);
  const auto* object = value.if_object();
  return object == nullptr ||
         std::ranges::all_of(*object, [](const auto& member) { return is_finite(member.value()); });
}

}  // namespace

base::Result<> check_json(std::string_view json, const bj::value& parsed) {
  TRY(refuse_duplicate_keys(json, parsed));
  if (is_finite(parsed)) return {};
  return base::fail(base::Error{base::ErrorCode::kInvalidParams, "a number is larger than any double", {}}
                        .with("field", std::string())
                        .with("reason", std::string("range")));
}

}  // namespace llorch::wire
