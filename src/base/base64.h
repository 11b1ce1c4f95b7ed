#pragma once
// Base64 with the alphabet A-Z a-z 0-9 + / (RFC 4648, section 4), padded, in one line.
#include <optional>
#include <string>
#include <string_view>

namespace llorch::base {

// Of bytes.
std::string base64_encode(std::string_view bytes);
// Nothing for what encode() does not write: other characters, line breaks, padding that is missing or stray, set bits behind
// the last byte. So every text but one stands for no bytes, and equal bytes have equal texts.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace llorch::base
