#pragma once
#include <vector>

#include "grammar/ir/builder.h"

namespace llorch::grammar::ir {

// Per rule: whether it matches the empty string, whether it matches any string at all. Linear in the builder.
std::vector<bool> nullable_rules(const Builder& builder);
std::vector<bool> productive_rules(const Builder& builder);

}  // namespace llorch::grammar::ir
