#pragma once
#include <string_view>

namespace llorch::base {

// Whether `text` is an origin that says who it is, as browsers and programs send it in the header Origin: a scheme in lower case,
// "://", a name with a port if it has one, and nothing behind; or "file://". At most 256 visible ASCII characters, none of
// which ends a text in a list, in JSON or in YAML. "null" is none: every sandboxed frame has it.
bool is_origin(std::string_view text);

// Whether an origin is of an application or an extension that somebody installed: tauri://localhost, chrome-extension://... No page
// that a server sends has one of these schemes.
bool is_origin_of_a_program(std::string_view origin);

}  // namespace llorch::base
