#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace llorch::base {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Incremental SHA-256 (OpenSSL). A plain value: copying it copies the running hash, and nothing allocates.
class Sha256 {
 public:
  Sha256();

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  Sha256& update_u32_le(std::uint32_t value);
  // The digest of everything so far; the running hash goes on.
  Sha256Digest digest() const;

 private:
  std::array<std::uint32_t, 28> state_;  // holds a SHA256_CTX
};

Sha256Digest sha256(std::string_view text);
// HMAC-SHA-256 (RFC 2104) of `text` under `key`.
Sha256Digest hmac_sha256(std::span<const std::uint8_t> key, std::string_view text);
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace llorch::base
