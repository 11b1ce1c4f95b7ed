#pragma once
#include <memory>

#include "base/result.h"
#include "grammar/ir/builder.h"
#include "grammar/ir/rules.h"

namespace llorch::grammar::ir {

// INVALID_PARAMS: no string at all matches `root`; a rule begins with itself (left recursion); a limit is broken.
base::Result<std::shared_ptr<const RuleSet>> compile(const Builder& builder, RuleId root);

}  // namespace llorch::grammar::ir
