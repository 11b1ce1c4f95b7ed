#include "pool_managerd/directory_watch.h"

#include <utility>

#include "base/log.h"
#include "engine/io/model_digest.h"
#include "engine/io/model_layout.h"
#include "pool_managerd/provisioner/sources/source.h"

namespace llorch::pool_managerd {
namespace {

namespace fs = std::filesystem;

// What a request can name: a file's name without its extension, and of a split model without its part.
std::string name_of(const fs::path& file) {
  const auto part = engine::io::gguf_part_name(file);
  return provisioner::sources::safe_file_name(part ? part->stem : file.stem().string());
}

}  // namespace

std::vector<wire::WatchedModel> DirectoryWatch::look() {
  std::map<fs::path, Seen> now;
  for (const fs::path& directory : options_.directories) {
    std::error_code ec;
    for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) look_at(it->path(), now);
  }
  seen_ = std::move(now);
  std::vector<wire::WatchedModel> out;
  for (const auto& [file, seen] : seen_) {
    if (seen.stamp.empty()) continue;
    out.push_back({.model_id = name_of(file), .model_ref = "file:" + file.string(), .stamp = seen.stamp});
  }
  return out;
}

void DirectoryWatch::look_at(const fs::path& file, std::map<fs::path, Seen>& now) {
  std::error_code ec;
  const auto part = engine::io::gguf_part_name(file);
  if (file.extension() != ".gguf" || file.filename().string().starts_with('.') || (part && part->number != 1)) return;
  if (now.size() >= kWatchedModelsMax || !fs::is_regular_file(file, ec)) return;
  auto state = engine::io::model_stamp(file);
  if (!state) return;
  Seen seen{.state = *std::move(state)};
  const auto before = seen_.find(file);
  const bool has_stayed = before != seen_.end() && before->second.state == seen.state;
  if (before != seen_.end()) seen.stamp = before->second.stamp;
  if (has_stayed) seen.is_checked = before->second.is_checked;
  if (has_stayed && !seen.is_checked) {
    seen.is_checked = true;
    seen.stamp = seen.state;
    if (const auto checked = options_.check(file); !checked) {
      seen.stamp.clear();
      base::log_event(base::LogLevel::kWarn, "watched_file_refused", {},
                      "A file in a watched directory cannot be used as a model: " + checked.error().message,
                      {{"file", file.filename().string()}, {"error_code", checked.error().name()}});
    }
  }
  now.emplace(file, seen);
}

}  // namespace llorch::pool_managerd
