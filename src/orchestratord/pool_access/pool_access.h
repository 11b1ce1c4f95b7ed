#pragma once
// Which pools are paired with this orchestratord, where each of them answers, and the token it is called with.
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/entropy.h"
#include "base/id.h"
#include "base/result.h"
#include "base/sha256.h"
#include "contract/pool_credential.h"

namespace llorch::orchestratord::pool_access {

inline constexpr const char* kFileName = "pool_credentials";
inline constexpr std::size_t kPoolsMax = 4096;

// Thread-safe. pair() and unpair() wait for the disk.
class PoolAccess {
 public:
  // `file` need not exist; `entropy` outlives the object. Errors: CONFIG_INVALID (others can read it), CORRUPT_FILE, IO_ERROR.
  static base::Result<std::unique_ptr<PoolAccess>> open(std::filesystem::path file, base::Entropy& entropy);

  // Makes a credential for the pool; the one it had before is refused from now on, and its endpoint is forgotten.
  // REQUIRES: `pool_id` is a valid identifier. Errors: CONFLICT (kPoolsMax pools are paired), IO_ERROR: then nothing changed.
  base::Result<contract::PoolCredential> pair(const base::PoolId& pool_id);
  // False: it was not paired. Errors: IO_ERROR: then nothing changed.
  base::Result<bool> unpair(const base::PoolId& pool_id);

  // Whether this is the credential its pool is paired with.
  bool is_paired(const contract::PoolCredential& credential) const;
  bool is_paired(const base::PoolId& pool_id) const { return token_of(pool_id).has_value(); }
  // Whose node token has this SHA-256.
  std::optional<base::PoolId> pool_of(const base::Sha256Digest& node_token_sha256) const;

  // Where a paired pool answers, once the brain has accepted it. No effect for others.
  void remember(const base::PoolId& pool_id, const std::string& endpoint);
  void forget(const base::PoolId& pool_id);
  std::optional<std::string> endpoint_of(const base::PoolId& pool_id) const;

  struct Pool {
    base::PoolId pool_id;
    std::string token;
  };
  // Who answers there.
  std::optional<Pool> at(const std::string& endpoint) const;
  // With what the pool and its workers are called.
  std::optional<std::string> token_of(const base::PoolId& pool_id) const;

 private:
  struct Entry {
    base::Sha256Digest node_token_sha256{};
    std::string control_token;
    std::string endpoint;  // empty: not known
  };
  using Entries = std::map<base::PoolId, Entry>;

  PoolAccess(std::filesystem::path file, base::Entropy& entropy) : file_(std::move(file)), entropy_(entropy) {}
  base::Result<> read();
  base::Result<> write(const Entries& entries) const;
  void put(Entries entries);

  const std::filesystem::path file_;
  base::Entropy& entropy_;
  std::mutex writing_;  // one change at a time; taken before the other
  mutable std::mutex mutex_;
  Entries entries_;
  std::map<base::Sha256Digest, base::PoolId> by_node_token_;
};

}  // namespace llorch::orchestratord::pool_access
