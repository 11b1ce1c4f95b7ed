#pragma once
#include <string_view>

#include "base/result.h"
#include "grammar/ir/builder.h"

namespace llorch::grammar::frontend {

// Adds the rules of a GBNF text and returns `root`. INVALID_PARAMS with the line: malformed, a rule that is missing or
// defined twice, too deep.
// Beyond GBNF, `%json {...}` stands for the texts valid under that JSON Schema.
base::Result<ir::RuleId> read_gbnf(ir::Builder& builder, std::string_view text);

}  // namespace llorch::grammar::frontend
