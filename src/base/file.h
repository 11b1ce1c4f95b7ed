#pragma once
// The few file operations the tree shares. Paths in errors are the caller's own, as given.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::base {

// A read-only mapping of a whole file. Owns the mapping; moves, does not copy.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

Result<std::string> read_file(const std::filesystem::path& path, std::size_t bytes_max);
// Writes beside `path`, fsyncs, renames, fsyncs the directory: readers see the old or the new file, never a part. On
// failure nothing is left beside it. REQUIRES: one thread of this process writes `path` at a time.
Result<> write_file_atomic(const std::filesystem::path& path, std::string_view content, unsigned mode = 0600);
// fsyncs the directory that holds `path`: a file created or renamed there keeps its name after a power cut. Errors: IO_ERROR.
Result<> sync_parent_directory(const std::filesystem::path& path);
// Creates `path` and its parents. The last one gets mode 0700 if it is new, or ours and still empty.
Result<> ensure_private_directory(const std::filesystem::path& path);
// "cannot open FILE: No such file or directory"
Error io_error(std::string_view action, const std::filesystem::path& path, int error_number);

// Directory for run-time state: $LLORCH_STATE_DIR, else $XDG_STATE_HOME/llorch, else ~/.local/state/llorch.
std::filesystem::path default_state_directory();
// ~/.config/llorch/config.yaml
std::filesystem::path default_config_path();
// ~/.cache/llama-orch/models
std::filesystem::path default_model_cache();

}  // namespace llorch::base
