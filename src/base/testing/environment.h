#pragma once

#include <cstdint>
#include <cstdlib>

namespace llorch::base::testing {

// `make nightly`: tests run as long as it takes them to find what is rare.
inline bool is_nightly() { return std::getenv("LLORCH_NIGHTLY") != nullptr; }

// The seed of a test's first schedule: LLORCH_TEST_SEED, or 1.
inline std::uint64_t first_seed() {
  const char* text = std::getenv("LLORCH_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

}  // namespace llorch::base::testing
