#include "engine/io/model_digest.h"

#include <algorithm>

#include "base/file.h"
#include "base/sha256.h"

namespace llorch::engine::io {

base::Result<std::string> model_digest(const std::filesystem::path& path, const DigestProgress& progress) {
  constexpr std::size_t kStepBytes = std::size_t{8} << 20;
  const auto file = TRY(base::MappedFile::open(path));
  const auto bytes = file.bytes();
  base::Sha256 hash;
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t step = std::min(kStepBytes, bytes.size() - done);
    hash.update(bytes.subspan(done, step));
    done += step;
    if (progress && done < bytes.size()) progress(done, bytes.size());
  }
  if (progress) progress(bytes.size(), bytes.size());
  return base::to_hex(hash.digest());
}

}  // namespace llorch::engine::io
