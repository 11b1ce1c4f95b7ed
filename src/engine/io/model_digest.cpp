#include "engine/io/model_digest.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "engine/io/model_layout.h"
#include "engine/io/stored_file.h"

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
    const auto file = TRY(StoredFile::open(path));
    base::Sha256 sha;
    for (std::uint64_t at = 0; at < file->size();) {
      const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file->size() - at));
      TRY(file->read(at, piece));
      sha.update(piece);
      TRY(file->check_unchanged());  // else the rest is read in vain, of a file that may be gone
      at += piece.size();
      bytes_done += piece.size();
      if (progress) TRY(progress(bytes_done, bytes_total));
    }
    return base::to_hex(sha.digest());
  }
};

}  // namespace

Result<std::string> model_digest(const std::filesystem::path& path, const DigestProgress& progress) {
  const auto files = TRY(model_file_list(path));
  Work work{progress};
  for (const ModelFile& file : files) {
    struct stat status {};
    if (::stat(file.path.c_str(), &status) != 0) return base::fail(base::io_error("cannot read", file.path, errno));
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    if (bytes > kModelBytesMax - work.bytes_total) {
      return base::fail(base::ErrorCode::kCorruptFile,
                        fmt::format("{} has {} bytes, the limit of a model is {}; a file with holes claims any size",
                                    file.path.string(), bytes, kModelBytesMax));
    }
    work.bytes_total += bytes;
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
    lines += fmt::format("{} {} {} {} {} {} {} {}\n", file.name, status.st_dev, status.st_ino, status.st_size,
                         status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  return base::to_hex(base::sha256(lines));
}

}  // namespace llorch::engine::io
