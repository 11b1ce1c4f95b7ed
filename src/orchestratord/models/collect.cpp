#include "orchestratord/models/collect.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace llorch::orchestratord::models {
namespace {

// The names of one file.
struct File {
  std::vector<wire::NamedModel> names;
  std::int64_t used_unix_ms = 0;
  std::int64_t size_bytes = 0;
  bool may_go = true;
};

}  // namespace

std::vector<wire::NamedModel> to_collect(std::vector<wire::NamedModel> models, const wire::CatalogGcRequest& wanted,
                                         std::int64_t now_unix_ms,
                                         const std::function<bool(const wire::NamedModel&)>& may_go) {
  std::map<std::string, File> by_ref;
  std::int64_t bytes = 0;
  for (wire::NamedModel& model : models) {
    File& file = by_ref[model.model_ref];
    if (file.names.empty()) bytes += model.size_bytes;
    file.size_bytes = model.size_bytes;
    file.used_unix_ms = std::max({file.used_unix_ms, model.used_unix_ms, model.created_unix_ms});
    file.may_go = file.may_go && may_go(model);
    file.names.push_back(std::move(model));
  }
  std::vector<File> files;
  for (auto& [ref, file] : by_ref) files.push_back(std::move(file));
  std::stable_sort(files.begin(), files.end(),
                   [](const File& a, const File& b) { return a.used_unix_ms < b.used_unix_ms; });
  std::vector<wire::NamedModel> out;
  for (File& file : files) {
    const bool is_old = wanted.unused_ms && now_unix_ms - file.used_unix_ms >= *wanted.unused_ms;
    const bool is_too_much = wanted.bytes_max && bytes > *wanted.bytes_max;
    if (!file.may_go || (!is_old && !is_too_much)) continue;
    bytes -= file.size_bytes;
    std::move(file.names.begin(), file.names.end(), std::back_inserter(out));
  }
  return out;
}

}  // namespace llorch::orchestratord::models
