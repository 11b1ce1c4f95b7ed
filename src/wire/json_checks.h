#pragma once
// What a parser lets pass and nobody takes here.
#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"

namespace llorch::wire {

// `parsed`: what the parser made of the text `json`, of which it keeps the last of equal keys. INVALID_PARAMS with details
// {field, reason} if, at any depth,
// - an object names a key twice, however it is spelled (`duplicate`): readers disagree about which value counts;
// - a number lies beyond a double (`range`): the parser makes infinity of it, which written down again is no JSON.
// Pure; linear in the text, without an allocation where there is nothing to refuse.
base::Result<> check_json(std::string_view json, const boost::json::value& parsed);

}  // namespace llorch::wire
