#include "pool_managerd/model_catalog/model_ref.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "engine/io/model_layout.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

namespace fs = std::filesystem;

tl::unexpected<base::Error> not_found(std::string_view reason, std::string message) {
  return base::fail(
      base::Error{base::ErrorCode::kModelNotFound, std::move(message), {}}.with("reason", std::string(reason)));
}

bool lies_inside(const fs::path& file, const fs::path& directory) {
  const auto [in_directory, in_file] = std::mismatch(directory.begin(), directory.end(), file.begin(), file.end());
  return in_directory == directory.end() && in_file != file.end();
}

// Of a directory that is named without links, by its name alone: `file` has none.
bool lies_inside_as_named(const fs::path& file, const fs::path& root) {
  const bool goes_back = std::ranges::find(root, fs::path("..")) != root.end();
  return root.is_absolute() && !goes_back && lies_inside(file, (root / "").lexically_normal().parent_path());
}

}  // namespace

base::Result<fs::path> resolve_model_file(std::string_view model_ref, const std::vector<fs::path>& allowed_roots) {
  constexpr std::string_view kScheme = "file:";
  if (model_ref.starts_with("hf:")) {
    return not_found("scheme",
                     "this pool does not download hf: models; download the model and name it as "
                     "file:/absolute/path (a .gguf file or a Hugging Face directory)");
  }
  if (!model_ref.starts_with(kScheme)) {
    return not_found("scheme", "a model reference is file:/absolute/path here; aliases are resolved by orchestratord");
  }
  const fs::path named(model_ref.substr(kScheme.size()));
  if (!named.is_absolute()) return not_found("syntax", "a file: reference is an absolute path");
  std::error_code ec;
  const fs::path file = fs::canonical(named, ec);
  const bool directory = !ec && fs::is_directory(file, ec) && fs::is_regular_file(file / "config.json", ec);
  if (!directory && (ec || !fs::is_regular_file(file, ec) || !engine::io::has_gguf_name(file))) {
    return not_found(
        "missing",
        "there is no .gguf file and no Hugging Face directory (with a config.json) at this path, or a directory "
        "on the way to it cannot be read");
  }
  const auto leads_to_it = [&](const fs::path& root) {
    std::error_code root_ec;
    const fs::path resolved = fs::canonical(root, root_ec);
    return !root_ec && lies_inside(file, resolved);
  };
  // Names first: another directory may be of a mount that does not answer.
  const bool allowed =
      std::ranges::any_of(allowed_roots, [&](const fs::path& root) { return lies_inside_as_named(file, root); }) ||
      std::ranges::any_of(allowed_roots, leads_to_it);
  if (!allowed) {
    return not_found(
        "outside_allowed_roots",
        "the model file lies outside the directories models may come from; move it into the model cache or add "
        "its directory to models.allowed_roots");
  }
  if (access(file.c_str(), directory ? R_OK | X_OK : R_OK) != 0) {
    return not_found("not_readable", "the model file exists but pool-managerd may not read it; check its permissions");
  }
  return file;
}

}  // namespace llorch::pool_managerd::model_catalog
