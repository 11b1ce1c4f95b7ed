#include "base/keyed_hash.h"

#include <bit>
#include <cstring>
#include <span>

#include "base/entropy.h"

namespace llorch::base {
namespace {

HashKey drawn_key() {
  HashKey key{};
  SystemEntropy().fill(std::as_writable_bytes(std::span(key)));
  return key;
}

const HashKey& process_key() {
  static const HashKey key = drawn_key();
  return key;
}

}  // namespace

std::uint64_t siphash13(const HashKey& key, std::string_view bytes) {
  std::uint64_t a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d;
  std::uint64_t c = key[0] ^ 0x6c7967656e657261, d = key[1] ^ 0x7465646279746573;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= 8; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    d ^= word;
    round();
    a ^= word;
  }
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (std::size_t i = 0; at + i < bytes.size(); ++i) {
    last |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  d ^= last;
  round();
  a ^= last;
  c ^= 0xff;
  for (int i = 0; i < 3; ++i) round();
  return a ^ b ^ c ^ d;
}

std::size_t KeyedHash::operator()(std::string_view text) const { return siphash13(process_key(), text); }

std::size_t KeyedHash::operator()(std::uint64_t number) const {
  return siphash13(process_key(), {reinterpret_cast<const char*>(&number), sizeof number});
}

}  // namespace llorch::base
