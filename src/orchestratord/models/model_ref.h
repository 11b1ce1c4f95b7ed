#pragma once
// Turns a client's `model` into a model reference. Reads links of the file system below the allowed directories, nothing else.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace llorch::orchestratord::models {

// Directories that file: references may point into.
struct AllowedRoots {
  std::vector<std::filesystem::path> directories;  // canonical, found once
  std::vector<std::filesystem::path> spelled;      // the same as they were named
};
// The model cache, models.allowed_roots, models.watched_directories and the directories named on the command line.
AllowedRoots allowed_roots(const config::ModelsConfig& config, const std::vector<std::filesystem::path>& named);

enum class Links {
  kFollow,
  kLeave,  // as the reference is spelled: the file system is not asked
};
// An alias or a file: reference as file:/canonical/path. The path as it is spelled must lie below a root, or nobody looks where it leads
// (that could wait for a dead mount, or mount something); where it leads must lie below one, too. An alias is the operator's: only where
// it leads counts. Errors: MODEL_NOT_FOUND (unknown alias, hf: which is not fetched yet), INVALID_PARAMS (relative path), FORBIDDEN
// (outside the roots). Whether the file exists is the pool's to say: it may be another host's.
base::Result<std::string> resolve_model_ref(std::string_view model, const std::map<std::string, std::string>& aliases,
                                            const AllowedRoots& roots, Links links = Links::kFollow);

// What the configuration says of single models, whatever names it gives them. Links are followed once, in the constructor.
class ModelSettings {
 public:
  ModelSettings(const config::ModelsConfig& config, const AllowedRoots& roots);

  // `model_ref` comes from resolve_model_ref(). How many devices a worker of the model uses, by models.tensor_split; 1 if it does not
  // name the model, and of engines.
  std::int64_t devices(const std::string& model_ref) const;
  // The model's limit in models.timeout_ms, if it has one.
  std::optional<std::int64_t> timeout_ms(const std::string& model_ref) const;
  // The model's chat format in models.chat_format, if it has one there.
  std::optional<std::string> chat_format(const std::string& model_ref) const;

 private:
  std::map<std::string, std::int64_t> devices_, timeout_ms_;  // all by reference
  std::map<std::string, std::string> chat_format_;
};

}  // namespace llorch::orchestratord::models
