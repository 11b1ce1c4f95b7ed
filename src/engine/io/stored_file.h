#pragma once
// The files of a model, as bytes at offsets. Nothing is mapped: a mapping answers with SIGBUS when somebody cuts the file
// short or the disk fails, a read answers with an error.
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::engine::io {

// The system's side of an open file, so that a test can be a disk that fails. Any thread may call it.
class FileHandle {
 public:
  virtual ~FileHandle() = default;
  // As pread(2): the bytes read, fewer than asked for at will, 0 at the end; -1 with errno set.
  virtual ssize_t read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // False once the file was written to, cut, removed or replaced since it was opened, as far as its times tell.
  virtual bool is_unchanged() const = 0;
};

// A regular file that is open, of the size that it had when it was opened: it is never waited for to grow. Immutable, so any
// thread may read it.
class StoredFile {
 public:
  // Waits for no writer of a FIFO and opens no device. Errors: IO_ERROR (also for what is no regular file).
  static base::Result<std::unique_ptr<StoredFile>> open(const std::filesystem::path& path);
  // Bytes the caller owns and keeps, as a file. `source` stands for the path in messages.
  static std::unique_ptr<StoredFile> of_memory(std::span<const std::byte> bytes, std::string source = "<memory>");
  StoredFile(std::string source, std::unique_ptr<FileHandle> handle, std::uint64_t size)
      : source_(std::move(source)), handle_(std::move(handle)), size_(size) {}

  const std::string& source() const { return source_; }
  std::uint64_t size() const { return size_; }
  // Exactly out.size() bytes from `offset` on. Errors: IO_ERROR; so is an end before size(): the file was cut short.
  base::Result<> read(std::uint64_t offset, std::span<std::byte> out) const;
  // Of what was read so far. Errors: IO_ERROR if the file has changed since it was opened: it may be of two states. Two changes
  // within a tick of the file system's clock look like one; model_stamp() waits for that.
  base::Result<> check_unchanged() const;
  // All of it. Errors: IO_ERROR, also if it has more than `bytes_max`, before anything is read.
  base::Result<std::string> read_text(std::uint64_t bytes_max) const;

 private:
  std::string source_;
  std::unique_ptr<FileHandle> handle_;
  std::uint64_t size_;
};

// The text of a small file of a model: StoredFile::open and read_text.
base::Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t bytes_max);

// Bytes that lie in no file as they are, but follow from others. Immutable, so any thread may read it.
class DerivedBytes {
 public:
  virtual ~DerivedBytes() = default;
  // Bytes [begin, begin + out.size()). REQUIRES: whole elements or blocks, that exist. Errors: IO_ERROR, and its own.
  virtual base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const = 0;
};

// A stretch of a file, or of bytes derived from files, of which nothing is in memory. A view, which what it views outlives.
class FileRange {
 public:
  FileRange() = default;  // empty
  // REQUIRES: inside the file.
  FileRange(const StoredFile& file, std::uint64_t offset, std::uint64_t size);
  // All `size` of them.
  FileRange(const DerivedBytes& derived, std::uint64_t size) : derived_(&derived), size_(size) {}

  std::uint64_t offset() const { return offset_; }  // in the file
  std::uint64_t size() const { return size_; }
  // Bytes [begin, begin + out.size()) of the stretch. REQUIRES: they are inside of it. Errors: IO_ERROR, those of DerivedBytes.
  base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const;
  // All of it: for what is known to be small. Errors: as read().
  base::Result<std::vector<std::byte>> read_all() const;

 private:
  const StoredFile* file_ = nullptr;
  const DerivedBytes* derived_ = nullptr;
  std::uint64_t offset_ = 0, size_ = 0;
};

}  // namespace llorch::engine::io
