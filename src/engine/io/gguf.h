#pragma once
// Reader of GGUF model files, versions 2 and 3 (little-endian). Format: ggml's docs/gguf.md.
//
// The file is untrusted: every count, length and offset is checked against the bytes that are left before anything is
// allocated or read, and what passes is in bounds, aligned, unique and free of overlap. The header (metadata and the table
// of tensors) is read into memory that the object owns, and metadata are views of it; opening a file with 128k tokens costs
// one walk over them. The data of tensors stays in the file until it is asked for.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/io/stored_file.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::io {

// Value types by their number in the file.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// An array as it lies in the file: unaligned little-endian elements, strings each as u64 length and bytes.
struct GgufArray {
  GgufType element_type = GgufType::kU8;  // never kArray: nested arrays are refused
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;
};

// The alternatives stand in the order of GgufType, so index() is the type's number.
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                               float, bool, std::string_view, GgufArray, std::uint64_t, std::int64_t, double>;

inline GgufType type_of(const GgufValue& value) { return static_cast<GgufType>(value.index()); }
// "u32", "string", ...
std::string_view name_of(GgufType type);

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;
  plan::DType dtype = plan::DType::kF32;
  std::uint32_t rank = 0;                         // 1..4
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // ne0 (contiguous) first; 1 past the rank
  FileRange data;                                 // exactly the tensor's blocks

  std::uint64_t elements_count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

// Bounds on what a file may claim, beyond what its own size proves. From the loader limits of the worker contract,
// except where real models pass them: files over 100 GB and fused expert tensors over 1e9 elements exist, and both are
// already bounded by the file; one embedded tokenizer.json exceeds 64 KiB.
struct GgufLimits {
  // Of metadata and tensor table: the memory of an open file. The largest in use, vocabularies of 262,144 tokens with an
  // embedded tokenizer.json, have about 50 MB.
  std::uint64_t header_bytes_max = 256u << 20;
  std::uint64_t metadata_count_max = 1'000;
  std::uint64_t tensors_count_max = 10'000;
  std::uint64_t name_bytes_max = 64;              // of a tensor's name, as the format states
  std::uint64_t key_bytes_max = 65'535;           // as the format states
  std::uint64_t array_string_bytes_max = 65'536;  // of one string inside an array
  std::uint64_t string_bytes_max = 64u << 20;     // of a string value
};

// One opened file; a part of a split model too, which model_files.h joins. Views and ranges handed out live as long as the
// object they came from or was moved into. Immutable after opening, so any thread may read it.
class GgufFile {
 public:
  // Errors: IO_ERROR; CORRUPT_FILE (wrong magic, truncated, out of bounds, duplicate, overlapping, misaligned, a header
  // beyond its limit: the message names the offset); UNSUPPORTED_FORMAT_VERSION (version, byte order);
  // UNSUPPORTED_QUANT_TYPE (names tensor and type); CONFIG_KEY_INVALID (nested array, impossible general.alignment).
  static base::Result<GgufFile> open(const std::filesystem::path& path);
  static base::Result<GgufFile> read(std::unique_ptr<StoredFile> file, const GgufLimits& limits = {});
  // The same for bytes the caller owns and keeps. `source` stands for the path in messages.
  static base::Result<GgufFile> parse(std::span<const std::byte> bytes, std::string source = "<memory>",
                                      const GgufLimits& limits = {});

  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t file_bytes() const { return file_->size(); }
  std::uint64_t header_bytes() const { return header_bytes_; }  // in memory
  // The path or label this was opened with, for messages.
  const std::string& source() const { return file_->source(); }

  std::span<const GgufEntry> metadata() const { return metadata_; }  // in file order
  std::span<const GgufTensor> tensors() const { return tensors_; }   // in file order

  // nullptr when absent.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  // Typed reads. CONFIG_KEY_MISSING when absent; CONFIG_KEY_INVALID when of another kind or out of range. Integers of
  // any width are accepted and range-checked; floats accept f32 and f64 and must be finite; strings must be UTF-8.
  base::Result<std::uint64_t> u64(std::string_view key) const;
  base::Result<std::uint32_t> u32(std::string_view key) const;
  base::Result<float> f32(std::string_view key) const;
  base::Result<bool> boolean(std::string_view key) const;
  base::Result<std::string_view> string(std::string_view key) const;
  // The same with a value for an absent key; a key that is there but invalid is still an error.
  base::Result<std::uint64_t> u64_or(std::string_view key, std::uint64_t absent) const;
  base::Result<std::uint32_t> u32_or(std::string_view key, std::uint32_t absent) const;
  base::Result<float> f32_or(std::string_view key, float absent) const;
  base::Result<bool> boolean_or(std::string_view key, bool absent) const;
  base::Result<std::string_view> string_or(std::string_view key, std::string_view absent) const;
  // Arrays. Strings are views into the file and may hold any bytes (vocabularies do); numbers are copies.
  base::Result<std::vector<std::string_view>> string_array(std::string_view key) const;
  base::Result<std::vector<float>> f32_array(std::string_view key) const;
  base::Result<std::vector<std::int32_t>> i32_array(std::string_view key) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  base::Result<const GgufValue*> require(std::string_view key) const;
  base::Error wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const;

  std::unique_ptr<StoredFile> file_;
  std::unique_ptr<std::byte[]> header_;  // what metadata and names are views of
  std::uint64_t header_bytes_ = 0;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> keys_sorted_;   // indices into metadata_, by key
  std::vector<std::uint32_t> names_sorted_;  // indices into tensors_, by name
};

// One line for people: numbers in shortest form, strings and arrays shortened to about `bytes_max`.
std::string to_text(const GgufValue& value, std::size_t bytes_max = 80);

}  // namespace llorch::engine::io
