#pragma once
// Which files make a stored model.
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/io/huggingface/safetensors.h"

namespace llorch::engine::io {

inline constexpr std::string_view kHfConfigName = "config.json";
inline constexpr std::string_view kImageProcessorName = "preprocessor_config.json";
inline constexpr std::string_view kProcessorName = "processor_config.json";
// Of models of embeddings, as Sentence Transformers saves them.
inline constexpr std::string_view kPoolingName = "1_Pooling/config.json";
inline constexpr std::array<std::string_view, 2> kDenseNames{"2_Dense", "3_Dense"};
// Of models that score by the answers they would give, as Sentence Transformers saves them.
inline constexpr std::string_view kLogitScoreName = "1_LogitScore/config.json";
inline constexpr std::string_view kSafetensorsName = "model.safetensors";
inline constexpr std::string_view kSafetensorsIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kMoreTemplatesDirectory = "additional_chat_templates";

// Files of one model; the largest in use have about 200. Each takes a descriptor while the model is open.
inline constexpr std::size_t kModelFilesMax = 1'000;

// NAME.gguf, in any case: file systems of other systems have no case.
bool has_gguf_name(const std::filesystem::path& path);

// What the name NAME-00002-of-00003.gguf says: part 2 of 3.
struct GgufPartName {
  std::string stem;  // "NAME"
  std::uint32_t number = 1;
  std::uint32_t count = 1;
};
// Absent when `path` is named otherwise, or impossibly (part 4 of 3).
std::optional<GgufPartName> gguf_part_name(const std::filesystem::path& path);
// All parts of the model that `path` is one of, first to last, whether they exist or not.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& path, const GgufPartName& name);

struct ModelFile {
  std::string name;  // that it goes by in the model, not on this disk
  std::filesystem::path path;
};

// Every file whose bytes decide what the model at `path` says, sorted by name: a GGUF file as itself; the parts of a split
// one as 00001-of-00003.gguf and so on; of a Hugging Face directory the weights, their index, config.json and what the
// tokenizer, chat templates, generation defaults, image preprocessing and pooling are read from, as far as they are there.
// Errors: IO_ERROR; those of SafetensorsIndex::parse; UNSUPPORTED_FORMAT_VERSION (a directory without safetensors);
// CORRUPT_FILE (more than kModelFilesMax).
base::Result<std::vector<ModelFile>> model_file_list(const std::filesystem::path& path);

// Whether a file of this name, relative to a Hugging Face directory, is of that list where the weights' index names it: what to fetch of
// a repository.
bool is_of_hf_model(std::string_view name);

// Whether a directory has an entry of this name: also a link that leads nowhere, which is an error to read and not an absent file.
bool is_present(const std::filesystem::path& path);

// The *.jinja files of a Hugging Face directory's kMoreTemplatesDirectory, sorted by name. Errors: IO_ERROR; CORRUPT_FILE (more than
// kModelFilesMax).
base::Result<std::vector<ModelFile>> more_chat_templates(const std::filesystem::path& directory);

// The weights of a Hugging Face directory: model.safetensors, with no tensor named, else what model.safetensors.index.json says.
base::Result<SafetensorsIndex> safetensors_of(const std::filesystem::path& directory);

}  // namespace llorch::engine::io
