// The EVP interface allocates for every copy of a running hash, and streams copy theirs once per token. The plain one does
// not; it is only marked as deprecated, in every OpenSSL 3.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/assert.h"

namespace llorch::base {
namespace {

using State = std::array<std::uint32_t, 28>;
static_assert(sizeof(State) == sizeof(SHA256_CTX) && alignof(State) == alignof(SHA256_CTX));

SHA256_CTX* context(State& state) { return reinterpret_cast<SHA256_CTX*>(&state); }

}  // namespace

Sha256::Sha256() { ASSERT(SHA256_Init(context(state_)) == 1); }

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  ASSERT(SHA256_Update(context(state_), bytes.data(), bytes.size()) == 1);
  return *this;
}
Sha256& Sha256::update(std::string_view text) { return update(std::as_bytes(std::span(text))); }
Sha256& Sha256::update_u32_le(std::uint32_t value) {
  const std::array<std::byte, 4> bytes = {std::byte(value), std::byte(value >> 8), std::byte(value >> 16),
                                          std::byte(value >> 24)};
  return update(std::span<const std::byte>(bytes));
}
Sha256Digest Sha256::digest() const {
  State copy = state_;
  Sha256Digest out;
  ASSERT(SHA256_Final(out.data(), context(copy)) == 1);
  return out;
}

Sha256Digest sha256(std::string_view text) { return Sha256().update(text).digest(); }

Sha256Digest hmac_sha256(std::span<const std::uint8_t> key, std::string_view text) {
  Sha256Digest out;
  unsigned int size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  ASSERT(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data, text.size(), out.data(), &size) != nullptr);
  ASSERT(size == out.size());
  return out;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::uint8_t b : bytes) {
    out += kHex[b >> 4];
    out += kHex[b & 15];
  }
  return out;
}

}  // namespace llorch::base
