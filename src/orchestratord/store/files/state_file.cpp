#include "orchestratord/store/files/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/file.h"

namespace llorch::orchestratord::store::files {
namespace {

constexpr std::uint64_t kChunkBytes = 1 << 20;

tl::unexpected<base::Error> file_error(std::string_view action, const std::filesystem::path& path) {
  base::Error error = base::io_error(action, path, errno);
  error.code = base::ErrorCode::kStoreUnavailable;
  return base::fail(std::move(error));
}

class PosixFile final : public StateFile {
 public:
  PosixFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile() override { ::close(fd_); }

  base::Result<std::uint64_t> size() override {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return file_error("cannot stat", path_);
    return static_cast<std::uint64_t>(st.st_size);
  }
  base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) override {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n >= 0 && static_cast<std::size_t>(n) != out.size()) errno = EIO;
    if (n < 0 || static_cast<std::size_t>(n) != out.size()) return file_error("cannot read", path_);
    return {};
  }
  base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) override {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n >= 0 && static_cast<std::size_t>(n) != bytes.size()) errno = ENOSPC;
    if (n < 0 || static_cast<std::size_t>(n) != bytes.size()) return file_error("cannot write", path_);
    return {};
  }
  base::Result<> sync() override {
    if (::fdatasync(fd_) != 0) return file_error("cannot sync", path_);
    return {};
  }

 private:
  int fd_;
  std::filesystem::path path_;
};

}  // namespace

base::Result<StateFilePtr> open_state_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return file_error("cannot open", path);
  auto file = std::make_unique<PosixFile>(fd, path);
  if (auto synced = base::sync_parent_directory(path); !synced) {
    synced.error().code = base::ErrorCode::kStoreUnavailable;
    return base::fail(std::move(synced).error());
  }
  return StateFilePtr(std::move(file));
}

base::Result<> write_again(StateFile& file) {
  const std::uint64_t size = TRY(file.size());
  std::vector<std::uint8_t> chunk;
  for (std::uint64_t at = 0; at < size; at += chunk.size()) {
    chunk.resize(std::min(size - at, kChunkBytes));
    TRY(file.read(at, chunk));
    TRY(file.write(at, chunk));
  }
  return size > 0 ? file.sync() : base::Result<>();
}

}  // namespace llorch::orchestratord::store::files
