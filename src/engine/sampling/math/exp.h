#pragma once
// exp for weights of candidates; a device that draws uses the same one.
#include "engine/contract/draw_math.h"

namespace llorch::engine::sampling::math {

using contract::exp_s1;

}  // namespace llorch::engine::sampling::math
