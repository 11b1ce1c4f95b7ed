#pragma once
// Tokens to a bound program.
#include <memory>
#include <string_view>

#include "base/result.h"
#include "text/jinja/syntax/ast.h"

namespace llorch::text::jinja {

// CONFIG_KEY_INVALID as ChatTemplate::parse says.
base::Result<std::shared_ptr<const Program>> parse_template(std::string_view source);

}  // namespace llorch::text::jinja
