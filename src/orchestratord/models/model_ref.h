#pragma once
// Turns a client's `model` into a model reference. Reads links of the file system, nothing else.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace llorch::orchestratord::models {

// Directories that file: references may point into.
struct AllowedRoots {
  std::vector<std::filesystem::path> directories;
};
// The model cache, models.allowed_roots, models.watched_directories and the directories named on the command line.
AllowedRoots allowed_roots(const config::ModelsConfig& config, const std::vector<std::filesystem::path>& named);

// An alias or a file: reference as file:/canonical/path. Links are followed before the roots are checked. Errors:
// MODEL_NOT_FOUND (unknown alias, hf: which is not fetched yet), INVALID_PARAMS (relative path), FORBIDDEN (outside the
// roots). Whether the file exists is the pool's to say: it may be another host's.
base::Result<std::string> resolve_model_ref(std::string_view model, const std::map<std::string, std::string>& aliases,
                                            const AllowedRoots& roots);
// How many devices a worker of the model uses, by models.tensor_split; 1 if it does not name the model, and of engines. `model_ref`
// comes from resolve_model_ref().
std::int64_t devices_of(const std::string& model_ref, const config::ModelsConfig& config, const AllowedRoots& roots);
// The model's limit in models.timeout_ms, if it has one.
std::optional<std::int64_t> timeout_ms_of(const std::string& model_ref, const config::ModelsConfig& config,
                                          const AllowedRoots& roots);
// The model's chat format in models.chat_format, if it has one there.
std::optional<std::string> chat_format_of(const std::string& model_ref, const config::ModelsConfig& config,
                                          const AllowedRoots& roots);

}  // namespace llorch::orchestratord::models
