#pragma once
// Which variable a name means. Jinja decides it before the template runs, and its rules are visible: a name that a scope
// assigns anywhere is that scope's variable from the start of the scope (docs/internals/chat-templates.md).
#include "base/result.h"
#include "text/jinja/syntax/ast.h"

namespace llorch::text::jinja {

// Fills in every slot, scope and slots_count of the program. CONFIG_KEY_INVALID: assigns to `loop`, or a macro's
// `caller` parameter has no default.
base::Result<> bind_names(Program& program);

}  // namespace llorch::text::jinja
