#include "orchestratord/http/tasks/kept_facts.h"

#include <boost/json/value.hpp>
#include <cstdint>

#include "base/parse_json.h"

namespace llorch::orchestratord::http::tasks {

namespace json = boost::json;
using net::http::Principal;

std::string text_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::int64_t number_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

bool flag_of(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

json::object object_of(std::string_view text, std::size_t nesting_max) {
  boost::system::error_code failed;
  json::value value =
      base::parse_json(text, failed, {}, {.max_depth = nesting_max}, UINT64_MAX);  // it was counted when it came
  return !failed && value.is_object() ? std::move(value.get_object()) : json::object();
}

json::object to_json(const Principal& caller) {
  return {{"role", net::http::name_of(caller.role)},
          {"name", caller.name},
          {"identity", caller.identity},
          {"account", caller.account}};
}

std::optional<Principal> caller_from(const json::value* value) {
  if (value == nullptr || !value->is_object()) return std::nullopt;
  const json::object& object = value->get_object();
  for (const net::http::Role role : net::http::kRoles) {
    if (text_of(object, "role") != net::http::name_of(role)) continue;
    return Principal{role, text_of(object, "name"), text_of(object, "identity"), text_of(object, "account")};
  }
  return std::nullopt;
}

}  // namespace llorch::orchestratord::http::tasks
