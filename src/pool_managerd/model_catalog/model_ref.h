#pragma once
// Finds the model of this host that a normalised model reference names.
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::pool_managerd::model_catalog {

// The .gguf file or Hugging Face directory behind "file:/absolute/path", with symlinks resolved. MODEL_NOT_FOUND with
// details.reason: "scheme" (not file:), "syntax" (not an absolute path), "missing", "not_readable" or
// "outside_allowed_roots" (where the *resolved* path lies counts, so a link cannot lead out; links inside a directory may, as
// the cache of the Hugging Face tools is made of them).
base::Result<std::filesystem::path> resolve_model_file(std::string_view model_ref,
                                                       const std::vector<std::filesystem::path>& allowed_roots);

}  // namespace llorch::pool_managerd::model_catalog
