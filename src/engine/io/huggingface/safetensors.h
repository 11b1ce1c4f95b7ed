#pragma once
// Reader of safetensors files (format: the safetensors project's README), and of the index of a model in several of them.
//
// Files are untrusted: the header's length, every range and every product is checked before it is used, the ranges must
// tile the data exactly, and nothing is allocated that the header's own bytes do not justify. The header is read and copied;
// the data of tensors stays in the file until it is asked for.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/file_tensor.h"

namespace llorch::engine::io {

struct SafetensorsLimits {
  std::uint64_t header_bytes_max = 100'000'000;  // as the format states
  std::uint64_t name_bytes_max = 256;            // of a tensor's name; the longest in use have about 90
};

// One opened file. Views and ranges handed out live as long as the object they came from or was moved into. Immutable after
// opening, so any thread may read it.
class SafetensorsFile {
 public:
  // Errors: IO_ERROR; CORRUPT_FILE (truncated, no JSON header, hole, overlap, size that contradicts the shape,
  // duplicate: the message names the tensor or the byte); UNSUPPORTED_QUANT_TYPE (names tensor and type);
  // UNSUPPORTED_TENSOR_RANK.
  static base::Result<SafetensorsFile> open(const std::filesystem::path& path);
  static base::Result<SafetensorsFile> read(std::unique_ptr<StoredFile> file, const SafetensorsLimits& limits = {});
  // The same for bytes the caller owns and keeps. `source` stands for the path in messages.
  static base::Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string source = "<memory>",
                                             const SafetensorsLimits& limits = {});

  const std::string& source() const { return file_->source(); }
  std::uint64_t file_bytes() const { return file_->size(); }
  std::uint64_t header_bytes() const { return header_bytes_; }
  std::span<const FileTensor> tensors() const { return tensors_; }  // in the order of their data
  const FileTensor* find_tensor(std::string_view name) const;       // nullptr when absent
  // The strings of __metadata__, by key.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

 private:
  friend class SafetensorsParser;
  SafetensorsFile() = default;

  std::unique_ptr<StoredFile> file_;
  std::uint64_t header_bytes_ = 0;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::vector<std::string> names_;  // what the tensors' names are views of
  std::vector<FileTensor> tensors_;
  std::vector<std::uint32_t> names_sorted_;  // indices into tensors_, by name
};

// model.safetensors.index.json: which file holds which tensor.
struct SafetensorsIndex {
  std::vector<std::string> files;                           // each once, sorted; plain names without a directory
  std::map<std::string, std::uint32_t, std::less<>> holds;  // tensor -> index into `files`

  // Errors: CORRUPT_FILE (no such JSON, a file name with a directory in it, a tensor named twice).
  static base::Result<SafetensorsIndex> parse(std::string_view json, std::string_view source,
                                              const SafetensorsLimits& limits = {});
};

}  // namespace llorch::engine::io
