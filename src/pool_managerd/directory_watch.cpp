#include "pool_managerd/directory_watch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"
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

wire::WatchedModel entry(const fs::path& path, std::string stamp) {
  return {.model_id = name_of(path), .model_ref = "file:" + path.string(), .stamp = std::move(stamp)};
}

// As the path of what lies in it has it.
fs::path without_slash(const fs::path& directory) { return (directory / "").parent_path(); }

// Any other error says nothing of whether the path is there.
bool is_absent(const std::error_code& ec) {
  return ec == std::errc::no_such_file_or_directory || ec == std::errc::not_a_directory ||
         ec == std::errc::too_many_symbolic_link_levels || ec == std::errc::filename_too_long;
}

bool is_whole(const fs::path& model) {
  const auto files = engine::io::model_file_list(model);
  return files && std::ranges::none_of(*files, [](const engine::io::ModelFile& file) {
           std::error_code ec;
           (void)fs::status(file.path, ec);
           return is_absent(ec);
         });
}

}  // namespace

std::vector<wire::WatchedModel> DirectoryWatch::look() {
  Files now;
  for (const fs::path& directory : options_.directories) look_into(directory, now);
  seen_ = std::move(now);
  return models();
}

std::vector<wire::WatchedModel> DirectoryWatch::models() const {
  std::vector<wire::WatchedModel> out;
  for (const fs::path& directory : options_.directories) {
    if (!read_.contains(directory)) out.push_back(entry(without_slash(directory), ""));
  }
  for (const auto& [file, seen] : seen_) {
    if (out.size() >= kWatchedModelsMax) break;
    if (!seen.is_checked || !seen.stamp.empty()) out.push_back(entry(file, seen.stamp));
  }
  return out;
}

void DirectoryWatch::look_into(const fs::path& directory, Files& now) {
  std::error_code ec;
  for (fs::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) look_at(it->path(), now);
  if (!ec || is_absent(ec)) {
    read_.insert(directory);
    failing_.erase(directory);
    return;
  }
  for (const auto& [file, seen] : seen_) {
    if (file.parent_path() == without_slash(directory)) now.emplace(file, seen);
  }
  if (!failing_.insert(directory).second) return;
  base::log_event(base::LogLevel::kWarn, "watched_directory_unreadable", {},
                  "A watched directory cannot be read, its models keep their names: " + ec.message(),
                  {{"directory", directory.string()}});
}

void DirectoryWatch::look_at(const fs::path& file, Files& now) {
  const auto part = engine::io::gguf_part_name(file);
  if (file.extension() != ".gguf" || file.filename().string().starts_with('.') || (part && part->number != 1)) return;
  if (now.size() >= kWatchedModelsMax || !base::is_valid_utf8(file.string())) return;
  std::error_code ec;
  const bool is_file = fs::is_regular_file(file, ec);
  if (is_absent(ec) || (!ec && !is_file)) return;
  const auto before = seen_.find(file);
  auto state = engine::io::model_stamp(file);
  if (ec || !state) {
    if (is_whole(file)) now.emplace(file, before == seen_.end() ? Seen{} : before->second);
    return;
  }
  Seen seen{.state = *std::move(state)};
  const bool has_stayed = before != seen_.end() && before->second.state == seen.state;
  if (has_stayed) {
    seen = before->second;
    if (!seen.is_checked) check(file, seen);
  } else if (before != seen_.end()) {
    seen.stamp = before->second.stamp;
  }
  now.emplace(file, std::move(seen));
}

void DirectoryWatch::check(const fs::path& file, Seen& seen) const {
  const auto checked = options_.check(file);
  seen.is_checked = checked || checked.error().code != base::ErrorCode::kIoError;
  if (seen.is_checked) seen.stamp = checked ? seen.state : "";
  if (checked || std::exchange(seen.is_told, true)) return;
  base::log_event(base::LogLevel::kWarn, "watched_file_refused", {},
                  "A file in a watched directory cannot be used as a model: " + checked.error().message,
                  {{"file", file.filename().string()}, {"error_code", checked.error().name()}});
}

}  // namespace llorch::pool_managerd
