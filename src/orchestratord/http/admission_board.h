#pragma once
// What the brain tells of limits that refuse a submission whatever is in it, where anybody may look at it before any work is
// done. It refuses nothing that the brain would take: a limit that has just let go is told within the step that let it go.
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "contract/task.h"
#include "orchestratord/brain/commands.h"

namespace llorch::orchestratord::api {

// Thread-safe; no member holds the lock for longer than a look takes.
class AdmissionBoard {
 public:
  void set(brain::PublishStanding standing);
  void set(brain::PublishQueueRoom room);

  struct Newcomer {
    const std::string& account;
    // What is known of it. Before its body is read that is nothing: a prompt of one token, one token of answer.
    sessions::QuotaTable::Standing::Tokens tokens{.at_least = 2, .at_most = 2};
    contract::Priority priority = contract::Priority::kInteractive;
  };
  // QUOTA_EXCEEDED, BUDGET_EXCEEDED, QUEUE_FULL, in the order, the words and with the numbers of the brain.
  std::optional<base::Error> refusal(const Newcomer& newcomer, base::Time now) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, sessions::Standing> standings_;  // of tenants with limits, as many as tokens are known
  brain::PublishQueueRoom room_;
};

}  // namespace llorch::orchestratord::api
