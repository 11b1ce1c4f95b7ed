#include "pool_managerd/model_catalog/digest_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

namespace bj = boost::json;

constexpr std::size_t kCacheBytesMax = 16 << 20;
constexpr std::size_t kEntriesMax = 4096;

}  // namespace

base::Result<FileStamp> stamp_of(const std::filesystem::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return base::fail(base::io_error("read", file, errno));
  return FileStamp{status.st_size, status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec};
}

DigestCache::DigestCache(std::filesystem::path cache_file) : cache_file_(std::move(cache_file)) { load(); }

base::Result<std::string> DigestCache::digest_of(const std::filesystem::path& file) {
  const FileStamp before = TRY(stamp_of(file));
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(file.string());
    if (it != entries_.end() && it->second.stamp == before) return it->second.digest;
  }
  std::string digest = TRY(hash(file));
  if (TRY(stamp_of(file)) != before) {
    return base::fail(base::ErrorCode::kConflict,
                      "the model file changed while it was read; try again when it is complete");
  }
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kEntriesMax) entries_.clear();
  entries_[file.string()] = {before, digest};
  save();
  return digest;
}

// Reads instead of mapping: a file cut short by somebody else is an error here, not a SIGBUS of the whole daemon.
base::Result<std::string> DigestCache::hash(const std::filesystem::path& file) const {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::fail(base::io_error("open", file, errno));
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<std::byte> buffer(4 << 20);
  base::Sha256 sha;
  ssize_t got;
  while ((got = read(fd, buffer.data(), buffer.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || stopped_) break;
    sha.update(std::span(buffer.data(), static_cast<std::size_t>(got)));
  }
  const int error = errno;
  close(fd);
  if (got < 0) return base::fail(base::io_error("read", file, error));
  if (got > 0) return base::fail(base::ErrorCode::kCancelled, "the pool manager is stopping");
  return base::to_hex(sha.digest());
}

std::optional<std::filesystem::path> DigestCache::find_file(const std::string& digest) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [path, entry] : entries_) {
    if (entry.digest != digest) continue;
    const auto now = stamp_of(path);
    if (now && *now == entry.stamp) return std::filesystem::path(path);
  }
  return std::nullopt;
}

void DigestCache::load() {
  const auto text = base::read_file(cache_file_, kCacheBytesMax);
  if (!text) return;
  bj::error_code ec;
  const bj::value parsed = bj::parse(*text, ec);
  if (ec || !parsed.is_array()) return;
  for (const bj::value& item : parsed.get_array()) {
    const bj::object* entry = item.if_object();
    if (entry == nullptr) continue;
    const auto text_of = [&](const char* key) {
      const bj::value* v = entry->if_contains(key);
      return v != nullptr && v->is_string() ? std::string(v->get_string().c_str()) : std::string();
    };
    const auto number_of = [&](const char* key) {
      const bj::value* v = entry->if_contains(key);
      return v != nullptr && v->is_int64() ? v->get_int64() : std::int64_t{-1};
    };
    const std::string digest = text_of("sha256");
    if (digest.size() != 64 || text_of("path").empty()) continue;
    entries_[text_of("path")] = {{number_of("size_bytes"), number_of("mtime_ns")}, digest};
  }
}

void DigestCache::save() const {
  bj::array items;
  for (const auto& [path, entry] : entries_) {
    items.push_back(bj::object{{"path", path},
                               {"size_bytes", entry.stamp.size_bytes},
                               {"mtime_ns", entry.stamp.mtime_ns},
                               {"sha256", entry.digest}});
  }
  const auto saved = base::write_file_atomic(cache_file_, bj::serialize(items));
  if (!saved) {
    base::log_event(base::LogLevel::kWarn, "digest_cache_unsaved", {},
                    "A model's digest cannot be kept and will be computed again after a restart.",
                    {{"reason", saved.error().message}});
  }
}

}  // namespace llorch::pool_managerd::model_catalog
