#include "pool_managerd/provisioner/room.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"

namespace llorch::pool_managerd::provisioner {
namespace {

constexpr std::int64_t kDiskReserveBytes = 64 << 20;

}  // namespace

std::int64_t usable_bytes(const struct statvfs& disk) {
  const std::int64_t available = static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
  return std::max<std::int64_t>(0, available - kDiskReserveBytes);
}

base::Error too_little_room(std::string message, std::int64_t required, std::int64_t available) {
  return base::Error{base::ErrorCode::kInsufficientDisk, std::move(message), {}}
      .with("required_bytes", required)
      .with("available_bytes", available);
}

base::Result<> check_room(const std::filesystem::path& directory, std::int64_t bytes, const std::string& what) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return base::fail(base::io_error("cannot examine", directory, errno));
  const std::int64_t usable = usable_bytes(disk);
  if (bytes <= usable) return {};
  return base::fail(too_little_room(
      fmt::format("the disk has room for {} bytes and {} takes {}; free some", usable, what, bytes), bytes, usable));
}

}  // namespace llorch::pool_managerd::provisioner
