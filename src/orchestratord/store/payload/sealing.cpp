#include "orchestratord/store/payload/sealing.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <memory>

#include "base/assert.h"

namespace llorch::orchestratord::store::payload {
namespace {

using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

// OpenSSL calls fail here only for want of memory or by misuse.
void must(int result) { ASSERT(result == 1, "OpenSSL returned {}", result); }

}  // namespace

Key::~Key() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

Sealed seal(const Key& key, const SealContext& context, std::string_view plaintext, base::Entropy& entropy) {
  ASSERT(plaintext.size() < (1u << 30), "bytes={}", plaintext.size());
  Sealed out{std::string(kNonceBytes, '\0'), std::string(plaintext.size() + kTagBytes, '\0')};
  entropy.fill(std::as_writable_bytes(std::span(out.nonce)));
  const Context cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  ASSERT(cipher != nullptr);
  int n = 0;
  must(EVP_EncryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key.bytes.data(), bytes_of(out.nonce), nullptr));
  must(EVP_EncryptUpdate(cipher.get(), nullptr, &n, bytes_of(context.associated_data),
                         static_cast<int>(context.associated_data.size())));
  must(EVP_EncryptUpdate(cipher.get(), bytes_of(out.ciphertext), &n, bytes_of(plaintext),
                         static_cast<int>(plaintext.size())));
  must(EVP_EncryptFinal_ex(cipher.get(), bytes_of(out.ciphertext) + n, &n));
  must(
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, bytes_of(out.ciphertext) + plaintext.size()));
  return out;
}

base::Result<std::string> unseal(const Key& key, const SealContext& context, const Sealed& sealed) {
  const auto refused = [] {
    return base::fail(base::ErrorCode::kCorruptFile, "the sealed payload does not open under its key");
  };
  if (sealed.nonce.size() != kNonceBytes || sealed.ciphertext.size() < kTagBytes) return refused();
  const std::size_t text_bytes = sealed.ciphertext.size() - kTagBytes;
  std::string plaintext(text_bytes, '\0');
  std::string tag = sealed.ciphertext.substr(text_bytes);
  const Context cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  ASSERT(cipher != nullptr);
  int n = 0;
  must(EVP_DecryptInit_ex2(cipher.get(), EVP_aes_256_gcm(), key.bytes.data(), bytes_of(sealed.nonce), nullptr));
  must(EVP_DecryptUpdate(cipher.get(), nullptr, &n, bytes_of(context.associated_data),
                         static_cast<int>(context.associated_data.size())));
  must(EVP_DecryptUpdate(cipher.get(), bytes_of(plaintext), &n, bytes_of(sealed.ciphertext),
                         static_cast<int>(text_bytes)));
  must(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, bytes_of(tag)));
  if (EVP_DecryptFinal_ex(cipher.get(), bytes_of(plaintext) + n, &n) != 1) {
    OPENSSL_cleanse(plaintext.data(), plaintext.size());
    return refused();
  }
  return plaintext;
}

}  // namespace llorch::orchestratord::store::payload
