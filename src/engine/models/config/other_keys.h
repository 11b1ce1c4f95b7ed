#pragma once
// Keys that a family does not read. One that could change what the model answers is refused by name: a model runs as its
// configuration says, or not at all.
#include <span>
#include <string_view>

#include "base/result.h"

namespace llorch::engine::models {

class GgufKeys;
class HfKeys;

// A key that changes nothing: with any value, or with this one alone.
struct OtherKey {
  std::string_view name;     // nested ones with their path: "rope_parameters.type"
  std::string_view value{};  // as JSON writes it; empty: any
};

// What none of the readers asked for must be one of `others`, or of the keys that change nothing in any family: ids of tokens,
// settings of training and of sampling, what other readers take (vocabulary, weights' types, images).
// Errors: CONFIG_KEY_INVALID with every key that is neither.
base::Result<> refuse_other_keys(const HfKeys& keys, std::string_view family, std::span<const OtherKey> others);
base::Result<> refuse_other_keys(const GgufKeys& keys, std::string_view family, std::span<const OtherKey> others);

}  // namespace llorch::engine::models
