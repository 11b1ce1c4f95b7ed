#include "engine/io/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/file.h"
#include "engine/io/stored_file.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

// Of a Hugging Face directory, beside the weights: all that a model's behaviour is read from.
constexpr std::string_view kSideFiles[] = {kHfConfigName,
                                           kPoolingName,
                                           kLogitScoreName,
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "generation_config.json",
                                           "special_tokens_map.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           kImageProcessorName,
                                           kProcessorName};

tl::unexpected<base::Error> too_many(const std::filesystem::path& path, std::size_t count) {
  return fail(ErrorCode::kCorruptFile,
              fmt::format("{}: the model has {} files, the limit is {}", path.string(), count, kModelFilesMax));
}

// Five digits.
std::optional<std::uint32_t> part_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.size() != 5 || ec != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

bool has_gguf_name(const std::filesystem::path& path) {
  constexpr std::string_view kEnd = ".gguf";
  return std::ranges::equal(path.extension().string(), kEnd,
                            [](unsigned char a, char b) { return std::tolower(a) == b; });
}

std::optional<GgufPartName> gguf_part_name(const std::filesystem::path& path) {
  constexpr std::string_view kPattern = "-00001-of-00001.gguf";
  const std::string name = path.filename().string();
  if (name.size() <= kPattern.size()) return {};
  const std::string_view end = std::string_view(name).substr(name.size() - kPattern.size());
  const auto number = part_number(end.substr(1, 5)), count = part_number(end.substr(10, 5));
  if (end.front() != '-' || end.substr(6, 4) != "-of-" || !end.ends_with(".gguf") || !number || !count) return {};
  if (*number < 1 || *number > *count) return {};
  return GgufPartName{.stem = name.substr(0, name.size() - kPattern.size()), .number = *number, .count = *count};
}

std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& path, const GgufPartName& name) {
  std::vector<std::filesystem::path> parts;
  for (std::uint32_t i = 1; i <= name.count; ++i) {
    parts.push_back(path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name.stem, i, name.count));
  }
  return parts;
}

bool is_present(const std::filesystem::path& path) {
  std::error_code ec;
  return std::filesystem::symlink_status(path, ec).type() != std::filesystem::file_type::not_found;
}

bool is_of_hf_model(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::string_view directory = name.substr(0, slash == std::string_view::npos ? 0 : slash);
  const std::string_view file = name.substr(slash + 1);
  if (std::ranges::find(kSideFiles, name) != std::end(kSideFiles) || name == kSafetensorsIndexName) return true;
  if (directory.empty()) return file.ends_with(".safetensors");
  if (directory == kMoreTemplatesDirectory) return file.ends_with(".jinja");
  const bool is_dense = std::ranges::find(kDenseNames, directory) != kDenseNames.end();
  return is_dense && (file == kHfConfigName || file == kSafetensorsName);
}

Result<std::vector<ModelFile>> more_chat_templates(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::vector<ModelFile> files;
  const fs::path templates = directory / kMoreTemplatesDirectory;
  if (!is_present(templates)) return files;
  std::error_code ec;
  for (fs::directory_iterator it(templates, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const fs::path& path = it->path();
    if (path.extension() != ".jinja") continue;
    if (files.size() >= kModelFilesMax) return too_many(templates, files.size() + 1);
    files.push_back({fmt::format("{}/{}", kMoreTemplatesDirectory, path.filename().string()), path});
  }
  if (ec) return fail(base::io_error("cannot list", templates, ec.value()));
  std::ranges::sort(files, {}, &ModelFile::name);  // directories have no order of their own
  return files;
}

Result<SafetensorsIndex> safetensors_of(const std::filesystem::path& directory) {
  if (is_present(directory / kSafetensorsName)) return SafetensorsIndex{.files = {std::string(kSafetensorsName)}};
  const auto index = directory / kSafetensorsIndexName;
  if (!is_present(index)) {
    return fail(ErrorCode::kUnsupportedFormatVersion,
                fmt::format("{} has neither {} nor {}; give a GGUF file or a Hugging Face model saved as safetensors",
                            directory.string(), kSafetensorsName, kSafetensorsIndexName));
  }
  SafetensorsIndex parsed =
      TRY(SafetensorsIndex::parse(TRY(read_text_file(index, SafetensorsLimits().header_bytes_max)), index.string()));
  if (parsed.files.size() > kModelFilesMax) return too_many(index, parsed.files.size());
  return parsed;
}

Result<std::vector<ModelFile>> model_file_list(const std::filesystem::path& path) {
  std::vector<ModelFile> files;
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    const SafetensorsIndex weights = TRY(safetensors_of(path));
    for (const auto& name : weights.files) files.push_back({name, path / name});
    for (const auto& name : kSideFiles) files.push_back({std::string(name), path / name});
    for (const auto& name : kDenseNames) {
      if (!is_present(path / name)) continue;
      for (const auto& file : {kHfConfigName, kSafetensorsName})
        files.push_back({fmt::format("{}/{}", name, file), path / name / file});
    }
    if (!weights.holds.empty()) files.push_back({std::string(kSafetensorsIndexName), path / kSafetensorsIndexName});
    std::erase_if(files, [](const ModelFile& file) {
      return file.name != kHfConfigName && !file.name.ends_with(".safetensors") && !is_present(file.path);
    });
    for (ModelFile& file : TRY(more_chat_templates(path))) files.push_back(std::move(file));
    std::ranges::sort(files, {}, &ModelFile::name);
  } else if (const auto part = gguf_part_name(path); part && part->count > 1) {
    if (part->count > kModelFilesMax) return too_many(path, part->count);
    for (const auto& file : gguf_parts(path, *part)) {
      files.push_back({fmt::format("{:05}-of-{:05}.gguf", files.size() + 1, part->count), file});
    }
  } else {
    files.push_back({path.filename().string(), path});
  }
  return files;
}

}  // namespace llorch::engine::io
