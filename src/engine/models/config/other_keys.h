#pragma once
// Keys that a family does not read. One that could change what the model answers is refused by name: a model runs as its
// configuration says, or not at all.
#include <string_view>

#include "base/result.h"

namespace llorch::engine::models {

class GgufKeys;
class HfKeys;

// Keys that change nothing, as words with spaces between: NAME with any value, NAME=VALUE with that one alone, as JSON writes
// it. Nested keys with their path: "rope_parameters.type".
using OtherKeys = std::string_view;

// What none of the readers asked for must be one of `others`, or of the keys that change nothing in any family: ids of tokens,
// settings of training and of sampling, what other readers take (vocabulary, weights' types, images).
// Errors: CONFIG_KEY_INVALID with every key that is neither.
base::Result<> refuse_other_keys(const HfKeys& keys, std::string_view family, OtherKeys others);
base::Result<> refuse_other_keys(const GgufKeys& keys, std::string_view family, OtherKeys others);

}  // namespace llorch::engine::models
