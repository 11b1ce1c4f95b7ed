#pragma once
// ASSERT states what a bug would break. It is on in every build, prints the values it is given and aborts.
#include <fmt/core.h>

#include <string>

namespace llorch::base {
[[noreturn]] void assert_failed(const char* expression, const char* file, int line, const std::string& values);
}

#define ASSERT(condition, ...)                                                                      \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::llorch::base::assert_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
