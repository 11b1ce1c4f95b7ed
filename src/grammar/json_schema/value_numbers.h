#pragma once
#include <string>
#include <unordered_map>

#include "base/keyed_hash.h"
#include "grammar/json_schema/document.h"

namespace llorch::grammar::json_schema {

// Gives equal values one number, as JSON Schema has it: 1 and 1.0 are one value, true and 1 are two. Looks at each value
// once, so that comparing takes no time.
class ValueNumbers {
 public:
  // REQUIRES that `value` stays where it is as long as this lives.
  std::uint32_t of(Node value);

 private:
  std::string spelling_of(const boost::json::value& value);

  std::unordered_map<Node, std::uint32_t> known_;
  std::unordered_map<std::string, std::uint32_t, base::KeyedHash> numbers_;  // by spelling
};

}  // namespace llorch::grammar::json_schema
