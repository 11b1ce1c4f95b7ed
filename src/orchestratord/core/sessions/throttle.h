#pragma once
// How much one tenant may submit per second: a token bucket for requests and one for tokens (ORCH-3006). Pure.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace llorch::orchestratord::core::sessions {

// Amounts are counted in millionths, so that rates below one per second are exact to the millisecond.
class Throttle {
  struct Rate {
    std::int64_t micro_per_ms = 0;  // 0: no limit
    std::int64_t burst_micro = 0;
  };
  struct Rates {
    Rate requests, tokens;
  };
  struct Bucket {
    std::int64_t level_micro = 0;  // below zero after a job larger than the burst
    std::int64_t filled_ms = 0;
  };

 public:
  // What one tenant may submit, as it is now and, if nothing is taken, later.
  class Standing {
   public:
    // Why a submission of this many tokens does not pass. `counted`: it has been counted as a request.
    std::optional<base::Error> refusal(std::int64_t tokens, std::int64_t now_ms, bool counted = false) const;

   private:
    friend class Throttle;
    Rates rates_;
    Bucket requests_, tokens_;
  };

  explicit Throttle(const config::ThrottleConfig& everybody, const std::vector<config::TenantConfig>& tenants = {});
  // Other limits from now on. What a tenant has left of a rate it keeps, up to the new burst; of one that it did not have it
  // has all.
  void set_limits(const config::ThrottleConfig& everybody, const std::vector<config::TenantConfig>& tenants,
                  std::int64_t now_ms);

  // A submission of this many tokens arrives. QUOTA_EXCEEDED with policy_label and retry_after_ms, or it counts as a
  // request, once. A job larger than the whole burst passes when the bucket is full.
  std::optional<base::Error> arrives(const std::string& tenant, std::int64_t tokens, std::int64_t now_ms,
                                     bool counted = false);
  // It was accepted: its tokens count.
  void accepted(const std::string& tenant, std::int64_t tokens, std::int64_t now_ms);
  // A copy for other threads. Absent: the tenant has no limit, or never came.
  std::optional<Standing> standing(const std::string& tenant) const;
  // Of everybody who ever came.
  void add_accounts(std::set<std::string>& out) const;

 private:
  static Rates rates_of(const config::ThrottleConfig& config);
  const Rates& rates_of(const std::string& name) const;
  static Rate rate_of(double per_second, double burst_seconds);
  static void fill(Bucket& bucket, const Rate& rate, std::int64_t now_ms);
  // How long until `amount` may pass; 0: now.
  static std::int64_t wait_ms(const Bucket& bucket, const Rate& rate, std::int64_t amount);
  Standing& standing_at(const std::string& name, std::int64_t now_ms);

  Rates everybody_;
  std::map<std::string, Rates> rates_;       // of those with their own
  std::map<std::string, Standing> tenants_;  // as many as tokens were ever known, and callers without one
};

}  // namespace llorch::orchestratord::core::sessions
