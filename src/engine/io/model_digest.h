#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace llorch::engine::io {

// Bytes hashed so far, bytes in all. Called about every 8 MiB and once at the end.
using DigestProgress = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

// SHA-256 of the whole file as 64 hex digits: the identity of a model. Errors: IO_ERROR.
base::Result<std::string> model_digest(const std::filesystem::path& path, const DigestProgress& progress = {});

}  // namespace llorch::engine::io
