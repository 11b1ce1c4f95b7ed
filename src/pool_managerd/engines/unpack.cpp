#include "pool_managerd/engines/unpack.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "pool_managerd/provisioner/archive.h"
#include "pool_managerd/provisioner/room.h"

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

constexpr auto kProgram = fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec;

// A name of a member as a path below a directory; empty: it is none.
fs::path below(const std::string& name) {
  const fs::path path(name);
  if (path.is_absolute() || name.find('\0') != std::string::npos) return {};
  for (const fs::path& part : path) {
    if (part == ".." || part == ".") return {};
  }
  return path;
}

// Members know no modes and no links here, so every file may be run.
base::Result<> unzip(const fs::path& archive, const fs::path& directory, const provisioner::StopFlag& stop) {
  const auto members = TRY(provisioner::archive_members(archive));
  std::int64_t bytes = 0;
  for (const provisioner::ArchiveMember& member : members) {
    bytes += std::min(member.size_bytes, std::numeric_limits<std::int64_t>::max() - bytes);
  }
  TRY(provisioner::check_room({directory, "the engine", provisioner::kRoomForEngines}, bytes));
  for (const provisioner::ArchiveMember& member : members) {
    const fs::path name = below(member.name);
    if (name.empty()) {
      return base::fail(ErrorCode::kCorruptFile, "the archive has a member whose name leads out of its directory");
    }
    std::error_code ec;
    fs::create_directories((directory / name).parent_path(), ec);
    if (member.name.ends_with('/')) {
      fs::create_directories(directory / name, ec);
      continue;
    }
    TRY(provisioner::unpack_member(archive, member, directory / name, stop));
    fs::permissions(directory / name, kProgram, ec);
    if (ec) return base::fail(base::io_error("cannot make executable", directory / name, ec.value()));
  }
  return {};
}

}  // namespace

base::Result<> unpack(const fs::path& archive, const fs::path& directory, const std::string& tar, const Run& run,
                      const provisioner::StopFlag& stop) {
  const std::string name = archive.filename().string();
  if (name.ends_with(".zip")) return unzip(archive, directory, stop);
  if (name.find(".tar") != std::string::npos || name.ends_with(".tgz")) {
    // GNU tar lets no member and no link lead out of the directory unless told to.
    return run({tar, "--extract", "--file", archive.string(), "--directory", directory.string(), "--no-same-owner",
                "--no-same-permissions"});
  }
  std::error_code ec;
  const auto bytes = fs::file_size(archive, ec);
  if (ec) return base::fail(base::io_error("cannot examine", archive, ec.value()));
  TRY(provisioner::check_room({directory, "the engine", provisioner::kRoomForEngines},
                              static_cast<std::int64_t>(bytes)));
  fs::create_directories(directory / "bin", ec);
  fs::copy_file(archive, directory / "bin" / name, ec);
  if (!ec) fs::permissions(directory / "bin" / name, kProgram, ec);
  if (ec) return base::fail(base::io_error("cannot copy to", directory / "bin" / name, ec.value()));
  return {};
}

}  // namespace llorch::pool_managerd::engines
