#pragma once
#include <cstdint>
#include <string>

namespace llorch::base {

// "1.5 KiB"; whole bytes below one KiB.
std::string human_bytes(std::int64_t bytes);

}  // namespace llorch::base
