#pragma once
// What a library threw, for the log.
#include <string>

namespace llorch::base {

// The type of the exception that is handled now, or that nobody caught; "" without one. What the exception says stays out:
// libraries repeat in it what they were given, and that may be a prompt.
std::string current_exception_type();

}  // namespace llorch::base
