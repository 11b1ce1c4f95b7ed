#pragma once
// What tells a template's own refusal (raise_exception) from every other error of a render.
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace llorch::text::jinja {

// A detail of the refusal: the steps that the render took until then.
inline constexpr const char* kStepsToRefusal = "steps_to_refusal";

// Nullopt: the error is no refusal by the template.
std::optional<std::uint64_t> steps_to_refusal(const base::Error& error);

}  // namespace llorch::text::jinja
