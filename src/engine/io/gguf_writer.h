#pragma once
// Writes GGUF version 3 files in one pass. Memory: the header and what a producer hands over at a time.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/gguf.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::io {

// How a complete file gets its name.
struct GgufPublishing {
  bool replaces = true;  // a file that has the name; else it stays, and the new one goes
  std::function<base::Result<>()>
      check;  // called when everything is written; an error it returns ends the work. May be empty.
};

// Collects metadata and tensor declarations, then writes them. Not thread-safe.
class GgufWriter {
 public:
  // Called once per tensor while writing, in declaration order; the bytes must stay valid until the next call.
  using Producer = std::function<base::Result<std::span<const std::byte>>()>;
  // The same in pieces: calls the sink as often as it likes; bytes must stay valid during that call only.
  using Sink = std::function<base::Result<>(std::span<const std::byte>)>;
  using Stream = std::function<base::Result<>(const Sink&)>;

  struct TensorSpec {
    std::string name;
    plan::DType dtype = plan::DType::kF32;
    std::vector<std::uint64_t> dims;  // ne0 first; 1..4 of them, none 0, ne0 a multiple of the block
  };

  // `alignment`: power of two >= 8; written as general.alignment when it is not the default.
  explicit GgufWriter(std::uint32_t alignment = 32);

  // Metadata, in the order given. A value may come straight from a GgufFile. REQUIRES: each key once.
  void put(std::string_view key, const GgufValue& value);
  void put_strings(std::string_view key, std::span<const std::string> values);
  void put_f32s(std::string_view key, std::span<const float> values);
  void put_i32s(std::string_view key, std::span<const std::int32_t> values);

  // REQUIRES: each name once; the producer's bytes have exactly the size the spec implies (an error otherwise).
  void add_tensor(TensorSpec spec, Producer producer);
  void add_tensor(TensorSpec spec, Stream stream);
  // The same for bytes that outlive the writer.
  void add_tensor(TensorSpec spec, std::span<const std::byte> data);
  // The same for bytes of a file that outlives it, read while it writes.
  void add_tensor(TensorSpec spec, FileRange data);

  // Writes beside `path`, syncs and renames: readers never see a part. Errors: IO_ERROR, CONFLICT (a file that is not to be
  // replaced), or what a producer or the check returned.
  base::Result<> write(const std::filesystem::path& path, const GgufPublishing& publishing = {}) const;
  base::Result<std::vector<std::byte>> to_bytes() const;
  // Size of the file that write() makes.
  std::uint64_t file_bytes() const;

 private:
  struct Tensor {
    TensorSpec spec;
    Stream stream;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the data section
  };

  std::vector<std::byte> header() const;
  base::Result<> stream(const Sink& sink) const;
  void begin_entry(std::string_view key, GgufType type);

  std::uint32_t alignment_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::vector<std::byte> metadata_;  // encoded entries
  std::vector<Tensor> tensors_;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace llorch::engine::io
