#pragma once
// The secret of one pool, and the tokens that follow from it. Each direction has a token of its own, so that one which is
// overheard or stolen on its way is worth nothing on the way back. Values; no thread rule.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/entropy.h"
#include "base/id.h"
#include "base/result.h"

namespace llorch::config {

class PoolCredential {
 public:
  // A new secret of 32 random bytes. REQUIRES: `pool_id` is a valid identifier.
  static PoolCredential make(base::PoolId pool_id, base::Entropy& entropy);
  // What text() wrote. Errors: CONFIG_INVALID; the message never holds the text.
  static base::Result<PoolCredential> parse(std::string_view text);

  const base::PoolId& pool_id() const { return pool_id_; }
  // "pool_id:64 hex digits": what the pool keeps. Whoever has it is the pool.
  std::string text() const;

  // What the pool shows orchestratord.
  std::string node_token() const;
  // What orchestratord shows the pool and its workers, and the pool its workers.
  std::string control_token() const;
  // What a worker shows its pool.
  std::string worker_token() const;

 private:
  using Secret = std::array<std::uint8_t, 32>;
  PoolCredential(base::PoolId pool_id, const Secret& secret) : pool_id_(std::move(pool_id)), secret_(secret) {}
  std::string derive(std::string_view label) const;

  base::PoolId pool_id_;
  Secret secret_;
};

struct Config;
// Where the pool of this configuration keeps its credential.
std::filesystem::path pool_credential_file(const Config& config, const std::filesystem::path& state_directory);
// The credential in `file`; absent: there is no such file. Errors: CONFIG_INVALID (others can read it, or it is none),
// IO_ERROR.
base::Result<std::optional<PoolCredential>> load_pool_credential(const std::filesystem::path& file);
// Whether store_pool_credential() could write `file`, tried with a file beside it that goes again. Errors: IO_ERROR.
base::Result<> check_pool_credential_file(const std::filesystem::path& file);
// With mode 0600, whole or not at all. A credential that is there, for another orchestratord perhaps, is kept beside it as
// FILE.replaced: nobody else can make it again. Errors: IO_ERROR.
base::Result<> store_pool_credential(const std::filesystem::path& file, const PoolCredential& credential);

}  // namespace llorch::config
