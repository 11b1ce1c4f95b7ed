#pragma once
// SHA-256 of model files, computed once per (path, size, modification time) and kept over restarts.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace llorch::pool_managerd::model_catalog {

struct FileStamp {
  std::int64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
base::Result<FileStamp> stamp_of(const std::filesystem::path& file);

// Thread-safe. Two threads that ask for one unknown file may both hash it.
class DigestCache {
 public:
  // Reads `cache_file` if it exists; one that is damaged is as good as empty, digests can be computed again.
  explicit DigestCache(std::filesystem::path cache_file);

  // 64 hex digits. IO_ERROR; CONFLICT if the file changed while it was hashed; CANCELLED after stop().
  base::Result<std::string> digest_of(const std::filesystem::path& file);
  // A file that had this digest when it was hashed and has not changed since.
  std::optional<std::filesystem::path> find_file(const std::string& digest) const;
  // Makes a running digest_of end soon, and every later one that would have to hash.
  void stop() { stopped_ = true; }

 private:
  struct Entry {
    FileStamp stamp;
    std::string digest;
  };
  base::Result<std::string> hash(const std::filesystem::path& file) const;
  void load();
  void save() const;

  std::filesystem::path cache_file_;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by path
};

}  // namespace llorch::pool_managerd::model_catalog
