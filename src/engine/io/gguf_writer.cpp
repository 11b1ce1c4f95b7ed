#include "engine/io/gguf_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/atomic_file.h"
#include "engine/io/gguf_types.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint64_t kPieceBytes = 8u << 20;  // of a tensor that is copied from a file

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
  auto file = TRY(base::AtomicFile::create(path));
  TRY(stream([&](std::span<const std::byte> bytes) { return file.append(bytes); }));
  if (publishing.check) TRY(publishing.check());
  return file.commit(publishing.replaces);
}

}  // namespace llorch::engine::io
