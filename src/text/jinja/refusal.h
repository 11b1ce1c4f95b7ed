#pragma once
// What tells a template's own refusal (raise_exception) from every other error of a render.
#include "base/error.h"

namespace llorch::text::jinja {

inline constexpr const char* kRefusal = "refusal";  // a detail of the refusal

bool is_refusal(const base::Error& error);

}  // namespace llorch::text::jinja
