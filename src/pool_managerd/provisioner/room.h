#pragma once
// Disk space for a model, where it lacks, from what can be made again.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

struct statvfs;

namespace llorch::pool_managerd::provisioner {

// Frees at least so many bytes of the disk, or none; whether it did.
using MakeRoom = std::function<bool(std::int64_t bytes)>;

// Bytes of the disk that may be taken: all but 64 MiB, since a node whose disk is full cannot log or keep its digests.
std::int64_t usable_bytes(const struct statvfs& disk);
// What people are told to do where room lacks.
inline constexpr std::string_view kRoomForModels =
    "free some (llorch gc --unused-days 30, llorch rm MODEL), or name a directory of another disk in models.cache_dir";
inline constexpr std::string_view kRoomForEngines =
    "free some (llorch engine remove NAME), or name a directory of another disk in "
    "pool-managerd.provisioning.cache_dir";

struct RoomWanted {
  std::filesystem::path directory;  // on whose disk
  std::string what;                 // is to lie there: "the model"
  std::string_view advice = kRoomForModels;
};
// INSUFFICIENT_DISK with details.required_bytes and details.available_bytes: where it lacks, for what, and what to do.
base::Error too_little_room(const RoomWanted& wanted, std::int64_t required, std::int64_t available);
// Whether the disk has room for so many bytes more. Errors: that of too_little_room(), IO_ERROR.
base::Result<> check_room(const RoomWanted& wanted, std::int64_t bytes);

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
