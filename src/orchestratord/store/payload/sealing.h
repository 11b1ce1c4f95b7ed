#pragma once
// AES-256-GCM (NIST SP 800-38D) for payloads at rest. Pure; OpenSSL does the work.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/entropy.h"
#include "base/result.h"

namespace llorch::orchestratord::store::payload {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kNonceBytes = 12;
inline constexpr std::size_t kTagBytes = 16;

// Key material; wiped when it goes.
struct Key {
  std::array<std::uint8_t, kKeyBytes> bytes{};

  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();
};

struct Sealed {
  std::string nonce;
  std::string ciphertext;  // tag appended
};

// `context` is authenticated, not stored: a sealed text opens only under the same one.
struct SealContext {
  std::string_view associated_data;
};

Sealed seal(const Key& key, const SealContext& context, std::string_view plaintext, base::Entropy& entropy);
// CORRUPT_FILE: another key, another context, or changed bytes.
base::Result<std::string> unseal(const Key& key, const SealContext& context, const Sealed& sealed);

}  // namespace llorch::orchestratord::store::payload
