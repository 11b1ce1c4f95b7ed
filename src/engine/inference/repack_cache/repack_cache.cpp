#include "engine/inference/repack_cache/repack_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/sha256.h"
#include "engine/inference/repack_cache/repacked_file.h"

namespace llorch::engine::inference::repack_cache {

namespace fs = std::filesystem;
using base::ErrorCode;
using base::Result;

namespace {

constexpr std::string_view kEnd = ".packed", kPartialEnd = ".partial";

struct Entry {
  fs::path path;
  std::uint64_t bytes = 0;
  fs::file_time_type used;
};

// Those used least recently first.
std::vector<Entry> entries_of(const fs::path& directory) {
  std::vector<Entry> entries;
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() != kEnd) continue;
    std::error_code size_ec, time_ec;  // it may be gone by now
    const Entry entry{.path = it->path(), .bytes = it->file_size(size_ec), .used = it->last_write_time(time_ec)};
    if (!size_ec && !time_ec) entries.push_back(entry);
  }
  std::ranges::sort(
      entries, [](const Entry& a, const Entry& b) { return a.used != b.used ? a.used < b.used : a.path < b.path; });
  return entries;
}

// The right to write in a directory; ends with it.
class WriteLock {
 public:
  explicit WriteLock(const fs::path& directory)
      : file_(::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)),
        held_(file_.get() >= 0 && ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) {}
  bool held() const { return held_; }

 private:
  base::Descriptor file_;
  bool held_;
};

// What a writer that was killed has left. REQUIRES: the write lock.
void remove_partials(const fs::path& directory) {
  std::vector<fs::path> partials;
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    if (it->path().extension() == kPartialEnd) partials.push_back(it->path());
  }
  for (const fs::path& partial : partials) fs::remove(partial, ec);
}

base::Error no_room(std::string message, std::uint64_t required, std::uint64_t available) {
  return base::Error{ErrorCode::kInsufficientDisk, std::move(message), {}}
      .with("required_bytes", static_cast<std::int64_t>(required))
      .with("available_bytes", static_cast<std::int64_t>(available));
}

}  // namespace

std::uint64_t RepackKey::packed_bytes() const {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.packed_bytes;
  return bytes;
}

fs::path RepackCache::path_of(const RepackKey& key) const {
  const std::string head = base::to_hex(base::sha256(head_of(key)));
  return options_.directory / fmt::format("{}-{}{}", key.model_digest, head.substr(0, 16), kEnd);
}

Result<std::unique_ptr<plan::PackedSource>> RepackCache::find(const RepackKey& key) const {
  const fs::path path = path_of(key);
  std::error_code ec;
  if (!fs::exists(path, ec)) return nullptr;
  auto source = TRY(open_repacked(path, key));
  fs::last_write_time(path, fs::file_time_type::clock::now(), ec);  // where that fails it is only forgotten earlier
  return source;
}

Result<Kept> RepackCache::keep(const RepackKey& key, std::span<const std::span<const std::byte>> weights,
                               const std::stop_token& stop) const {
  const fs::path path = path_of(key);
  std::error_code ec;
  if (fs::exists(path, ec)) return Kept{.already = true};
  TRY(base::ensure_private_directory(options_.directory));
  const WriteLock lock(options_.directory);
  if (!lock.held()) return base::fail(ErrorCode::kServerBusy, "another worker is writing packed weights");
  remove_partials(options_.directory);
  const std::uint64_t bytes = file_bytes(key);
  TRY(make_room(bytes));
  fs::path partial = path;
  partial.replace_extension(kPartialEnd);
  const int fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return base::fail(base::io_error("cannot create", partial, errno));
  const Result<> written = write_repacked(fd, key, weights, stop);
  ::close(fd);
  if (!written) {
    fs::remove(partial, ec);
    return base::fail(written.error());
  }
  fs::rename(partial, path, ec);
  if (ec) return base::fail(base::io_error("cannot publish", path, ec.value()));
  TRY(base::sync_parent_directory(path));
  return Kept{.bytes = bytes};
}

// Within bytes_max, and so that others keep free_bytes_min of the file system.
Result<> RepackCache::make_room(std::uint64_t bytes) const {
  if (bytes > options_.bytes_max) {
    return base::fail(no_room("the packed weights are more than models.repacked_bytes_max", bytes, options_.bytes_max));
  }
  const std::uint64_t used = used_bytes();
  if (used + bytes > options_.bytes_max) free_up(used + bytes - options_.bytes_max);
  struct statvfs facts {};
  if (::statvfs(options_.directory.c_str(), &facts) != 0)
    return base::fail(base::io_error("cannot examine", options_.directory, errno));
  const std::uint64_t available = std::uint64_t{facts.f_bavail} * facts.f_frsize;
  if (available >= bytes + options_.free_bytes_min) return {};
  return base::fail(no_room(fmt::format("the file system of {} would have less than {} bytes left",
                                        options_.directory.string(), options_.free_bytes_min),
                            bytes, available));
}

void RepackCache::discard(const RepackKey& key) const {
  std::error_code ec;
  fs::remove(path_of(key), ec);
}

std::optional<fs::path> RepackCache::last_used_of(const std::string& model_digest) const {
  std::optional<fs::path> last;
  for (const Entry& entry : entries_of(options_.directory)) {
    if (entry.path.filename().string().starts_with(model_digest + "-")) last = entry.path;
  }
  return last;
}

std::uint64_t RepackCache::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_of(options_.directory)) bytes += entry.bytes;
  return bytes;
}

void RepackCache::forget_model(const std::string& model_digest) const {
  std::error_code ec;
  for (const Entry& entry : entries_of(options_.directory)) {
    if (entry.path.filename().string().starts_with(model_digest + "-")) fs::remove(entry.path, ec);
  }
}

std::uint64_t RepackCache::free_up(std::uint64_t bytes) const {
  std::uint64_t gained = 0;
  for (const Entry& entry : entries_of(options_.directory)) {
    if (gained >= bytes) break;
    std::error_code ec;
    if (fs::remove(entry.path, ec)) gained += entry.bytes;
  }
  return gained;
}

void RepackCache::tidy() const {
  std::error_code ec;
  if (!fs::is_directory(options_.directory, ec)) return;
  if (const WriteLock lock(options_.directory); lock.held()) remove_partials(options_.directory);
  const std::uint64_t used = used_bytes();
  if (used > options_.bytes_max) free_up(used - options_.bytes_max);
}

}  // namespace llorch::engine::inference::repack_cache
