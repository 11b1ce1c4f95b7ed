#include "pool_managerd/provisioner/room.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/human_bytes.h"

namespace llorch::pool_managerd::provisioner {
namespace {

constexpr std::int64_t kDiskReserveBytes = 64 << 20;

}  // namespace

std::int64_t usable_bytes(const struct statvfs& disk) {
  const std::int64_t available = static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
  return std::max<std::int64_t>(0, available - kDiskReserveBytes);
}

base::Error too_little_room(const RoomWanted& wanted, std::int64_t required, std::int64_t available) {
  return base::Error{base::ErrorCode::kInsufficientDisk,
                     fmt::format("the disk of {} has room for {}, and {} takes {}; {}", wanted.directory.string(),
                                 base::human_bytes(available), wanted.what, base::human_bytes(required), wanted.advice),
                     {}}
      .with("required_bytes", required)
      .with("available_bytes", available);
}

base::Result<> check_room(const RoomWanted& wanted, std::int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(wanted.directory.c_str(), &disk) != 0) {
    return base::fail(base::io_error("cannot examine", wanted.directory, errno));
  }
  const std::int64_t usable = usable_bytes(disk);
  if (bytes <= usable) return {};
  return base::fail(too_little_room(wanted, bytes, usable));
}

}  // namespace llorch::pool_managerd::provisioner
