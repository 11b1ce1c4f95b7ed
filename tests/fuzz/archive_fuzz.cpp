// Arbitrary bytes as a ZIP file: an error or members, and no member that unpacks to more or less than it claims.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/assert.h"
#include "pool_managerd/provisioner/archive.h"

using namespace llorch::pool_managerd::provisioner;

namespace {
constexpr std::int64_t kUnpackMax = 1 << 20;

// Removed at the end of the process.
class Directory {
 public:
  Directory() : path_((std::filesystem::temp_directory_path() / "llorch-archive-fuzz-XXXXXX").string()) {
    ASSERT(::mkdtemp(path_.data()) != nullptr);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { std::filesystem::remove_all(path_); }
  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

std::filesystem::path directory() {
  static const Directory one;
  return one.path();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::filesystem::path archive = directory() / "archive", target = directory() / "member";
  std::FILE* file = std::fopen(archive.c_str(), "wb");
  ASSERT(file != nullptr && std::fwrite(data, 1, size, file) == size && std::fclose(file) == 0);
  const auto members = archive_members(archive);
  if (!members) {
    ASSERT(!members.error().message.empty());
    return 0;
  }
  const StopFlag stop;
  for (const ArchiveMember& member : *members) {
    if (member.size_bytes > kUnpackMax) continue;
    std::filesystem::remove(target);
    const auto unpacked = unpack_member(archive, member, target, stop);
    ASSERT(unpacked.has_value() == std::filesystem::exists(target));
    ASSERT(!unpacked || static_cast<std::int64_t>(std::filesystem::file_size(target)) == member.size_bytes);
  }
  return 0;
}
