#pragma once
// Names out of untrusted files, fit for messages.
#include <string>
#include <string_view>

namespace llorch::engine::io {

// UTF-8 without control characters.
bool is_printable_utf8(std::string_view text);
// 'text', at most 64 bytes of it, anything but printable ASCII escaped.
std::string printable(std::string_view text);

}  // namespace llorch::engine::io
