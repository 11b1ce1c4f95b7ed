#pragma once
// Writes an ExportModel in one pass: a slab of rows in memory at a time, whatever the model's size.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "base/result.h"
#include "engine/io/gguf_writer.h"
#include "engine/models/gguf_export/export_model.h"
#include "engine/models/gguf_write/tensor_types.h"

namespace llorch::engine::models {

struct WriteOptions {
  unsigned threads = 1;  // rows are converted apart from each other: never changes a bit
  // Bytes written of all; called between slabs, an error it returns ends the work. May be empty.
  std::function<base::Result<>(std::uint64_t bytes_done, std::uint64_t bytes_total)> progress;
  io::GgufPublishing publishing;
};

// Sets general.file_type and general.quantization_version by `type`, which most matrices have. The file appears under `path`
// when it is complete; on any error nothing is left. Gives its size. REQUIRES: one type per tensor.
// Errors: IO_ERROR (also when the directory has too little room, before anything is written), WEIGHT_VALUE_UNSUPPORTED (a value
// the type cannot hold: names the tensor), those of GgufWriter::write, what `progress` returned.
base::Result<std::uint64_t> write_gguf(const ExportModel& model, std::span<const TensorType> types, plan::DType type,
                                       const std::filesystem::path& path, const WriteOptions& options);

}  // namespace llorch::engine::models
