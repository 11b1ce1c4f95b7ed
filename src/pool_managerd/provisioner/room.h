#pragma once
// Disk space for a model, where it lacks, from what can be made again.
#include <cstdint>
#include <functional>
#include <variant>

#include "base/result.h"

namespace llorch::pool_managerd::provisioner {

// Frees at least so many bytes of the disk, or none; whether it did.
using MakeRoom = std::function<bool(std::int64_t bytes)>;

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
