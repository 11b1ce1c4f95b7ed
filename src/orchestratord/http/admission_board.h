#pragma once
// Copies of the limits that refuse a submission whatever is in it: quotas, budgets, a full queue. The core publishes
// them; any thread may ask the board before it works on a submission. The board refuses nothing that the core would
// accept: the end of a limit is published within the step that ends it.
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "orchestratord/core/answers.h"
#include "wire/task.h"

namespace llorch::orchestratord::http {

// Thread-safe; every member holds the lock for a look-up only.
class AdmissionBoard {
 public:
  void set(core::PublishStanding standing);
  void set(core::PublishQueueRoom room);

  struct Newcomer {
    const std::string& account;
    bool is_tenant = false;
    // Bounds of what it asks for. Before its body is read: at least a prompt of one token and an answer of one.
    core::sessions::QuotaTable::Standing::Tokens tokens{.at_least = 2, .at_most = 2};
    wire::Priority priority = wire::Priority::kInteractive;
    bool counted = false;  // as a request of the throttle
  };
  // The error that the core would give: QUOTA_EXCEEDED, BUDGET_EXCEEDED or QUEUE_FULL, looked for in its order.
  std::optional<base::Error> refusal(const Newcomer& newcomer, base::Time now) const;
  // The error that the core would give to work that becomes no job: QUOTA_EXCEEDED, of the throttle alone.
  std::optional<base::Error> arrival_refusal(const std::string& account, base::Time now) const;
  // Of the day's budget of this account; absent: it has none, or the core has told nothing of it yet, for it has used nothing.
  std::optional<std::int64_t> tokens_left(const std::string& account, base::Time now) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, core::sessions::Standing> standings_;  // of tenants with limits, as many as tokens are known
  core::PublishQueueRoom room_;
};

}  // namespace llorch::orchestratord::http
