#pragma once
// Digests of models (engine/io/model_digest.h), computed once per path and stamp of the files there, kept over restarts.
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/model_digest.h"

namespace llorch::pool_managerd::model_catalog {

// Thread-safe. Two threads that ask for one unknown file may both hash it.
class DigestCache {
 public:
  // Reads `cache_file` if it exists; one that is damaged is as good as empty, digests can be computed again.
  explicit DigestCache(std::filesystem::path cache_file);

  // The digest of a GGUF file, a part of a split one or a Hugging Face directory. Errors: those of io::model_digest and
  // model_stamp; CONFLICT if a file changed while it was hashed; CANCELLED after stop().
  // `reread`: hashed whatever is known.
  base::Result<engine::io::StampedDigest> digest_of(const std::filesystem::path& model, bool reread = false);
  // The same without hashing: absent unless the files were hashed before and have not changed since.
  std::optional<engine::io::StampedDigest> known(const std::filesystem::path& model) const;
  // `digest` was computed from what is in the model's files now, by whoever wrote them.
  void computed(const std::filesystem::path& model, const std::string& digest);
  // Whether `told`, which another process computed, is the digest of the files; hashes them unless that is known. Also
  // true if the files have changed since: `told` says nothing of the new ones. Errors: those of digest_of().
  base::Result<bool> confirms(const std::filesystem::path& model, const engine::io::StampedDigest& told);
  // The models that had this digest when they were hashed and have not changed since: copies of one, by path.
  std::vector<std::filesystem::path> find_files(const std::string& digest) const;
  // Makes a running digest_of end soon, and every later one that would have to hash.
  void stop() { stopped_ = true; }

 private:
  void load();
  void keep(const std::filesystem::path& model, engine::io::StampedDigest digest);  // REQUIRES: mutex_ held
  void save() const;

  std::filesystem::path cache_file_;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, engine::io::StampedDigest> entries_;  // by path
};

}  // namespace llorch::pool_managerd::model_catalog
