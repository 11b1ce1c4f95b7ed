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

bool is_below_any(const fs::path& path, const std::vector<fs::path>& directories) {
  return std::ranges::any_of(directories, [&](const fs::path& directory) { return is_below(path, directory); });
}

// Without a slash at its end, as paths of what lies in it have it.
fs::path spelled_path(const fs::path& directory) {
  std::error_code ec;
  const fs::path path = fs::absolute(directory, ec);
  return ((ec ? directory : path) / "").lexically_normal().parent_path();
}

std::string file_ref(const fs::path& path) { return fmt::format("{}{}", kFile, path.string()); }

tl::unexpected<base::Error> outside() {
  return refuse(
      ErrorCode::kForbidden, "outside_allowed_roots",
      "the file is outside the directories models may come from: add its directory to models.allowed_roots, or move "
      "the file into the model cache");
}

}  // namespace

AllowedRoots allowed_roots(const config::ModelsConfig& config, const std::vector<fs::path>& named) {
  AllowedRoots roots;
  const auto add = [&](const fs::path& directory) {
    roots.directories.push_back(real_path(directory));
    roots.spelled.push_back(spelled_path(directory));
  };
  add(config.cache_dir.empty() ? base::default_model_cache() : fs::path(config.cache_dir));
  for (const std::string& directory : config.allowed_roots) add(directory);
  for (const std::string& directory : config.watched_directories) add(directory);
  for (const fs::path& directory : named) add(directory);
  return roots;
}

base::Result<std::string> resolve_model_ref(std::string_view model, const std::map<std::string, std::string>& aliases,
                                            const AllowedRoots& roots, Links links) {
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
  const fs::path normal = path.lexically_normal();
  const bool is_spelled_below = is_below_any(normal, roots.directories) || is_below_any(normal, roots.spelled);
  if (links == Links::kLeave) {
    if (!is_spelled_below) return outside();
    return file_ref(normal);
  }
  if (alias == aliases.end() && !is_spelled_below) return outside();
  const fs::path real = real_path(path);
  if (!is_below_any(real, roots.directories)) return outside();
  return file_ref(real);
}

namespace {
// The names are the operator's, those that are references too: only where they lead counts.
template <class Value>
std::map<std::string, Value> by_reference(const std::map<std::string, Value>& values,
                                          const std::map<std::string, std::string>& aliases,
                                          const AllowedRoots& roots) {
  std::map<std::string, Value> out;
  for (const auto& [name, value] : values) {
    const auto alias = aliases.find(name);
    const auto ref = resolve_model_ref(name, {{name, alias == aliases.end() ? name : alias->second}}, roots);
    if (ref) out.emplace(*ref, value);
  }
  return out;
}

template <class Value>
std::optional<Value> value_of(const std::map<std::string, Value>& values, const std::string& model_ref) {
  const auto it = values.find(model_ref);
  return it == values.end() ? std::nullopt : std::optional(it->second);
}
}  // namespace

ModelSettings::ModelSettings(const config::ModelsConfig& config, const AllowedRoots& roots)
    : devices_(by_reference(config.tensor_split, config.aliases, roots)),
      timeout_ms_(by_reference(config.timeout_ms, config.aliases, roots)),
      chat_format_(by_reference(config.chat_format, config.aliases, roots)) {}

std::int64_t ModelSettings::devices(const std::string& model_ref) const {
  if (model_ref.starts_with(kEngine)) return 1;  // it spreads itself
  return value_of(devices_, model_ref).value_or(1);
}

std::optional<std::int64_t> ModelSettings::timeout_ms(const std::string& model_ref) const {
  return value_of(timeout_ms_, model_ref);
}

std::optional<std::string> ModelSettings::chat_format(const std::string& model_ref) const {
  return value_of(chat_format_, model_ref);
}

}  // namespace llorch::orchestratord::models
