#include "pool_managerd/provisioner/download/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace llorch::pool_managerd::provisioner::download {
namespace {

using base::ErrorCode;

base::Error taken() { return {ErrorCode::kConflict, "another process fetches this model into the same cache", {}}; }

}  // namespace

base::Result<PartFile> PartFile::open(std::filesystem::path stem, const Identity& identity) {
  PartFile out(std::move(stem), identity);
  TRY(out.open_files());
  TRY(out.check_room());  // first: the map of a file that no disk holds is large, too
  out.chunks_.assign(static_cast<std::size_t>((identity.size_bytes + kChunkBytes - 1) / kChunkBytes), kMissing);
  // Of a file that has another name nothing is written: a model may be published with it.
  const bool goes_on = out.read_map() && (out.is_complete() || !out.has_other_name_);
  if (!goes_on) TRY(out.reset());
  TRY(out.reserve());
  return out;
}

// REQUIRES: nothing is hashed meanwhile, which knows where the other one is.
PartFile::PartFile(PartFile&& other) noexcept
    : stem_(std::move(other.stem_)),
      identity_(std::move(other.identity_)),
      data_fd_(std::exchange(other.data_fd_, -1)),
      map_fd_(std::exchange(other.map_fd_, -1)),
      chunks_(std::move(other.chunks_)),
      bytes_done_(other.bytes_done_),
      hashed_(other.hashed_),
      hash_(other.hash_),
      has_other_name_(other.has_other_name_),
      has_resumed_(other.has_resumed_) {}

PartFile::~PartFile() {
  forget_hashing();
  if (data_fd_ >= 0) ::close(data_fd_);
  if (map_fd_ >= 0) ::close(map_fd_);
}

std::string PartFile::header() const {
  return boost::json::serialize(
      boost::json::object{{"version", 1}, {"identity", identity_.text}, {"size_bytes", identity_.size_bytes}});
}

base::Result<> PartFile::open_data(int more_flags) {
  const int fd = ::open(data_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | more_flags, 0600);
  if (fd < 0 && errno == EEXIST) return base::fail(taken());
  if (fd < 0) return base::fail(base::io_error("cannot open", data_path(), errno));
  if (data_fd_ >= 0) ::close(data_fd_);
  data_fd_ = fd;
  if (::flock(data_fd_, LOCK_EX | LOCK_NB) != 0) return base::fail(taken());
  struct stat opened {
  }, named{};
  // Another process that had it may have taken the name away in between.
  const bool is_named = ::fstat(data_fd_, &opened) == 0 && ::lstat(data_path().c_str(), &named) == 0 &&
                        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!is_named) return base::fail(taken());
  has_other_name_ = opened.st_nlink > 1;
  return {};
}

base::Result<> PartFile::open_files() {
  TRY(open_data(0));
  map_fd_ = ::open(path(".map").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (map_fd_ < 0) return base::fail(base::io_error("cannot open", path(".map"), errno));
  return {};
}

// False: what is there is of something else, or damaged.
bool PartFile::read_map() {
  if (identity_.text.empty()) return false;
  const auto kept = base::read_file(path(".json"), 1 << 16);
  if (!kept || *kept != header()) return false;
  std::vector<char> map(chunks_.size() + 1);
  if (::pread(map_fd_, map.data(), map.size(), 0) > static_cast<ssize_t>(chunks_.size())) return false;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (map[i] != kHere) continue;
    chunks_[i] = kHere;
    bytes_done_ += chunk_end(i) - static_cast<std::int64_t>(i) * kChunkBytes;
  }
  has_resumed_ = bytes_done_ > 0;
  return true;
}

base::Result<> PartFile::reset() {
  forget_hashing();
  std::error_code ec;
  std::filesystem::remove(path(".json"), ec);  // first: without it nothing counts as here
  if (has_other_name_) {
    std::filesystem::remove(data_path(), ec);
    TRY(open_data(O_EXCL));
  }
  if (::ftruncate(data_fd_, 0) != 0 || ::ftruncate(map_fd_, 0) != 0) {
    return base::fail(base::io_error("cannot truncate", data_path(), errno));
  }
  std::fill(chunks_.begin(), chunks_.end(), kMissing);
  bytes_done_ = hashed_ = 0;
  hash_ = {};
  has_resumed_ = false;
  TRY(reserve());
  return base::write_file_atomic(path(".json"), header());
}

base::Result<std::int64_t> PartFile::check_room() const {
  struct statvfs fs {};
  struct stat st {};
  if (::fstatvfs(data_fd_, &fs) != 0 || ::fstat(data_fd_, &st) != 0) {
    return base::fail(base::io_error("cannot examine", data_path(), errno));
  }
  const std::int64_t required = std::max<std::int64_t>(0, identity_.size_bytes - std::int64_t{st.st_blocks} * 512);
  const std::int64_t usable = usable_bytes(fs);
  if (required > usable) return base::fail(no_room(required, usable));
  return required;
}

base::Result<> PartFile::reserve() {
  const std::int64_t required = TRY(check_room());
  if (required == 0) return {};
  const int error = ::posix_fallocate(data_fd_, 0, identity_.size_bytes);
  if (error == ENOSPC || error == EDQUOT) {
    give_back_room();  // some of it was reserved
    return base::fail(no_room(required, 0));
  }
  return {};  // where the file system cannot reserve, writes will tell
}

std::int64_t PartFile::chunk_end(std::size_t chunk) const {
  return std::min(identity_.size_bytes, (static_cast<std::int64_t>(chunk) + 1) * kChunkBytes);
}

std::optional<web::ByteRange> PartFile::claim(std::int64_t bytes_max) {
  const auto first = std::find(chunks_.begin(), chunks_.end(), kMissing);
  if (first == chunks_.end()) return std::nullopt;
  const std::size_t begin = static_cast<std::size_t>(first - chunks_.begin());
  const std::size_t end_max =
      std::min(chunks_.size(), begin + static_cast<std::size_t>((bytes_max + kChunkBytes - 1) / kChunkBytes));
  std::size_t end = begin;
  while (end < end_max && chunks_[end] == kMissing) chunks_[end++] = kClaimed;
  return web::ByteRange{static_cast<std::int64_t>(begin) * kChunkBytes, chunk_end(end - 1)};
}

void PartFile::release(const web::ByteRange& range) {
  for (std::int64_t at = range.begin; at < range.end; at += kChunkBytes) {
    char& chunk = chunks_[static_cast<std::size_t>(at / kChunkBytes)];
    if (chunk == kClaimed) chunk = kMissing;
  }
}

base::Error PartFile::no_room(std::int64_t required, std::int64_t available) const {
  return too_little_room({stem_.parent_path(), "what is left of the file", identity_.room_advice}, required, available);
}

base::Result<> PartFile::write_all(int fd, std::int64_t offset, std::string_view bytes,
                                   const std::filesystem::path& file) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      const std::int64_t left = identity_.size_bytes - bytes_done_;
      return base::fail(no_room(std::max(left, static_cast<std::int64_t>(bytes.size())), 0));
    }
    if (written < 0) return base::fail(base::io_error("cannot write", file, errno));
    offset += written;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

base::Result<> PartFile::write(std::int64_t offset, std::string_view bytes) {
  TRY(write_all(data_fd_, offset, bytes, data_path()));
  ::sync_file_range(data_fd_, offset, static_cast<std::int64_t>(bytes.size()),
                    SYNC_FILE_RANGE_WRITE);  // else all waits for the end
  const std::int64_t end = offset + static_cast<std::int64_t>(bytes.size());
  for (auto i = static_cast<std::size_t>(offset / kChunkBytes); i < chunks_.size() && chunk_end(i) <= end; ++i) {
    if (chunks_[i] == kHere) continue;
    chunks_[i] = kHere;
    bytes_done_ += chunk_end(i) - static_cast<std::int64_t>(i) * kChunkBytes;
    const char here = kHere;
    TRY(write_all(map_fd_, static_cast<std::int64_t>(i), {&here, 1}, path(".map")));
  }
  return {};
}

base::Result<> PartFile::hash_ready(bool wait) {
  static constexpr std::int64_t kBytesMax = 64 << 20;
  if (hashing_.valid()) {
    if (!wait && hashing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    take(TRY(hashing_.get()));
  }
  std::int64_t end = hashed_;
  const std::int64_t end_max = std::min(identity_.size_bytes, hashed_ + kBytesMax);
  while (end < end_max && chunks_[static_cast<std::size_t>(end / kChunkBytes)] == kHere) {
    end = chunk_end(static_cast<std::size_t>(end / kChunkBytes));
  }
  if (end == hashed_) return {};
  const Hashed from{hash_, hashed_};
  try {
    hashing_ = std::async(std::launch::async, [this, from, end] { return hash_up_to(from, end); });
  } catch (const std::system_error&) {  // the system has no thread to give: slower, then
    take(TRY(hash_up_to(from, end)));
  }
  return {};
}

void PartFile::take(const Hashed& done) {
  hash_ = done.hash;
  hashed_ = done.end;
}

base::Result<PartFile::Hashed> PartFile::hash_up_to(Hashed from, std::int64_t end) const {
  static constexpr std::int64_t kBufferBytes = 256 << 10;
  std::vector<std::byte> buffer(kBufferBytes);
  while (from.end < end) {
    const auto wanted = std::min(kBufferBytes, end - from.end);
    const ssize_t got = ::pread(data_fd_, buffer.data(), static_cast<std::size_t>(wanted), from.end);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return base::fail(base::io_error("cannot read", data_path(), got < 0 ? errno : EIO));
    from.hash.update(std::span(buffer).first(static_cast<std::size_t>(got)));
    from.end += got;
  }
  return from;
}

void PartFile::forget_hashing() {
  if (hashing_.valid()) hashing_.wait();
  hashing_ = {};
}

base::Result<> PartFile::sync() {
  if (::fdatasync(data_fd_) != 0) return base::fail(base::io_error("cannot sync", data_path(), errno));
  return {};
}

void PartFile::give_back_room() {
  if (has_other_name_ || is_complete()) return;
  const auto is_here = [this](std::size_t chunk) { return chunks_[chunk] == kHere; };
  std::size_t end = chunks_.size();
  while (end > 0 && !is_here(end - 1)) --end;
  // Where either fails the room stays taken, as it is by what comes.
  [[maybe_unused]] const int cut = ::ftruncate(data_fd_, end == 0 ? 0 : chunk_end(end - 1));
  for (std::size_t i = 0; i < end; ++i) {
    if (is_here(i)) continue;
    ::fallocate(data_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(i) * kChunkBytes, kChunkBytes);
  }
}

void PartFile::remove(const std::filesystem::path& stem) {
  std::error_code ec;
  for (const char* extension : {".json", ".map", ".part"}) {
    std::filesystem::remove(std::filesystem::path(stem) += extension, ec);
  }
}

}  // namespace llorch::pool_managerd::provisioner::download
