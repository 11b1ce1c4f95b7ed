#pragma once
// Who may take how much: throttles, quotas and the budgets of sessions. A job reserves all it may take before it is
// enqueued, and is charged what it took once its end is durable.

#include "orchestratord/core/jobs/jobs.h"
#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/core/sessions/session_table.h"
#include "orchestratord/core/sessions/throttle.h"

namespace llorch::orchestratord::core {

class Ledger : Owner {
 public:
  Ledger(Env& env, Commits& commits, const pools::PoolRegistry& registry)
      : Owner(env), commits_(commits), registry_(registry) {}

  void on(CountArrival& e);
  void on(OpenSession& e);
  void on(QuerySession& e);
  void on(QuerySessions& e);
  void on(CloseSession& e);
  void session_committed(const PendingSession& pending);
  void session_commit_failed(const PendingSession& pending);
  void expire_sessions();
  std::int64_t next_expiry_ms() const { return sessions_.next_expiry_ms(); }
  void restore(std::vector<sessions::RestoredSession> sessions, const std::vector<sessions::TenantUse>& tenants);
  // Of everybody, from now on; those who are looked up on copies are told.
  void set_limits(const SetLimits& limits);
  // Where work begins the caller's part of a refusal is asked of copies; told when one of them is out of date.
  void publish_standing(const std::string& tenant_id) const;

  // A submission arrives, whatever becomes of it; and why it may not be enqueued.
  std::optional<base::Error> arrives(const Submit& e);
  std::optional<base::Error> refusal(const jobs::JobSpec& spec) const;
  // REQUIRES: neither refuses it.
  void reserve(Job& job);
  void reserve_again(Job& job, std::optional<std::int64_t> session_key);  // after a restart
  void withdraw(const Job& job);                                          // it was not enqueued after all
  void settle(const Job& job);

  // Decode time a job is charged: what its worker measured, else how long the attempt ran that was cut off.
  std::int64_t time_taken_ms(const Job& job, const Outcome& outcome) const;
  struct RunLimit {
    std::int64_t timeout_ms = 0;
    bool is_session = false;  // what was left of a session's time
  };
  RunLimit run_limit(const Job& job) const;
  const sessions::Session* session_of(const Job& job) const;
  wire::BudgetRemaining remaining(const Job& job) const;
  std::optional<sessions::Share> share(const Job& job, const base::WorkerId& worker_id) const;

  // How many jobs of a tenant run at a time. `concurrent_max` 0: as many as come.
  std::int64_t concurrent_max(const std::string& tenant) const { return quotas_.concurrent_max(tenant); }
  std::int64_t running(const std::string& tenant) const { return quotas_.running(tenant); }
  bool may_run(const std::string& tenant) const { return tenant.empty() || quotas_.may_run(tenant); }
  void began(const Execution& execution) { quotas_.began(execution.tenant_id); }
  void ended(const Execution& execution) { quotas_.ended(execution.tenant_id); }

  void verify(const Jobs& jobs) const;

 private:
  sessions::Demand demand(const jobs::JobSpec& spec) const;
  wire::SessionView view(const sessions::Session& session) const;
  void end_session(std::int64_t key);
  static std::int64_t tokens_most(const jobs::JobSpec& spec) {
    return spec.charged ? 0 : spec.tokens_in + spec.max_tokens;
  }

  Commits& commits_;
  const pools::PoolRegistry& registry_;
  sessions::SessionTable sessions_{config_.sessions, config_.tenants.size()};
  sessions::Throttle throttle_{config_.throttle, config_.tenants};
  sessions::QuotaTable quotas_{config_.quotas, config_.tenants, config_.former_tenants};
};

}  // namespace llorch::orchestratord::core
