#pragma once
// Members of ZIP files, which wheels are. Read from hostile bytes with bounded memory and disk.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool_managerd/provisioner/stop_flag.h"

namespace llorch::pool_managerd::provisioner {

struct ArchiveMember {
  std::string name;             // as the archive spells it: never a path to write to
  std::int64_t size_bytes = 0;  // unpacked
  std::int64_t packed_bytes = 0;
  std::int64_t header_offset = 0;
  std::uint32_t crc32 = 0;
  bool is_deflated = false;
};

// Those that are stored or deflated and not encrypted, ZIP64 included. Errors: CORRUPT_FILE (no ZIP file, more than 100,000
// members, a directory of more than 64 MiB), IO_ERROR.
base::Result<std::vector<ArchiveMember>> archive_members(const std::filesystem::path& archive);

// Writes the member to the new file `target`, at most as many bytes as it claims. Errors: CORRUPT_FILE (another length or
// CRC-32 than the archive says), IO_ERROR, CANCELLED; then no file is left.
base::Result<> unpack_member(const std::filesystem::path& archive, const ArchiveMember& member,
                             const std::filesystem::path& target, const StopFlag& stop);

}  // namespace llorch::pool_managerd::provisioner
