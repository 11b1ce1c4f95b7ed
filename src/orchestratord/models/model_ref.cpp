#include "orchestratord/models/model_ref.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "base/id.h"

namespace llorch::orchestratord::models {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;

constexpr std::string_view kFile = "file:";
constexpr std::string_view kEngine = "engine:";  // of another system; a pool knows which

tl::unexpected<base::Error> refuse(ErrorCode code, std::string_view reason, std::string message) {
  return base::fail(
      base::Error{code, std::move(message), {}}.with("field", "model").with("reason", std::string(reason)));
}

fs::path real_path(const fs::path& path) {
  std::error_code ec;
  fs::path out = fs::weakly_canonical(path, ec);
  return ec ? path.lexically_normal() : out;
}

bool is_below(const fs::path& path, const fs::path& directory) {
  const auto [in_directory, in_path] = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
  return in_directory == directory.end() && in_path != path.end();
}

}  // namespace

AllowedRoots allowed_roots(const config::ModelsConfig& config, const std::vector<fs::path>& named) {
  AllowedRoots roots;
  roots.directories.push_back(
      real_path(config.cache_dir.empty() ? base::default_model_cache() : fs::path(config.cache_dir)));
  for (const std::string& directory : config.allowed_roots) roots.directories.push_back(real_path(directory));
  for (const std::string& directory : config.watched_directories) roots.directories.push_back(real_path(directory));
  for (const fs::path& directory : named) roots.directories.push_back(real_path(directory));
  return roots;
}

base::Result<std::string> resolve_model_ref(std::string_view model, const std::map<std::string, std::string>& aliases,
                                            const AllowedRoots& roots) {
  const auto alias = aliases.find(std::string(model));
  const std::string_view ref = alias == aliases.end() ? model : std::string_view(alias->second);
  if (ref.starts_with("hf:")) {
    return refuse(ErrorCode::kModelNotFound, "hf",
                  "a job names a model that is here: fetch this one with `llorch pull` and the reference, then use the "
                  "name that `llorch ls` shows");
  }
  if (ref.starts_with(kEngine) && base::is_valid_identifier(ref.substr(kEngine.size()), 64)) return std::string(ref);
  if (!ref.starts_with(kFile)) {
    return refuse(ErrorCode::kModelNotFound, "unknown_alias",
                  "no model has this name: `llorch ls` and GET /v2/catalog/models list those that are here, `llorch "
                  "search` those that `llorch pull NAME` fetches; a file of this machine is file:/absolute/path");
  }
  const fs::path path(ref.substr(kFile.size()));
  if (!path.is_absolute()) {
    return refuse(ErrorCode::kInvalidParams, "relative_path",
                  "a file: reference needs an absolute path: file:/absolute/path");
  }
  const fs::path real = real_path(path);
  const bool allowed = std::any_of(roots.directories.begin(), roots.directories.end(),
                                   [&](const fs::path& directory) { return is_below(real, directory); });
  if (!allowed) {
    return refuse(
        ErrorCode::kForbidden, "outside_allowed_roots",
        "the file is outside the directories models may come from: add its directory to models.allowed_roots, or move "
        "the file into the model cache");
  }
  return fmt::format("file:{}", real.string());
}

namespace {
template <class Value>
std::optional<Value> value_of(const std::map<std::string, Value>& values, const std::string& model_ref,
                              const std::map<std::string, std::string>& aliases, const AllowedRoots& roots) {
  for (const auto& [name, value] : values) {
    const auto ref = resolve_model_ref(name, aliases, roots);
    if (ref && *ref == model_ref) return value;
  }
  return std::nullopt;
}
}  // namespace

std::int64_t devices_of(const std::string& model_ref, const config::ModelsConfig& config, const AllowedRoots& roots) {
  if (model_ref.starts_with(kEngine)) return 1;  // it spreads itself
  return value_of(config.tensor_split, model_ref, config.aliases, roots).value_or(1);
}

std::optional<std::int64_t> timeout_ms_of(const std::string& model_ref, const config::ModelsConfig& config,
                                          const AllowedRoots& roots) {
  return value_of(config.timeout_ms, model_ref, config.aliases, roots);
}

std::optional<std::string> chat_format_of(const std::string& model_ref, const config::ModelsConfig& config,
                                          const AllowedRoots& roots) {
  return value_of(config.chat_format, model_ref, config.aliases, roots);
}

}  // namespace llorch::orchestratord::models
