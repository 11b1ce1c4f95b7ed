#pragma once
// What the core gets back after a restart is what it had committed: of every job the whole specification, its status, its
// attempts, the version of the worker that last began it, its session. Part of the oracle.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"

namespace llorch::sim {

class Oracle;

class RestartRules {
 public:
  explicit RestartRules(Oracle& oracle) : oracle_(oracle) {}

  void heard(const orchestratord::core::Event& event);
  void commanded(const orchestratord::core::Command& command);

 private:
  struct Progress {
    wire::JobStatus status = wire::JobStatus::kQueued;
    std::int64_t attempts = 0;
    std::string worker_version;
    bool operator==(const Progress&) const = default;
  };
  struct Known {
    orchestratord::core::jobs::JobSpec spec;
    std::optional<std::int64_t> session_key;
    Progress told;                 // by the core
    std::vector<Progress> may_be;  // on disk: the last that was answered, and what was told since
  };
  void check(const orchestratord::core::jobs::RestoredJob& job);

  Oracle& oracle_;
  std::map<std::string, Known> jobs_;
  std::map<std::uint64_t, std::pair<std::string, Progress>> open_;  // by commit
};

}  // namespace llorch::sim
