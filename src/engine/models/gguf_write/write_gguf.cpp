#include "engine/models/gguf_write/write_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

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
  const auto repeated = [&](std::size_t i) {
    const auto first = model.tensors[i].same_as;
    return first && types[*first].type == types[i].type ? first : std::nullopt;
  };
  std::map<std::size_t, std::vector<std::byte>> kept;  // stored tensors that others repeat
  for (std::size_t i = 0; i < types.size(); ++i)
    if (const auto first = repeated(i)) kept[*first] = {};
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ExportTensor& tensor = model.tensors[i];
    const RowFormat format{.type = types[i].type, .cols = tensor.dims[0], .offset = tensor.offset};
    writer.add_tensor({tensor.name, format.type, tensor.dims},
                      io::GgufWriter::Stream([&, format, i](const io::GgufWriter::Sink& sink) -> base::Result<> {
                        const auto written = [&](std::uint64_t bytes) {
                          done += bytes;
                          return options.progress ? options.progress(done, total) : base::Result<>();
                        };
                        if (const auto first = repeated(i)) {
                          TRY(sink(kept.at(*first)));
                          return written(kept.at(*first).size());
                        }
                        const auto keeps = kept.find(i);
                        return tensor.read([&](const Slab& slab) -> base::Result<> {
                          auto bytes = converter.convert(slab, format);
                          if (!bytes) {
                            bytes.error().message = fmt::format("tensor {}: {}", tensor.name, bytes.error().message);
                            return base::fail(std::move(bytes).error());
                          }
                          TRY(sink(*bytes));
                          if (keeps != kept.end())
                            keeps->second.insert(keeps->second.end(), bytes->begin(), bytes->end());
                          return written(bytes->size());
                        });
                      }));
  }
  total = writer.file_bytes();
  TRY(check_room(path, total));
  TRY(writer.write(path, options.publishing));
  return total;
}

}  // namespace llorch::engine::models
