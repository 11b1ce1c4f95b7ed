#include "engine/io/stored_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

class Disk final : public FileHandle {
 public:
  explicit Disk(int fd) : fd_(fd) {}
  bool stat() { return ::fstat(fd_, &opened_) == 0; }
  const struct stat& opened() const { return opened_; }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() override { ::close(fd_); }
  ssize_t read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
  }
  // What is removed or replaced has one name less, which changes its time too.
  bool is_unchanged() const override {
    struct stat now {};
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return ::fstat(fd_, &now) == 0 && now.st_size == opened_.st_size && same(now.st_mtim, opened_.st_mtim) &&
           same(now.st_ctim, opened_.st_ctim);
  }

 private:
  int fd_;
  struct stat opened_ {};
};

class Memory final : public FileHandle {
 public:
  explicit Memory(std::span<const std::byte> bytes) : bytes_(bytes) {}
  ssize_t read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto from = bytes_.subspan(std::min<std::uint64_t>(offset, bytes_.size()));
    const std::size_t count = std::min(from.size(), out.size());
    if (count != 0) std::memcpy(out.data(), from.data(), count);
    return static_cast<ssize_t>(count);
  }
  bool is_unchanged() const override { return true; }

 private:
  std::span<const std::byte> bytes_;
};

tl::unexpected<base::Error> not_regular(const std::filesystem::path& path) {
  return fail(ErrorCode::kIoError, fmt::format("{} is not a regular file", path.string()));
}

}  // namespace

Result<std::unique_ptr<StoredFile>> StoredFile::open(const std::filesystem::path& path) {
  struct stat st {};
  // Before it is opened, for opening a device can set it going; and after, for it may be another file by then.
  if (::stat(path.c_str(), &st) != 0) return fail(base::io_error("cannot open", path, errno));
  if (!S_ISREG(st.st_mode)) return not_regular(path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail(base::io_error("cannot open", path, errno));
  auto disk = std::make_unique<Disk>(fd);
  if (!disk->stat()) return fail(base::io_error("cannot stat", path, errno));
  if (!S_ISREG(disk->opened().st_mode)) return not_regular(path);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);  // as headers, digests and weights are read
  const auto size = static_cast<std::uint64_t>(disk->opened().st_size);
  return std::make_unique<StoredFile>(path.string(), std::move(disk), size);
}

std::unique_ptr<StoredFile> StoredFile::of_memory(std::span<const std::byte> bytes, std::string source) {
  return std::make_unique<StoredFile>(std::move(source), std::make_unique<Memory>(bytes), bytes.size());
}

Result<> StoredFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  ASSERT(offset <= size_ && out.size() <= size_ - offset, "{}: bytes {} + {} of {}", source_, offset, out.size(),
         size_);
  while (!out.empty()) {
    const ssize_t got = handle_->read_at(offset, out);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(base::io_error("cannot read", source_, errno));
    if (got == 0) {
      return fail(
          ErrorCode::kIoError,
          fmt::format("{} ends at byte {}, it had {} when it was opened; it was changed meanwhile, load it again",
                      source_, offset, size_));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<> StoredFile::check_unchanged() const {
  if (handle_->is_unchanged()) return {};
  return fail(ErrorCode::kIoError,
              fmt::format("{} was changed while it was read; try again when it is complete", source_));
}

Result<std::string> StoredFile::read_text(std::uint64_t bytes_max) const {
  if (size_ > bytes_max) {
    return fail(ErrorCode::kIoError,
                fmt::format("{} has {} bytes, the limit of such a file is {}", source_, size_, bytes_max));
  }
  std::string text(size_, '\0');
  TRY(read(0, std::as_writable_bytes(std::span(text))));
  TRY(check_unchanged());
  return text;
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  const auto file = TRY(StoredFile::open(path));
  return file->read_text(bytes_max);
}

FileRange::FileRange(const StoredFile& file, std::uint64_t offset, std::uint64_t size)
    : file_(&file), offset_(offset), size_(size) {
  ASSERT(offset <= file.size() && size <= file.size() - offset, "{}: bytes {} + {} of {}", file.source(), offset, size,
         file.size());
}

Result<> FileRange::read(std::uint64_t begin, std::span<std::byte> out) const {
  ASSERT(begin <= size_ && out.size() <= size_ - begin, "bytes {} + {} of {}", begin, out.size(), size_);
  if (out.empty()) return {};
  return derived_ != nullptr ? derived_->read(begin, out) : file_->read(offset_ + begin, out);
}

Result<std::vector<std::byte>> FileRange::read_all() const {
  std::vector<std::byte> bytes(size_);
  TRY(read(0, bytes));
  return bytes;
}

}  // namespace llorch::engine::io
