#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace llorch::base {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Incremental SHA-256 (OpenSSL). Copyable, so that a running hash can be read without ending it.
class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256& other);
  Sha256& operator=(const Sha256& other);
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  Sha256& update_u32_le(std::uint32_t value);
  // The digest of everything so far; the running hash goes on.
  Sha256Digest digest() const;

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

Sha256Digest sha256(std::string_view text);
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace llorch::base
