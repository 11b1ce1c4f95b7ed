#pragma once
// Disk space for a model, where it lacks, from what can be made again.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <variant>

#include "base/result.h"

struct statvfs;

namespace llorch::pool_managerd::provisioner {

// Frees at least so many bytes of the disk, or none; whether it did.
using MakeRoom = std::function<bool(std::int64_t bytes)>;

// Bytes of the disk that may be taken: all but 64 MiB, since a node whose disk is full cannot log or keep its digests.
std::int64_t usable_bytes(const struct statvfs& disk);
// `message`, with details.required_bytes and details.available_bytes.
base::Error too_little_room(std::string message, std::int64_t required, std::int64_t available);
// Whether the disk of `directory` has room for so many bytes more. Errors: INSUFFICIENT_DISK, which says for what; IO_ERROR.
base::Result<> check_room(const std::filesystem::path& directory, std::int64_t bytes, const std::string& what);

// Bytes that an INSUFFICIENT_DISK says are missing; 0 for any other error.
inline std::int64_t lacking_bytes(const base::Error& error) {
  if (error.code != base::ErrorCode::kInsufficientDisk) return 0;
  std::int64_t lacking = 0;
  for (const auto& [key, value] : error.details) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (number == nullptr) continue;
    if (key == "required_bytes") lacking += *number;
    if (key == "available_bytes") lacking -= *number;
  }
  return lacking;
}

// What `work` returns; when the disk has too little room for it and `make_room` (may be null) makes some, of a second try.
template <class Work>
auto with_room(const MakeRoom& make_room, const Work& work) {
  auto done = work();
  if (done || !make_room) return done;
  const std::int64_t lacking = lacking_bytes(done.error());
  if (lacking <= 0 || !make_room(lacking)) return done;
  return work();
}

}  // namespace llorch::pool_managerd::provisioner
