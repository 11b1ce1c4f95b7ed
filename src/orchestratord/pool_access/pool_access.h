#pragma once
// Knows the pools paired with this orchestratord, the endpoint of each, and the token for calls to it.
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
#include "config/pool_credential.h"
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
  base::Result<config::PoolCredential> pair(const base::PoolId& pool_id);
  // False: it was not paired. Errors: IO_ERROR: then nothing changed.
  base::Result<bool> unpair(const base::PoolId& pool_id);

  // Whether this is the credential its pool is paired with.
  bool is_paired(const config::PoolCredential& credential) const;
  bool is_paired(const base::PoolId& pool_id) const;
  // The caller whose node token has this SHA-256; absent: no paired pool has it.
  std::optional<net::http::Principal> caller_of(const base::Sha256Digest& node_token_sha256) const;
  // Whether the credential of `caller` is still the one its pool is paired with: a caller is recognised by the head of
  // a request, and its credential may end before the body has come.
  bool is_current(const net::http::Principal& caller) const;

  // `caller` says that its pool answers at `endpoint`. False: its credential has ended.
  bool announce(const net::http::Principal& caller, const std::string& endpoint);
  // The core accepted a report of the pool: calls go to `endpoint` from now on. No effect unless the present
  // credential announced it, so that the token of a new credential never goes to an endpoint of the old one.
  void remember(const base::PoolId& pool_id, const std::string& endpoint);
  // As remember(), for an endpoint that an earlier process stored.
  void restore(const base::PoolId& pool_id, const std::string& endpoint);
  void forget(const base::PoolId& pool_id);
  std::optional<std::string> endpoint_of(const base::PoolId& pool_id) const;
  // Whether none of the paired pools has yet to come, or to come back: the endpoint of each is known.
  bool all_are_here() const;
  // The ids of the paired pools that are at none of `endpoints`.
  std::vector<std::string> besides(const std::vector<std::string>& endpoints) const;

  struct Pool {
    base::PoolId pool_id;
    std::string token;
  };
  // The pool at `endpoint`, with the token for calls to it.
  std::optional<Pool> at(const std::string& endpoint) const;
  // What opens this model of the pool to another pool until then; absent: the pool is not paired.
  std::optional<std::string> grant(const base::PoolId& pool_id, std::string_view checksum,
                                   std::int64_t until_unix_s) const;
  // The token for calls to a worker of the pool; absent if `uri` is not on the pool's host.
  std::optional<std::string> token_for_worker(const base::PoolId& pool_id, const std::string& uri) const;

 private:
  struct Entry {
    base::Sha256Digest node_token_sha256{};
    std::string control_token;
    std::string endpoint;                // empty: not known
    std::vector<std::string> announced;  // with this credential; the last few, of which the core takes one
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
