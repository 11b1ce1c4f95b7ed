#pragma once
// One door to a stored model: a GGUF file, a GGUF model split into several, or a Hugging Face directory.
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/checkpoint/join.h"
#include "engine/io/file_tensor.h"
#include "engine/io/gguf.h"
#include "engine/io/huggingface/hf_config.h"
#include "engine/io/huggingface/safetensors.h"

namespace llorch::engine::io {

enum class ModelFormat : std::uint8_t { kGguf, kHuggingFace };

struct ModelFilesLimits {
  // Of all files together: what is in memory while they are open is a few times as much. The largest in use have about 60 MB.
  std::uint64_t headers_bytes_max = 512u << 20;
};

// The metadata and all tensors of one model, whatever files they lie in. Metadata, names and the tables of tensors are in
// memory that the object owns, bounded by GgufLimits, SafetensorsLimits, HfConfigLimits and ModelFilesLimits; the data of tensors stays in the
// files and is read by FileTensor::data. Nothing is mapped, so a file that is cut short, replaced or unreadable is IO_ERROR
// where it is read; that bytes of two states of a file were read is for model_stamp() to tell.
// Views and ranges handed out live as long as the object they came from or was moved into. Immutable after opening, so any
// thread may read it.
class ModelFiles {
 public:
  // `path` is
  //   a GGUF file. One part of a split model (any of them) stands for all: NAME-00001-of-0000N.gguf to NAME-0000N-of-0000N.gguf
  //   in the same directory, checked against split.no, split.count and split.tensors.count;
  //   a directory with config.json and model.safetensors, or model.safetensors.index.json with the files it names.
  // Errors: those of GgufFile, HfConfig, SafetensorsFile, SafetensorsIndex and join_quantized(); IO_ERROR (a part is missing);
  // UNSUPPORTED_FORMAT_VERSION (a directory without safetensors, or with a module behind its pooling that is not read); CORRUPT_FILE (parts that do not belong together, a tensor in
  // two of them or in another than the index says, headers beyond their limit).
  static base::Result<ModelFiles> open(const std::filesystem::path& path, const ModelFilesLimits& limits = {});
  // The same from files already read. `parts` in order; for one file, just that one.
  static base::Result<ModelFiles> from_gguf(std::vector<GgufFile> parts);
  static base::Result<ModelFiles> from_gguf(GgufFile file);
  static base::Result<ModelFiles> from_hugging_face(HfConfig config, std::vector<SafetensorsFile> files);

  // Adds the GGUF file that holds the vision tower of a GGUF model; its tensors join the model's.
  // Errors: UNSUPPORTED_FORMAT_VERSION (no GGUF model, or no file of a tower), CORRUPT_FILE (a tensor that is there already).
  base::Result<> add_projector(GgufFile projector);

  ModelFormat format() const { return config_ ? ModelFormat::kHuggingFace : ModelFormat::kGguf; }
  // The path this was opened with, for messages.
  const std::string& source() const { return source_; }
  // Of all files that hold tensors.
  std::uint64_t file_bytes() const { return file_bytes_; }

  std::span<const FileTensor> tensors() const { return tensors_; }  // part by part, in file order
  const FileTensor* find_tensor(std::string_view name) const;       // nullptr when absent

  // The metadata: of the first part for a split model. Null for the other format.
  const GgufFile* gguf() const { return parts_.empty() ? nullptr : &parts_.front(); }
  const HfConfig* hf() const { return config_ ? &*config_ : nullptr; }
  // How a Hugging Face directory wants images: its preprocessor_config.json, or the image_processor of its
  // processor_config.json; null without.
  const HfConfig* hf_images() const { return images_ ? &*images_ : nullptr; }
  // How a Hugging Face directory of a model of embeddings pools rows (kPoolingName); null without.
  const HfConfig* hf_pooling() const { return pooling_ ? &*pooling_ : nullptr; }
  // The linear layers behind it, in order; their tensors are DIRECTORY.NAME: 2_Dense.linear.weight.
  std::span<const HfConfig> hf_dense() const { return dense_; }
  // Whose logits a Hugging Face directory of a model of scores wants (kLogitScoreName); null without.
  const HfConfig* hf_answers() const { return answers_ ? &*answers_ : nullptr; }
  // The metadata of the vision tower's own file; null without one.
  const GgufFile* projector() const { return projector_ ? &*projector_ : nullptr; }

 private:
  ModelFiles() = default;
  base::Result<> index_tensors();
  base::Result<> add_sentence_modules(const std::filesystem::path& directory);

  std::string source_;
  std::uint64_t file_bytes_ = 0;
  std::vector<GgufFile> parts_;                        // GGUF
  std::optional<GgufFile> projector_;                  // GGUF
  std::optional<HfConfig> config_;                     // Hugging Face
  std::optional<HfConfig> images_;                     // Hugging Face
  std::optional<HfConfig> pooling_;                    // Hugging Face
  std::vector<HfConfig> dense_;                        // Hugging Face
  std::optional<HfConfig> answers_;                    // Hugging Face
  std::vector<SafetensorsFile> shards_;                // Hugging Face
  std::vector<std::unique_ptr<JoinedTensor>> joined_;  // Hugging Face; made of the shards' tensors
  std::vector<FileTensor> tensors_;
  std::list<std::string> names_;             // of tensors that go by another name here than in their file
  std::vector<std::uint32_t> names_sorted_;  // indices into tensors_, by name
};

}  // namespace llorch::engine::io
