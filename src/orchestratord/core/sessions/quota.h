#pragma once
// What one tenant may take: so many jobs at a time, so many tokens a day (SYS-9.3.2). Pure.
//
// Above the first a job waits; the second is checked before a job is enqueued. A job reserves all it may take and is
// charged what it took on the day that is open when it ends, so used + reserved <= budget whatever runs at once. Days are
// those of UTC.
//
// A clock may be wrong and be corrected. A step back over one midnight leaves the later day open: it refills nothing. After
// a longer one the earlier day is open again, with what it had used, or with what the later day had if that is forgotten;
// so a day that never came is not waited for. The last two days that were open are remembered: a clock that jumps there
// and back gives a tenant no more than one budget for each of the two.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "orchestratord/core/sessions/session.h"

namespace llorch::orchestratord::core::sessions {

// The tenant whose account (net::http::Principal) this is; empty: it is nobody's who is one.
std::string tenant_of(const std::string& account);
// Whether this is the account of a tenant that is none of `tenants`: one of an earlier configuration, of which
// accepted work is left.
bool is_former_tenant(const std::string& account, const std::vector<config::TenantConfig>& tenants);

class QuotaTable {
  struct Account {
    std::int64_t day = 0;
    std::int64_t used = 0;  // on that day
  };
  struct State {
    Account open, before;
    std::int64_t reserved = 0;
    std::int64_t running = 0;
    std::int64_t kept = 0;  // of those, what ran already when the limits last changed
    // The clock shows `day`.
    void turn_to(std::int64_t day);
  };

 public:
  // What one tenant may take today.
  class Standing {
   public:
    // Why a job that may take this many tokens is not to be enqueued. QUOTA_EXCEEDED: today's budget is used up or reserved.
    // BUDGET_EXCEEDED: no day's budget is enough.
    std::optional<base::Error> refusal(std::int64_t tokens, std::int64_t unix_ms) const;
    // The same for a job of which only bounds are known; absent unless every number within them gives the same code.
    struct Tokens {
      std::int64_t at_least = 0, at_most = 0;
    };
    std::optional<base::Error> refusal(const Tokens& tokens, std::int64_t unix_ms) const;
    // Of today's budget, what is neither used nor reserved; 0 at least.
    std::int64_t left(std::int64_t unix_ms) const;

   private:
    friend class QuotaTable;
    std::optional<base::Error> refusal(std::int64_t tokens, std::string_view how_many, std::int64_t unix_ms) const;
    std::int64_t budget_ = 0;
    State state_;
  };

  // `former_tenants`: their limits; absent: those of everybody.
  QuotaTable(const config::QuotaConfig& everybody, const std::vector<config::TenantConfig>& tenants,
             std::optional<config::QuotaConfig> former_tenants = std::nullopt);
  // Other limits from now on. What was used, is reserved and runs counts as it did; what runs above a limit runs on.
  void set_limits(const config::QuotaConfig& everybody, const std::vector<config::TenantConfig>& tenants,
                  std::optional<config::QuotaConfig> former_tenants);

  // Takes over what the store says tenants used on the day of `unix_ms`.
  void restore(const std::vector<TenantUse>& used, std::int64_t unix_ms);

  // As Standing::refusal.
  std::optional<base::Error> refusal(const std::string& tenant, std::int64_t tokens, std::int64_t unix_ms) const;
  // A copy for other threads. Absent: the tenant has no budget.
  std::optional<Standing> standing(const std::string& tenant) const;
  void reserve(const std::string& tenant, std::int64_t tokens);
  // A job for which reserve() was called was not enqueued after all.
  void withdraw(const std::string& tenant, std::int64_t tokens);
  // It ended at `ended_unix_ms`. REQUIRES: used <= reserved.
  struct Charge {
    std::int64_t reserved = 0, used = 0;
    std::int64_t ended_unix_ms = 0;
  };
  void settle(const std::string& tenant, const Charge& charge);

  // 0: no limit.
  std::int64_t concurrent_max(const std::string& tenant) const { return limits_of(tenant).max_concurrent_jobs; }
  bool may_run(const std::string& tenant) const;
  void began(const std::string& tenant);
  void ended(const std::string& tenant);

  std::int64_t running(const std::string& tenant) const;
  std::int64_t reserved(const std::string& tenant) const;
  // How many may run now: its limit, or those that were not ended by a lower one. 0: no limit.
  std::int64_t running_max(const std::string& tenant) const;
  // Of everybody who has used, reserved or run something.
  void add_accounts(std::set<std::string>& out) const;

 private:
  const config::QuotaConfig& limits_of(const std::string& tenant) const;
  const State& state_of(const std::string& tenant) const;
  State& state_on(const std::string& tenant, std::int64_t unix_ms);

  config::QuotaConfig everybody_;
  std::optional<config::QuotaConfig> former_tenants_;
  std::map<std::string, config::QuotaConfig> limits_;
  std::map<std::string, State> tenants_;  // as many as tokens were ever known, and callers without one
};

}  // namespace llorch::orchestratord::core::sessions
