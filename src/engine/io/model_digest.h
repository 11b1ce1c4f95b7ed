#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace llorch::engine::io {

// Of all files together: ten times the largest models there are. A sparse file claims any size without having it, and to hash
// this much takes hours.
inline constexpr std::uint64_t kModelBytesMax = std::uint64_t{16} << 40;

// Bytes hashed so far, bytes in all. Called about every 8 MiB of a file; an error it returns ends the work.
using DigestProgress = std::function<base::Result<>(std::uint64_t bytes_done, std::uint64_t bytes_total)>;

// The identity of a model as 64 hex digits. A GGUF file: SHA-256 of its bytes. A split one or a Hugging Face directory:
// SHA-256 of the lines "<SHA-256 of the file>  <name>\n" for every file of model_file_list(), in its order; what sha256sum
// prints. So it depends on no directory's order, no path, and for a split model not on the stem of its files.
// Each file is read as far as it went when it was opened, so one that grows all the time ends. Errors: IO_ERROR; CORRUPT_FILE
// (more than kModelBytesMax); those of model_file_list(); what `progress` returned.
base::Result<std::string> model_digest(const std::filesystem::path& path, const DigestProgress& progress = {});

// What tells without reading them that a model's files are the same as before, as 64 hex digits: SHA-256 over name, device,
// inode, size, modification and change time of every file of model_file_list(). Where it is equal before and after a digest is computed
// and before and after the model is loaded, the digest is of the bytes that were loaded: no program sets a change time, and what
// was changed a moment ago is waited for until a change has another time, which takes 20 ms.
// Errors: IO_ERROR, those of model_file_list().
base::Result<std::string> model_stamp(const std::filesystem::path& path);

// A model_digest() and the model_stamp() that the files had before and after it was computed.
struct StampedDigest {
  std::string digest;
  std::string stamp;
  bool operator==(const StampedDigest&) const = default;
};

}  // namespace llorch::engine::io
