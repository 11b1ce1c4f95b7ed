#pragma once
// What both ways to Triton have in common.
#include "adapter/engines/engine.h"

namespace llorch::adapter::engines {

base::Error triton_tells_no_messages();

}  // namespace llorch::adapter::engines
