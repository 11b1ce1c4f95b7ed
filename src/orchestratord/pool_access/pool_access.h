#pragma once
// Which pools are paired with this orchestratord, where each of them answers, and the token it is called with.
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/entropy.h"
#include "base/id.h"
#include "base/result.h"
#include "base/sha256.h"
#include "contract/pool_credential.h"
#include "net/http/principal.h"

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
  bool is_paired(const base::PoolId& pool_id) const;
  // Who comes with the node token of this SHA-256.
  std::optional<net::http::Principal> caller_of(const base::Sha256Digest& node_token_sha256) const;
  // Whether the credential of `caller` is the one its pool is paired with now. Who calls is settled on the head of a request,
  // and a credential may end before the body has come.
  bool is_current(const net::http::Principal& caller) const;

  // `caller` says that its pool answers at `endpoint`. False: its credential has ended.
  bool announce(const net::http::Principal& caller, const std::string& endpoint);
  // The brain accepted what a pool said. No effect unless its present credential said it: nobody gets the token of the
  // next one.
  void remember(const base::PoolId& pool_id, const std::string& endpoint);
  // As remember(), of what an earlier process remembered.
  void restore(const base::PoolId& pool_id, const std::string& endpoint);
  void forget(const base::PoolId& pool_id);
  std::optional<std::string> endpoint_of(const base::PoolId& pool_id) const;

  struct Pool {
    base::PoolId pool_id;
    std::string token;
  };
  // Who answers there.
  std::optional<Pool> at(const std::string& endpoint) const;
  // With what a worker of the pool is called, if the pool is where the worker is said to be.
  std::optional<std::string> token_for_worker(const base::PoolId& pool_id, const std::string& uri) const;

 private:
  struct Entry {
    base::Sha256Digest node_token_sha256{};
    std::string control_token;
    std::string endpoint;                // empty: not known
    std::vector<std::string> announced;  // with this credential; the last few, of which the brain takes one
    net::http::Principal caller(const base::PoolId& pool_id) const;
  };
  using Entries = std::map<base::PoolId, Entry>;

  PoolAccess(std::filesystem::path file, base::Entropy& entropy) : file_(std::move(file)), entropy_(entropy) {}
  base::Result<> read();
  base::Result<> write(const Entries& entries) const;
  void put(Entries entries);
  void move_to(Entry& entry, const std::string& endpoint);

  const std::filesystem::path file_;
  base::Entropy& entropy_;
  std::mutex writing_;  // one change at a time; taken before the other
  mutable std::mutex mutex_;
  Entries entries_;
  std::map<base::Sha256Digest, base::PoolId> by_node_token_;
};

}  // namespace llorch::orchestratord::pool_access
