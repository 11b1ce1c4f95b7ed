#pragma once
// A key that stands twice in one object: readers disagree about which value counts, so none is taken.
#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"

namespace llorch::wire {

// INVALID_PARAMS with details {field, reason: "duplicate"} if an object of `json`, at any depth, names a key twice, however
// it is spelled. `parsed`: what the parser, which keeps the last one, made of that text. Pure; linear in the text, without
// an allocation where no key stands twice.
base::Result<> refuse_duplicate_keys(std::string_view json, const boost::json::value& parsed);

}  // namespace llorch::wire
