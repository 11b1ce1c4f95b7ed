#pragma once
// What is kept of a caller beside what it asked for, so that a later process goes on in its name. Pure.
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http/principal.h"

namespace llorch::orchestratord::http::tasks {

boost::json::object to_json(const net::http::Principal& caller);
// Nothing: this is no caller.
std::optional<net::http::Principal> caller_from(const boost::json::value* value);

// Of an object of ours; empty, zero or false where it lacks the member.
std::string text_of(const boost::json::object& object, std::string_view name);
std::int64_t number_of(const boost::json::object& object, std::string_view name);
bool flag_of(const boost::json::object& object, std::string_view name);
// How deep a document of a client is nested at most: what the parser takes of a request.
inline constexpr std::size_t kDocumentNestingMax = 32;
// An empty object where `text` is none, or is nested deeper than that.
boost::json::object object_of(std::string_view text, std::size_t nesting_max = kDocumentNestingMax);

}  // namespace llorch::orchestratord::http::tasks
