#include "engine/io/tensor_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/assert.h"
#include "base/file.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

Result<std::unique_ptr<TensorFile>> TensorFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(base::io_error("cannot open", path, errno));
  std::unique_ptr<TensorFile> file(new TensorFile(path, fd));
  struct stat st {};
  if (::fstat(fd, &st) != 0) return fail(base::io_error("cannot stat", path, errno));
  if (!S_ISREG(st.st_mode)) return fail(ErrorCode::kIoError, fmt::format("{} is not a regular file", path.string()));
  if (st.st_size == 0) return file;
  void* data = ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return fail(base::io_error("cannot map", path, errno));
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = static_cast<std::size_t>(st.st_size);
  return file;
}

TensorFile::~TensorFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(fd_);
}

Result<> TensorFile::read(std::span<const std::byte> data, std::span<std::byte> out) const {
  ASSERT(data.size() == out.size() && data.data() >= data_ && data.data() + data.size() <= data_ + size_,
         "{} bytes that are not of {}", data.size(), path_.string());
  auto at = static_cast<off_t>(data.data() - data_);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(base::io_error("cannot read", path_, errno));
    if (got == 0) {
      return fail(
          ErrorCode::kIoError,
          fmt::format("{} ends at byte {}, it had {} when it was opened; it was changed meanwhile, load it again",
                      path_.string(), at, size_));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return {};
}

}  // namespace llorch::engine::io
