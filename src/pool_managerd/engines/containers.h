#pragma once
// Containers that run engines. The runtime keeps one going when its worker or this daemon is killed, so each is written down before it can
// exist, and its record goes when the runtime no longer lists it.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::pool_managerd::engines {

struct Container {
  std::string runtime;  // absolute path of podman or docker
  std::string name;     // of letters, digits, - and _
};

// Kills it, removes it, and looks that the runtime lists it no more and that no process of podman watches over it. Blocks for up to a
// minute. Errors: IO_ERROR, it is there still or the runtime does not answer; TIMEOUT; CANCELLED, `stop` said so.
base::Result<> remove_container(const Container& container, const std::function<bool()>& stop = {});

// Files of one directory, a container each. Not thread-safe for one container.
class ContainerRecords {
 public:
  explicit ContainerRecords(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // On disk when it returns.
  base::Result<> add(const Container& container) const;
  void drop(const Container& container) const;
  std::vector<Container> all() const;

 private:
  const std::filesystem::path directory_;
};

}  // namespace llorch::pool_managerd::engines
