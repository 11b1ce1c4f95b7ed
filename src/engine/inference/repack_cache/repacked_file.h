#pragma once
// One file of the cache: a head of text that says of what it is, one checksum per piece, a checksum of all this, the pieces.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/inference/repack_cache/repack_cache.h"

namespace llorch::engine::inference::repack_cache {

// Finds damage, not forgery: whoever may write the file may write anything. A change within eight bytes is always found.
std::uint64_t checksum(std::span<const std::byte> bytes);

// The head of the file of this key. Its first line names the format.
std::string head_of(const RepackKey& key);
std::uint64_t file_bytes(const RepackKey& key);

// Errors: IO_ERROR (there is none, too), CORRUPT_FILE.
base::Result<std::unique_ptr<plan::PackedSource>> open_repacked(const std::filesystem::path& path,
                                                                const RepackKey& key);
// On disk when it returns. REQUIRES: fd is an empty file. Errors: IO_ERROR, INSUFFICIENT_DISK, CANCELLED.
base::Result<> write_repacked(int fd, const RepackKey& key, std::span<const std::span<const std::byte>> weights,
                              const std::stop_token& stop);

}  // namespace llorch::engine::inference::repack_cache
