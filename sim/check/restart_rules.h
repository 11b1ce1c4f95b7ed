#pragma once
// What the brain gets back after a restart is what it had committed: of every job the whole specification, its status, its
// attempts, the version of the worker that last began it, its session. Part of the oracle.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/brain/commands.h"
#include "orchestratord/brain/events.h"

namespace llorch::sim {

class Oracle;

class RestartRules {
 public:
  explicit RestartRules(Oracle& oracle) : oracle_(oracle) {}

  void heard(const orchestratord::brain::Event& event);
  void commanded(const orchestratord::brain::Command& command);

 private:
  struct Progress {
    contract::JobStatus status = contract::JobStatus::kQueued;
    std::int64_t attempts = 0;
    std::string worker_version;
    bool operator==(const Progress&) const = default;
  };
  struct Known {
    orchestratord::jobs::JobSpec spec;
    std::optional<std::int64_t> session_key;
    Progress told;                 // by the brain
    std::vector<Progress> may_be;  // on disk: the last that was answered, and what was told since
  };
  void check(const orchestratord::jobs::RestoredJob& job);

  Oracle& oracle_;
  std::map<std::string, Known> jobs_;
  std::map<std::uint64_t, std::pair<std::string, Progress>> open_;  // by commit
};

}  // namespace llorch::sim
