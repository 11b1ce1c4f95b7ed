#pragma once
// What a client's `model` means. Reads links of the file system, nothing else.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/config.h"

namespace llorch::orchestratord::catalog {

// Folders that file: references may point into.
struct AllowedRoots {
  std::vector<std::filesystem::path> folders;
};
// The model cache, models.allowed_roots and the folders named on the command line.
AllowedRoots allowed_roots(const contract::ModelsConfig& config, const std::vector<std::filesystem::path>& named);

// An alias or a file: reference as file:/canonical/path. Links are followed before the roots are checked. Errors:
// MODEL_NOT_FOUND (unknown alias, hf: which is not fetched yet), INVALID_PARAMS (relative path), FORBIDDEN (outside the
// roots). Whether the file exists is the pool's to say: it may be another host's.
base::Result<std::string> resolve_model_ref(std::string_view model, const std::map<std::string, std::string>& aliases,
                                            const AllowedRoots& roots);
// Among how many devices models.tensor_split shares what resolve_model_ref() made of a reference; 1: it says nothing of it.
std::int64_t devices_of(const std::string& model_ref, const contract::ModelsConfig& config, const AllowedRoots& roots);
// What models.timeout_ms says of it.
std::optional<std::int64_t> timeout_ms_of(const std::string& model_ref, const contract::ModelsConfig& config,
                                          const AllowedRoots& roots);

}  // namespace llorch::orchestratord::catalog
