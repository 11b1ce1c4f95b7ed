#include "engine/io/gguf_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/file.h"
#include "engine/io/gguf_types.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint64_t kPieceBytes = 8u << 20;  // of a tensor that is copied from a file
constexpr int kTemporariesMax = 100;             // beside one file

void append_bytes(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  out.insert(out.end(), first, first + bytes);
}

template <class T>
void append(std::vector<std::byte>& out, T value) {
  append_bytes(out, &value, sizeof value);
}

void append_string(std::vector<std::byte>& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  append_bytes(out, text.data(), text.size());
}

// Errors: an errno, EEXIST where something has the name. Where the file system has no such rename, a link does it; where it has no
// links either, a look before.
int rename_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()), 0;
  if (errno == EEXIST) return EEXIST;
  struct stat st {};
  if (::lstat(to.c_str(), &st) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

// A file under a temporary name beside `path` that takes its place in commit(), or disappears. What lies beside it belongs to
// somebody else, and so does what a link of that name leads to.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& path) {
    AtomicFile file;
    file.path_ = path;
    // What an earlier process of this number left lies there still: a container's are all the same.
    for (int i = 0;; ++i) {
      file.temporary_ = fmt::format("{}.{}.{}.tmp", path.string(), ::getpid(), i);
      file.fd_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (file.fd_ >= 0) return file;
      if (errno != EEXIST || i == kTemporariesMax) return fail(base::io_error("cannot create", file.temporary_, errno));
    }
  }
  AtomicFile(AtomicFile&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }

  Result<> append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(base::io_error("cannot write", temporary_, errno));
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<> commit(bool replaces) {
    if (::fsync(fd_) != 0) return fail(base::io_error("cannot sync", temporary_, errno));
    const int error = !replaces                                          ? rename_new(temporary_, path_)
                      : ::rename(temporary_.c_str(), path_.c_str()) != 0 ? errno
                                                                         : 0;
    if (error == EEXIST && !replaces)
      return fail(ErrorCode::kConflict,
                  fmt::format("{} appeared while its content was made; it stays as it is", path_.string()));
    if (error != 0) return fail(base::io_error(replaces ? "cannot replace" : "cannot create", path_, error));
    ::close(std::exchange(fd_, -1));
    return base::sync_parent_directory(path_);
  }

 private:
  AtomicFile() = default;
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  ASSERT(std::has_single_bit(alignment) && alignment >= 8, "alignment {}", alignment);
  if (alignment != kDefaultAlignment) put("general.alignment", alignment);
}

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  ASSERT(!key.empty() && keys_.emplace(key).second, "metadata key '{}' is empty or given twice", key);
  append_string(metadata_, key);
  append(metadata_, static_cast<std::uint32_t>(type));
}

void GgufWriter::put(std::string_view key, const GgufValue& value) {
  begin_entry(key, type_of(value));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          append_string(metadata_, v);
        } else if constexpr (std::is_same_v<T, GgufArray>) {
          append(metadata_, static_cast<std::uint32_t>(v.element_type));
          append(metadata_, v.count);
          append_bytes(metadata_, v.bytes.data(), v.bytes.size());
        } else {
          append(metadata_, v);
        }
      },
      value);
}

void GgufWriter::put_strings(std::string_view key, std::span<const std::string> values) {
  begin_entry(key, GgufType::kArray);
  append(metadata_, static_cast<std::uint32_t>(GgufType::kString));
  append(metadata_, std::uint64_t{values.size()});
  for (const auto& value : values) append_string(metadata_, value);
}

void GgufWriter::put_f32s(std::string_view key, std::span<const float> values) {
  put(key, GgufArray{GgufType::kF32, values.size(), std::as_bytes(values)});
}

void GgufWriter::put_i32s(std::string_view key, std::span<const std::int32_t> values) {
  put(key, GgufArray{GgufType::kI32, values.size(), std::as_bytes(values)});
}

void GgufWriter::add_tensor(TensorSpec spec, Producer producer) {
  add_tensor(std::move(spec),
             Stream([producer = std::move(producer)](const Sink& sink) -> Result<> { return sink(TRY(producer())); }));
}

void GgufWriter::add_tensor(TensorSpec spec, Stream stream) {
  const auto info = plan::dtype_info(spec.dtype);
  ASSERT(!spec.name.empty() && names_.insert(spec.name).second, "tensor '{}' is unnamed or given twice", spec.name);
  ASSERT(!spec.dims.empty() && spec.dims.size() <= 4, "tensor '{}' has {} dimensions", spec.name, spec.dims.size());
  ASSERT(spec.dims[0] % info.block_elements == 0, "tensor '{}' has rows of {}", spec.name, spec.dims[0]);
  std::uint64_t bytes = spec.dims[0] / info.block_elements * info.block_bytes;
  for (std::size_t d = 1; d < spec.dims.size(); ++d) bytes *= spec.dims[d];
  ASSERT(bytes > 0, "tensor '{}' is empty", spec.name);
  const std::uint64_t offset = align_up(data_bytes_, alignment_);
  data_bytes_ = offset + bytes;
  tensors_.push_back({std::move(spec), std::move(stream), bytes, offset});
}

void GgufWriter::add_tensor(TensorSpec spec, std::span<const std::byte> data) {
  add_tensor(std::move(spec), Stream([data](const Sink& sink) { return sink(data); }));
}

void GgufWriter::add_tensor(TensorSpec spec, FileRange data) {
  add_tensor(std::move(spec), Stream([data](const Sink& sink) -> Result<> {
               std::vector<std::byte> piece;
               for (std::uint64_t at = 0; at < data.size(); at += piece.size()) {
                 piece.resize(std::min<std::uint64_t>(data.size() - at, kPieceBytes));
                 TRY(data.read(at, piece));
                 TRY(sink(piece));
               }
               return {};
             }));
}

std::vector<std::byte> GgufWriter::header() const {
  std::vector<std::byte> out;
  append_bytes(out, "GGUF", 4);
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{tensors_.size()});
  append(out, std::uint64_t{keys_.size()});
  append_bytes(out, metadata_.data(), metadata_.size());
  for (const auto& tensor : tensors_) {
    append_string(out, tensor.spec.name);
    append(out, static_cast<std::uint32_t>(tensor.spec.dims.size()));
    for (const auto dim : tensor.spec.dims) append(out, dim);
    append(out, gguf_tensor_type_id(tensor.spec.dtype));
    append(out, tensor.offset);
  }
  out.resize(align_up(out.size(), alignment_));
  return out;
}

Result<> GgufWriter::stream(const Sink& sink) const {
  TRY(sink(header()));
  const std::vector<std::byte> zeros(alignment_);
  std::uint64_t position = 0;
  for (const auto& tensor : tensors_) {
    TRY(sink(std::span(zeros).first(tensor.offset - position)));
    std::uint64_t bytes = 0;
    TRY(tensor.stream([&](std::span<const std::byte> data) {
      bytes += data.size();
      return sink(data);
    }));
    if (bytes != tensor.bytes) {
      return fail(ErrorCode::kWeightShapeMismatch, fmt::format("tensor {} came with {} bytes, its shape takes {}",
                                                               tensor.spec.name, bytes, tensor.bytes));
    }
    position = tensor.offset + tensor.bytes;
  }
  return {};
}

std::uint64_t GgufWriter::file_bytes() const { return header().size() + data_bytes_; }

Result<std::vector<std::byte>> GgufWriter::to_bytes() const {
  std::vector<std::byte> out;
  TRY(stream([&](std::span<const std::byte> bytes) -> Result<> {
    append_bytes(out, bytes.data(), bytes.size());
    return {};
  }));
  return out;
}

Result<> GgufWriter::write(const std::filesystem::path& path, const GgufPublishing& publishing) const {
  auto file = TRY(AtomicFile::create(path));
  TRY(stream([&](std::span<const std::byte> bytes) { return file.append(bytes); }));
  if (publishing.check) TRY(publishing.check());
  return file.commit(publishing.replaces);
}

}  // namespace llorch::engine::io
