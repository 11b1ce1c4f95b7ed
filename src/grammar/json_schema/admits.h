#pragma once
#include "grammar/json_schema/conditions.h"

namespace llorch::grammar::json_schema {

// Whether `value` is valid under `schema`: which values of an enum the conditions beside it leave.
base::Result<bool> admits(const Document& document, Node schema, const boost::json::value& value, const Limits& limits);

// As JSON Schema has it: 1 and 1.0 are one value, true and 1 are two.
bool is_equal(const boost::json::value& a, const boost::json::value& b);

}  // namespace llorch::grammar::json_schema
