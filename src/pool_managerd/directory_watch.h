#pragma once
// Which models lie in the directories that are watched.
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/pool.h"

namespace llorch::pool_managerd {

inline constexpr std::size_t kWatchedModelsMax = 1000;

struct DirectoryWatchOptions {
  std::vector<std::filesystem::path> directories;
  // Whether it is a model; asked anew whenever its file has changed, and after an IO_ERROR, which says nothing of the file.
  std::function<base::Result<>(const std::filesystem::path& model)> check;
};

// Used by one thread. Directories are read and not subscribed to: those of other machines tell nobody what happens in them.
class DirectoryWatch {
 public:
  explicit DirectoryWatch(DirectoryWatchOptions options) : options_(std::move(options)) {}

  // The models that are there, by reference: .gguf files, of a split model its first part. A file counts once it has stayed as it
  // is from one look to the next, for until then somebody may be writing it; what was a model stays one until then, and as long as
  // its file or directory is there and cannot be read.
  std::vector<wire::WatchedModel> look();
  // What the last look found; before the first one, that nothing is known. Without a stamp: a file of which it is not known whether
  // it is a model, and a directory of which it is not known what it holds.
  std::vector<wire::WatchedModel> models() const;

 private:
  struct Seen {
    std::string state;        // a stamp of all files of the model
    bool is_checked = false;  // in this state
    bool is_told = false;     // that this state cannot be used
    std::string stamp;        // the last state in which it was a model; empty: none is known
  };
  using Files = std::map<std::filesystem::path, Seen>;
  void look_into(const std::filesystem::path& directory, Files& now);
  void look_at(const std::filesystem::path& file, Files& now);
  void check(const std::filesystem::path& file, Seen& seen) const;

  const DirectoryWatchOptions options_;
  Files seen_;
  std::set<std::filesystem::path> read_;     // directories that could be read once
  std::set<std::filesystem::path> failing_;  // at the last look
};

}  // namespace llorch::pool_managerd
