#pragma once
// A field of SamplingRequest as it is where nobody sets it.
#include <string_view>

#include "wire/sampling.h"

namespace llorch::wire {

// Gives the field its default. REQUIRES: `name` is a field's.
void reset_field(SamplingRequest& request, std::string_view name);

}  // namespace llorch::wire
