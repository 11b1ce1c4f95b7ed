#include "config/model_grant.h"

#include <fmt/core.h>

#include <charconv>
#include <span>

#include "base/sha256.h"

namespace llorch::config {

std::string model_grant(std::string_view control_token, std::string_view checksum, std::int64_t until_unix_s) {
  const std::span<const std::uint8_t> key(reinterpret_cast<const std::uint8_t*>(control_token.data()),
                                          control_token.size());
  const auto seal = base::hmac_sha256(key, fmt::format("model {} until {}", checksum, until_unix_s));
  return fmt::format("{}.{}", until_unix_s, base::to_hex(seal));
}

bool opens_model(std::string_view grant, std::string_view control_token, std::string_view checksum,
                 std::int64_t now_unix_s) {
  std::int64_t until = 0;
  const auto [end, ec] = std::from_chars(grant.data(), grant.data() + grant.size(), until);
  if (ec != std::errc() || until <= now_unix_s) return false;
  // Digests of both are compared, so that the time it takes says nothing of what was expected.
  return base::sha256(grant) == base::sha256(model_grant(control_token, checksum, until));
}

}  // namespace llorch::config
