#include "base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/create_beside.h"
#include "base/descriptor.h"

namespace llorch::base {
namespace {

std::filesystem::path home() {
  const char* value = std::getenv("HOME");
  return value != nullptr && *value != '\0' ? std::filesystem::path(value) : std::filesystem::path("/root");
}

std::filesystem::path env_path(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::filesystem::path() : std::filesystem::path(value);
}

}  // namespace

Result<> write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(io_error("cannot write", path, errno));
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Error io_error(std::string_view action, const std::filesystem::path& path, int error_number) {
  return Error{ErrorCode::kIoError, fmt::format("{} {}: {}", action, path.string(), std::strerror(error_number)), {}}
      .with("errno", std::int64_t{error_number});
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return fail(io_error("cannot open", path, errno));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail(io_error("cannot stat", path, errno));
  if (!S_ISREG(st.st_mode)) return fail(ErrorCode::kIoError, fmt::format("{} is not a regular file", path.string()));
  MappedFile file;
  file.size_ = static_cast<std::size_t>(st.st_size);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return fail(io_error("cannot map", path, errno));
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return fail(io_error("cannot open", path, errno));
  std::string out;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(io_error("cannot read", path, errno));
    if (n == 0) return out;
    if (out.size() + static_cast<std::size_t>(n) > bytes_max) {
      return fail(ErrorCode::kIoError, fmt::format("{} is larger than {} bytes", path.string(), bytes_max));
    }
    out.append(buffer, static_cast<std::size_t>(n));
  }
}

Result<> write_file_atomic(const std::filesystem::path& path, std::string_view content, unsigned mode) {
  std::filesystem::path temporary;
  {
    const Descriptor fd(create_beside(path, mode, Leftover::kGoes, temporary));
    if (fd.get() < 0) return fail(io_error("cannot create", temporary, errno));
    Result<> written = write_all(fd.get(), content, temporary);
    if (written && ::fsync(fd.get()) != 0) written = fail(io_error("cannot sync", temporary, errno));
    if (!written) {
      ::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return fail(io_error("cannot replace", path, error));
  }
  return sync_parent_directory(path);
}

Result<> sync_parent_directory(const std::filesystem::path& path) {
  const auto directory = path.parent_path().empty() ? std::filesystem::path(".") : path.parent_path();
  const Descriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() < 0 || ::fsync(parent.get()) != 0) return fail(io_error("cannot sync", directory, errno));
  return {};
}

Result<> ensure_private_directory(const std::filesystem::path& path) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    // Somebody made it for us. A directory that holds anything may serve others too ("/", a home): it stays as it is.
    const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat st {};
    if (directory.get() >= 0 && ::fstat(directory.get(), &st) == 0 && st.st_uid == ::geteuid() &&
        (st.st_mode & 07077) != 0 && std::filesystem::is_empty(path, ec) && !ec &&
        ::fchmod(directory.get(), 0700) != 0) {
      return fail(io_error("cannot make private", path, errno));
    }
    return {};
  }
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ec);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(io_error("cannot create directory", path, errno));
  if (!std::filesystem::is_directory(path, ec)) {
    return fail(ErrorCode::kIoError, fmt::format("{} exists and is not a directory", path.string()));
  }
  return {};
}

std::filesystem::path default_state_directory() {
  if (auto p = env_path("LLORCH_STATE_DIR"); !p.empty()) return p;
  if (auto p = env_path("XDG_STATE_HOME"); !p.empty()) return p / "llorch";
  return home() / ".local/state/llorch";
}

std::filesystem::path default_config_path() { return home() / ".config/llorch/config.yaml"; }

std::filesystem::path default_model_cache() { return home() / ".cache/llama-orch/models"; }

}  // namespace llorch::base
