#pragma once
#include <boost/json/parse_options.hpp>
#include <boost/json/storage_ptr.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string_view>

#include "base/json_text.h"

namespace llorch::base {

// JSON that somebody else wrote: object_too_large where its objects could take too long to build. A number is the double nearest to
// its text (Boost's own parser may be off by some units in the last place), so that what is written and read again is the same.
boost::json::value parse_json(std::string_view text, boost::json::error_code& error,
                              boost::json::storage_ptr memory = {}, const boost::json::parse_options& options = {},
                              std::uint64_t steps_max = kObjectStepsMax);

// The same of a text that was checked or written here; throws boost::system::system_error where it is no JSON all the same.
boost::json::value parse_known_json(std::string_view text);

}  // namespace llorch::base
