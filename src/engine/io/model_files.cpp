#include "engine/io/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/assert.h"
#include "engine/io/model_layout.h"
#include "engine/io/printable.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

FileTensor file_tensor(const GgufTensor& tensor) {
  FileTensor out{
      .name = tensor.name, .type = stored_type(tensor.dtype), .rank = tensor.rank, .dims = {}, .data = tensor.data};
  for (std::uint32_t d = 0; d < tensor.rank; ++d) out.dims[d] = tensor.dims[tensor.rank - 1 - d];
  return out;
}

// Parts belong together by what they say of themselves: split.no counts from 0, split.count is their number in all of
// them, split.tensors.count the tensors of all together.
Result<> check_part(const GgufFile& part, std::size_t place, std::size_t parts_count) {
  const auto count = TRY(part.u64_or("split.count", 1));
  const auto number = TRY(part.u64_or("split.no", 0));
  if (count == parts_count && number == place) return {};
  return fail(ErrorCode::kCorruptFile,
              fmt::format("{} says it is part {} of {} of a split model, but stands as part {} of {}; fetch all "
                          "parts of one model under their own names",
                          part.source(), number + 1, count, place + 1, parts_count));
}

Result<> check_parts(std::span<const GgufFile> parts) {
  std::uint64_t tensors_count = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TRY(check_part(parts[i], i, parts.size()));
    tensors_count += parts[i].tensors().size();
  }
  const auto wanted = TRY(parts[0].u64_or("split.tensors.count", tensors_count));
  if (parts.size() > 1 && wanted != tensors_count) {
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: the model has {} tensors, its parts hold {}; fetch them again", parts[0].source(),
                            wanted, tensors_count));
  }
  return {};
}

// Counts the headers of a model's files as they are opened.
class Headers {
 public:
  explicit Headers(const ModelFilesLimits& limits) : bytes_max_(limits.headers_bytes_max) {}

  template <class File>
  Result<> add(const File& file) {
    bytes_ += file.header_bytes();
    if (bytes_ <= bytes_max_) return {};
    return fail(ErrorCode::kCorruptFile,
                fmt::format("{}: the headers of the model's files up to this one have {} bytes, the limit is {}",
                            file.source(), bytes_, bytes_max_));
  }

 private:
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_max_;
};

Result<std::vector<GgufFile>> open_parts(const std::filesystem::path& path, const ModelFilesLimits& limits) {
  Headers headers(limits);
  std::vector<GgufFile> parts;
  parts.push_back(TRY(GgufFile::open(path)));
  const auto count = TRY(parts[0].u64_or("split.count", 1));
  if (count <= 1) return parts;
  const auto name = gguf_part_name(path);
  if (!name || name->count != count) {
    return fail(
        ErrorCode::kCorruptFile,
        fmt::format("{} is a part of a model split into {} files; such a file is named NAME-00001-of-{:05}.gguf "
                    "and stands beside the others",
                    path.string(), count, count));
  }
  if (count > kModelFilesMax) {
    return fail(ErrorCode::kCorruptFile, fmt::format("{} is a part of a model split into {} files, the limit is {}",
                                                     path.string(), count, kModelFilesMax));
  }
  parts.clear();
  for (const auto& part : gguf_parts(path, *name)) {
    parts.push_back(TRY(GgufFile::open(part)));
    TRY(check_part(parts.back(), parts.size() - 1, count));
    TRY(headers.add(parts.back()));
  }
  return parts;
}

// Every tensor lies where the index says, and no other does.
Result<> check_index(const SafetensorsIndex& index, std::span<const SafetensorsFile> files) {
  for (const auto& [tensor, file] : index.holds) {
    if (files[file].find_tensor(tensor) == nullptr) {
      return fail(ErrorCode::kCorruptFile,
                  fmt::format("{} lacks the tensor {} that the index places there", files[file].source(), tensor));
    }
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const FileTensor& tensor : files[i].tensors()) {
      const auto at = index.holds.find(tensor.name);
      if (at != index.holds.end() && at->second == i) continue;
      return fail(ErrorCode::kCorruptFile,
                  fmt::format("{} holds the tensor {}, which the index {}", files[i].source(), tensor.name,
                              at == index.holds.end() ? "does not name" : "places elsewhere"));
    }
  }
  return {};
}

// transformers 4 writes the first file, 5 the second.
Result<std::optional<HfConfig>> image_processor_of(const std::filesystem::path& directory) {
  if (is_present(directory / kImageProcessorName)) return TRY(HfConfig::open(directory / kImageProcessorName));
  if (!is_present(directory / kProcessorName)) return std::nullopt;
  const HfConfig processor = TRY(HfConfig::open(directory / kProcessorName));
  if (!processor.contains("image_processor")) return std::nullopt;
  return TRY(processor.object("image_processor"));
}

}  // namespace

Result<ModelFiles> ModelFiles::open(const std::filesystem::path& path, const ModelFilesLimits& limits) {
  std::error_code ec;
  if (!std::filesystem::is_directory(path, ec)) {
    ModelFiles files = TRY(from_gguf(TRY(open_parts(path, limits))));
    files.source_ = path.string();
    return files;
  }
  if (!is_present(path / kHfConfigName)) {
    return fail(ErrorCode::kUnsupportedFormatVersion,
                fmt::format("{} is a directory without {}; give a GGUF file or the directory of a Hugging Face model",
                            path.string(), kHfConfigName));
  }
  HfConfig config = TRY(HfConfig::open(path / kHfConfigName));
  const SafetensorsIndex index = TRY(safetensors_of(path));
  Headers headers(limits);
  std::vector<SafetensorsFile> shards;
  for (const auto& name : index.files) {
    shards.push_back(TRY(SafetensorsFile::open(path / name)));
    TRY(headers.add(shards.back()));
  }
  if (!index.holds.empty()) TRY(check_index(index, shards));
  ModelFiles files = TRY(from_hugging_face(std::move(config), std::move(shards)));
  files.images_ = TRY(image_processor_of(path));
  TRY(files.add_sentence_modules(path));
  files.source_ = path.string();
  return files;
}

// The linear layers behind a pooling stand in directories of their own, the first without a gap.
Result<> ModelFiles::add_sentence_modules(const std::filesystem::path& directory) {
  if (is_present(directory / kLogitScoreName)) answers_ = TRY(HfConfig::open(directory / kLogitScoreName));
  if (!is_present(directory / kPoolingName)) return {};
  pooling_ = TRY(HfConfig::open(directory / kPoolingName));
  for (std::size_t i = 0; i < kDenseNames.size(); ++i) {
    const std::string_view name = kDenseNames[i];
    const bool present = is_present(directory / name);
    if (present && dense_.size() != i) {
      return fail(ErrorCode::kUnsupportedFormatVersion,
                  fmt::format("{} has {} without {}; this order of modules is not supported", directory.string(), name,
                              kDenseNames[dense_.size()]));
    }
    if (!present) continue;
    dense_.push_back(TRY(HfConfig::open(directory / name / kHfConfigName)));
    shards_.push_back(TRY(SafetensorsFile::open(directory / name / kSafetensorsName)));
    file_bytes_ += shards_.back().file_bytes();
    for (FileTensor tensor : shards_.back().tensors()) {
      tensor.name = names_.emplace_back(fmt::format("{}.{}", name, tensor.name));
      tensors_.push_back(tensor);
    }
  }
  return index_tensors();
}

Result<ModelFiles> ModelFiles::from_gguf(std::vector<GgufFile> parts) {
  ASSERT(!parts.empty(), "a model of no files");
  TRY(check_parts(parts));
  ModelFiles files;
  files.parts_ = std::move(parts);
  files.source_ = files.parts_.front().source();
  for (const GgufFile& part : files.parts_) {
    files.file_bytes_ += part.file_bytes();
    for (const GgufTensor& tensor : part.tensors()) files.tensors_.push_back(file_tensor(tensor));
  }
  TRY(files.index_tensors());
  return files;
}

Result<ModelFiles> ModelFiles::from_gguf(GgufFile file) {
  std::vector<GgufFile> parts;
  parts.push_back(std::move(file));
  return from_gguf(std::move(parts));
}

Result<ModelFiles> ModelFiles::from_hugging_face(HfConfig config, std::vector<SafetensorsFile> shards) {
  ModelFiles files;
  files.source_ = config.source();
  files.config_ = std::move(config);
  files.shards_ = std::move(shards);
  for (const SafetensorsFile& shard : files.shards_) {
    files.file_bytes_ += shard.file_bytes();
    files.tensors_.insert(files.tensors_.end(), shard.tensors().begin(), shard.tensors().end());
  }
  files.joined_ = TRY(join_quantized(*files.config_, files.tensors_));
  TRY(files.index_tensors());
  return files;
}

Result<> ModelFiles::add_projector(GgufFile projector) {
  if (format() != ModelFormat::kGguf) {
    return fail(
        ErrorCode::kUnsupportedFormatVersion,
        fmt::format("{} is a Hugging Face directory, which holds its vision tower; a projector file goes with a "
                    "GGUF model",
                    source_));
  }
  if (TRY(projector.string("general.architecture")) != "clip") {
    return fail(ErrorCode::kUnsupportedFormatVersion,
                fmt::format("{} is no projector: its general.architecture is not 'clip'", projector.source()));
  }
  projector_ = std::move(projector);
  file_bytes_ += projector_->file_bytes();
  for (const GgufTensor& tensor : projector_->tensors()) tensors_.push_back(file_tensor(tensor));
  return index_tensors();
}

Result<> ModelFiles::index_tensors() {
  names_sorted_.resize(tensors_.size());
  std::iota(names_sorted_.begin(), names_sorted_.end(), 0u);
  std::sort(names_sorted_.begin(), names_sorted_.end(),
            [&](auto a, auto b) { return tensors_[a].name < tensors_[b].name; });
  const auto duplicate = std::adjacent_find(names_sorted_.begin(), names_sorted_.end(),
                                            [&](auto a, auto b) { return tensors_[a].name == tensors_[b].name; });
  if (duplicate == names_sorted_.end()) return {};
  return fail(ErrorCode::kCorruptFile, fmt::format("{}: the tensor {} lies in two of the model's files", source_,
                                                   printable(tensors_[*duplicate].name)));
}

const FileTensor* ModelFiles::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(names_sorted_.begin(), names_sorted_.end(), name,
                                   [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != names_sorted_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

}  // namespace llorch::engine::io
