#pragma once
#include "grammar/ir/rules.h"

namespace llorch::grammar::ir {

// Gives every rule a digest of its automaton and of all it can reach: equal digests, equal languages from equal states,
// in whatever grammar. Rules that call each other in a circle are hashed together.
void set_digests(RuleSet& rules);

}  // namespace llorch::grammar::ir
