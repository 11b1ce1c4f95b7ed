#pragma once
#include <string>

#include "orchestratord/brain/commands.h"

namespace llorch::orchestratord::brain {

// Every field of a command as text: what two runs are compared by, and what a failed test prints.
std::string describe(const Command& command);

}  // namespace llorch::orchestratord::brain
