#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/assert.h"

namespace llorch::base {
namespace {
EVP_MD_CTX* get(void* context) { return static_cast<EVP_MD_CTX*>(context); }
}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(get(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ASSERT(context_ != nullptr);
  ASSERT(EVP_DigestInit_ex(get(context_.get()), EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(const Sha256& other) : context_(EVP_MD_CTX_new()) {
  ASSERT(context_ != nullptr);
  ASSERT(EVP_MD_CTX_copy_ex(get(context_.get()), get(other.context_.get())) == 1);
}
Sha256& Sha256::operator=(const Sha256& other) {
  if (this != &other) *this = Sha256(other);
  return *this;
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  ASSERT(EVP_DigestUpdate(get(context_.get()), bytes.data(), bytes.size()) == 1);
  return *this;
}
Sha256& Sha256::update(std::string_view text) { return update(std::as_bytes(std::span(text))); }
Sha256& Sha256::update_u32_le(std::uint32_t value) {
  const std::array<std::byte, 4> bytes = {std::byte(value), std::byte(value >> 8), std::byte(value >> 16),
                                          std::byte(value >> 24)};
  return update(std::span<const std::byte>(bytes));
}
Sha256Digest Sha256::digest() const {
  const Sha256 copy(*this);
  Sha256Digest out;
  unsigned length = 0;
  ASSERT(EVP_DigestFinal_ex(get(copy.context_.get()), out.data(), &length) == 1 && length == out.size());
  return out;
}

Sha256Digest sha256(std::string_view text) { return Sha256().update(text).digest(); }

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
