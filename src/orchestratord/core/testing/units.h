#pragma once
#include <cstdint>

namespace llorch::orchestratord::core {

inline constexpr std::int64_t kGb = 1'000'000'000;

}  // namespace llorch::orchestratord::core
