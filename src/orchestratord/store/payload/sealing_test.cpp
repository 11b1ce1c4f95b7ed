#include "orchestratord/store/payload/sealing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace llorch::orchestratord::store::payload {
namespace {

Key key_of(std::uint64_t seed) {
  Key key;
  base::SeededEntropy entropy(seed);
  entropy.fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

// A sealed payload opens under the same key and job, and under nothing else.
TEST(Sealing, OpensOnlyWithItsKeyItsContextAndItsBytes) {
  EXPECT_TRUE(rc::check("sealing", [](const std::string& text, std::uint64_t seed) {
    base::SeededEntropy entropy(seed);
    Sealed sealed = seal(key_of(seed), {.associated_data = "job-1"}, text, entropy);
    RC_ASSERT(unseal(key_of(seed), {.associated_data = "job-1"}, sealed).value() == text);
    RC_ASSERT(!unseal(key_of(seed + 1), {.associated_data = "job-1"}, sealed));
    RC_ASSERT(!unseal(key_of(seed), {.associated_data = "job-2"}, sealed));
    const auto at = *rc::gen::inRange<std::size_t>(0, sealed.ciphertext.size());
    sealed.ciphertext[at] = static_cast<char>(sealed.ciphertext[at] ^ 1);
    const auto changed = unseal(key_of(seed), {.associated_data = "job-1"}, sealed);
    RC_ASSERT(!changed);
    RC_ASSERT(changed.error().code == base::ErrorCode::kCorruptFile);
  }));
}

TEST(Sealing, RefusesTruncatedInput) {
  base::SeededEntropy entropy(1);
  Sealed sealed = seal(key_of(1), {.associated_data = "j"}, "text", entropy);
  EXPECT_FALSE(unseal(key_of(1), {.associated_data = "j"}, {sealed.nonce, sealed.ciphertext.substr(0, 15)}));
  EXPECT_FALSE(unseal(key_of(1), {.associated_data = "j"}, {sealed.nonce.substr(1), sealed.ciphertext}));
}

// The test vector of McGrew and Viega, "The Galois/Counter Mode of Operation", test case 14 (zero key, nonce and block).
TEST(Sealing, IsAes256Gcm) {
  struct Zeros final : base::Entropy {
    void fill(std::span<std::byte> out) override { std::fill(out.begin(), out.end(), std::byte{0}); }
  } zeros;
  const Sealed sealed = seal(Key{}, {.associated_data = ""}, std::string(16, '\0'), zeros);
  static constexpr unsigned char kExpected[] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5,
                                                0xd3, 0xba, 0xf3, 0x9d, 0x18, 0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99,
                                                0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
  EXPECT_EQ(sealed.ciphertext, std::string(reinterpret_cast<const char*>(kExpected), sizeof kExpected));
}

}  // namespace
}  // namespace llorch::orchestratord::store::payload
