#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace llorch::engine::io {

// A file of tensors, mapped and open. Headers and whatever is looked at here and there are views of the mapping; a load reads,
// because reading is faster than faulting pages in and because a file that is cut short meanwhile is then an error, where the
// mapping answers with SIGBUS. Immutable, so any thread may read it.
class TensorFile {
 public:
  // Errors: IO_ERROR.
  static base::Result<std::unique_ptr<TensorFile>> open(const std::filesystem::path& path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The bytes that `data`, a part of bytes(), is a view of. REQUIRES: out.size() == data.size(). Errors: IO_ERROR.
  base::Result<> read(std::span<const std::byte> data, std::span<std::byte> out) const;

 private:
  TensorFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace llorch::engine::io
