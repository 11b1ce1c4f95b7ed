#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace llorch::base {

using HashKey = std::array<std::uint64_t, 2>;

// SipHash with one round for each eight bytes and three at the end (Aumasson and Bernstein, 2012).
std::uint64_t siphash13(const HashKey& key, std::string_view bytes);

// For hash tables of what files, nodes and tenants say: with a key that is drawn once for each process, nobody can choose
// texts that collide. Look-ups only: another process goes through such a table in another order.
struct KeyedHash {
  std::size_t operator()(std::string_view text) const;
  std::size_t operator()(std::uint64_t number) const;
};

}  // namespace llorch::base
