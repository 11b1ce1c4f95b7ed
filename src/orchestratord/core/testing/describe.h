#pragma once
#include <string>

#include "orchestratord/core/commands.h"

namespace llorch::orchestratord::core {

// Every field of a command as text: what two runs are compared by, and what a failed test prints.
std::string describe(const Command& command);

}  // namespace llorch::orchestratord::core
