#pragma once
// Which models lie in the directories that are watched.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/pool.h"

namespace llorch::pool_managerd {

inline constexpr std::size_t kWatchedModelsMax = 1000;

struct DirectoryWatchOptions {
  std::vector<std::filesystem::path> directories;
  // Whether it is a model; asked anew whenever its file has changed.
  std::function<base::Result<>(const std::filesystem::path& model)> check;
};

// Used by one thread. Directories are read and not subscribed to: those of other machines tell nobody what happens in them.
class DirectoryWatch {
 public:
  explicit DirectoryWatch(DirectoryWatchOptions options) : options_(std::move(options)) {}

  // The models that are there, by reference: .gguf files, of a split model its first part. A file counts once it has stayed as it
  // is from one look to the next, for until then somebody may be writing it; what was a model stays one until then.
  std::vector<wire::WatchedModel> look();

 private:
  struct Seen {
    std::string state;        // a stamp of all files of the model
    bool is_checked = false;  // in this state
    std::string stamp;        // the last state in which it was a model; empty: it was none
  };
  void look_at(const std::filesystem::path& file, std::map<std::filesystem::path, Seen>& now);

  const DirectoryWatchOptions options_;
  std::map<std::filesystem::path, Seen> seen_;
};

}  // namespace llorch::pool_managerd
