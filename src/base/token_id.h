#pragma once
#include <cstdint>

namespace llorch::base {

// Index of a vocabulary entry. text makes and reads them, engine/sampling draws them, the wire carries them as
// plain numbers: cross over with TokenId{n} and index(id).
enum class TokenId : std::uint32_t {};

constexpr std::uint32_t index(TokenId id) { return static_cast<std::uint32_t>(id); }

}  // namespace llorch::base
