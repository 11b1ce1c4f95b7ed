#pragma once
// A file that appears complete or not at all, for content that is written in pieces. write_file_atomic() is for one text.
#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace llorch::base {

// A file under a temporary name beside `path` that takes its place in commit(), or disappears. What lies beside it belongs to
// somebody else, and so does what a link of that name leads to.
class AtomicFile {
 public:
  // Errors: IO_ERROR.
  static Result<AtomicFile> create(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Result<> append(std::span<const std::byte> bytes);
  // Also what was written by the name of temporary(), and closed. Errors: CONFLICT (something has the name, and `replaces` is false or
  // it is no regular file: a device, a pipe, a link); IO_ERROR.
  Result<> commit(bool replaces);
  const std::filesystem::path& temporary() const { return temporary_; }

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace llorch::base
