#pragma once
#include <boost/json/parse.hpp>
#include <string_view>
#include <utility>

#include "base/json_text.h"

namespace llorch::base {

// boost::json::parse() for text that somebody else wrote: object_too_large where its objects could take too long to build.
inline boost::json::value parse_json(std::string_view text, boost::json::error_code& error,
                                     boost::json::storage_ptr memory = {},
                                     const boost::json::parse_options& options = {},
                                     std::uint64_t steps_max = kObjectStepsMax) {
  // Each member takes five bytes at least (`"":0,`): most texts are too short for that many steps, and are not looked at.
  if (text.size() * text.size() / 50 > steps_max && object_steps(text) > steps_max) {
    error = boost::json::error::object_too_large;
    return nullptr;
  }
  return boost::json::parse({text.data(), text.size()}, error, std::move(memory), options);
}

}  // namespace llorch::base
