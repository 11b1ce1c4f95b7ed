#include "engine/io/model_digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "engine/io/model_layout.h"

namespace llorch::engine::io {
namespace {

using base::Result;

// File systems tell time in ticks of at most 10 ms (100 Hz): changes within one cannot be told apart.
constexpr std::int64_t kTwoTicksNs = 20'000'000;
// A change time further ahead is of another clock.
constexpr std::int64_t kClocksApartNs = 1'000'000'000;
// Of a file that is being written all the time; it will have changed at the end as well.
constexpr int kLooksMax = 50;

// The file as it is, after which any change has a later time.
Result<struct stat> settled(const std::filesystem::path& path) {
  struct stat status {};
  for (int look = 0; look < kLooksMax; ++look) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);  // first: what is changed meanwhile is young
    if (::stat(path.c_str(), &status) != 0) return base::fail(base::io_error("cannot stat", path, errno));
    const std::int64_t age_ns =
        (now.tv_sec - status.st_ctim.tv_sec) * std::int64_t{1'000'000'000} + now.tv_nsec - status.st_ctim.tv_nsec;
    if (age_ns >= kTwoTicksNs || age_ns < -kClocksApartNs) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kTwoTicksNs - std::max<std::int64_t>(age_ns, 0)));
  }
  return status;
}

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
    const struct stat status = TRY(settled(file.path));
    lines += fmt::format("{} {} {} {} {} {} {}\n", file.name, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                         status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  return base::to_hex(base::sha256(lines));
}

}  // namespace llorch::engine::io
