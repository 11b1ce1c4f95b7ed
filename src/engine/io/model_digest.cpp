#include "engine/io/model_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "engine/io/model_layout.h"

namespace llorch::engine::io {
namespace {

using base::Result;

struct Work {
  const DigestProgress& progress;
  std::uint64_t bytes_done = 0, bytes_total = 0;
  std::vector<std::byte> buffer = std::vector<std::byte>(std::size_t{8} << 20);

  Result<std::string> digest_of(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return base::fail(base::io_error("cannot open", path, errno));
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    auto digest = hash(fd, path);
    ::close(fd);
    return digest;
  }

 private:
  Result<std::string> hash(int fd, const std::filesystem::path& path) {
    base::Sha256 sha;
    for (;;) {
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::fail(base::io_error("cannot read", path, errno));
      if (got == 0) return base::to_hex(sha.digest());
      sha.update(std::span(buffer).first(static_cast<std::size_t>(got)));
      bytes_done += static_cast<std::uint64_t>(got);
      if (progress) TRY(progress(bytes_done, bytes_total));
    }
  }
};

}  // namespace

Result<std::string> model_digest(const std::filesystem::path& path, const DigestProgress& progress) {
  const auto files = TRY(model_file_list(path));
  Work work{progress};
  for (const ModelFile& file : files) {
    std::error_code ec;
    work.bytes_total += std::filesystem::file_size(file.path, ec);
    if (ec) return base::fail(base::io_error("cannot read", file.path, ec.value()));
  }
  if (files.size() == 1) return work.digest_of(files[0].path);
  std::string lines;
  for (const ModelFile& file : files) lines += fmt::format("{}  {}\n", TRY(work.digest_of(file.path)), file.name);
  return base::to_hex(base::sha256(lines));
}

Result<std::string> model_stamp(const std::filesystem::path& path) {
  std::string lines;
  for (const ModelFile& file : TRY(model_file_list(path))) {
    struct stat status {};
    if (::stat(file.path.c_str(), &status) != 0) return base::fail(base::io_error("cannot stat", file.path, errno));
    lines += fmt::format("{} {} {} {} {}\n", file.name, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                         status.st_mtim.tv_nsec);
  }
  return base::to_hex(base::sha256(lines));
}

}  // namespace llorch::engine::io
