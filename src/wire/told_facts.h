#pragma once
// What a node says of a model. It is kept with the model and with each of its jobs, so its texts and counts have bounds there; what is
// read back from a store is taken as decode<ModelFacts>() takes it, also of versions before those bounds.
#include <string_view>

#include "base/result.h"
#include "wire/pool.h"

namespace llorch::wire {

// INVALID_PARAMS as decode(), and with details.reason "length" or "range".
base::Result<ModelFacts> decode_told_facts(std::string_view json);

}  // namespace llorch::wire
