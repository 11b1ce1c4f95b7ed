#pragma once
#include <string>

namespace llorch::base {

// "<version>+<first 12 hex digits of the executable's GNU build id>": a hash of the linked binary, so two equal strings
// mean the same machine code. Part of every receipt as engine_build.
std::string build_id();

}  // namespace llorch::base
