#pragma once
// exp for weights of candidates; a device that draws uses the same one.
#include "engine/plan/draw_math.h"

namespace llorch::engine::sampling::math {

using plan::exp_s1;

}  // namespace llorch::engine::sampling::math
