#include "engine/models/gguf_write/write_gguf.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/gguf_write/row_converter.h"

namespace llorch::engine::models {
namespace {

// Of the block layouts in quant_blocks.h.
constexpr std::uint32_t kQuantizationVersion = 2;

// Told before hours of work rather than after them.
base::Result<> check_room(const std::filesystem::path& path, std::uint64_t bytes) {
  std::error_code error;
  const std::filesystem::path directory = path.parent_path().empty() ? "." : path.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || space.available >= bytes) return {};
  return base::fail(base::ErrorCode::kIoError,
                    fmt::format("{} takes {} bytes, its directory has {} free; free some or write elsewhere",
                                path.string(), bytes, space.available));
}

}  // namespace

base::Result<std::uint64_t> write_gguf(const ExportModel& model, std::span<const TensorType> types, plan::DType type,
                                       const std::filesystem::path& path, const WriteOptions& options) {
  ASSERT(types.size() == model.tensors.size(), "{} types for {} tensors", types.size(), model.tensors.size());
  io::GgufMetadata metadata = model.metadata;
  metadata.put("general.file_type", gguf_file_type(type));
  const bool quantized = std::ranges::any_of(types, [](const TensorType& t) { return plan::is_quantized(t.type); });
  if (quantized) metadata.put("general.quantization_version", kQuantizationVersion);
  io::GgufWriter writer;
  metadata.write_to(writer);

  RowConverter converter(options.threads);
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ExportTensor& tensor = model.tensors[i];
    const RowFormat format{.type = types[i].type, .cols = tensor.dims[0], .offset = tensor.offset};
    writer.add_tensor({tensor.name, format.type, tensor.dims},
                      io::GgufWriter::Stream([&, format](const io::GgufWriter::Sink& sink) {
                        return tensor.read([&](const Slab& slab) -> base::Result<> {
                          auto bytes = converter.convert(slab, format);
                          if (!bytes) {
                            bytes.error().message = fmt::format("tensor {}: {}", tensor.name, bytes.error().message);
                            return base::fail(std::move(bytes).error());
                          }
                          TRY(sink(*bytes));
                          done += bytes->size();
                          return options.progress ? options.progress(done, total) : base::Result<>();
                        });
                      }));
  }
  total = writer.file_bytes();
  TRY(check_room(path, total));
  TRY(writer.write(path));
  return total;
}

}  // namespace llorch::engine::models
