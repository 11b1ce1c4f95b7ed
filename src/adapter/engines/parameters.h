#pragma once
// What each kind of engine knows of a request. Apart from the engines, so that a pool can tell it without their code.
#include <span>
#include <string_view>

namespace llorch::adapter::engines {

// Names of the fields of wire::SamplingRequest that an engine of this kind knows. REQUIRES: `kind` is one of kinds().
std::span<const std::string_view> parameters_of(std::string_view kind);

}  // namespace llorch::adapter::engines
