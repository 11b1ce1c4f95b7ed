#pragma once
// The configuration as a reload left it. What no reload changes may be read from Context::config as well.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "config/config.h"

namespace llorch::orchestratord::http {

// Thread-safe. Who has a snapshot keeps it as it is; the next look may find another.
class LiveConfig {
 public:
  using Snapshot = std::shared_ptr<const config::Config>;

  explicit LiveConfig(config::Config config) { set(std::move(config)); }

  void set(config::Config config) {
    const config::OrchestratordConfig& c = config.orchestratord;
    const auto limits = [](const config::ThrottleConfig& rates) {
      return rates.requests_per_second > 0 || rates.tokens_per_second > 0;
    };
    limits_rates_ = limits(c.throttle) || std::ranges::any_of(c.tenants, [&](const config::TenantConfig& tenant) {
                      return tenant.throttle && limits(tenant.throttle->over(c.throttle));
                    });
    auto next = std::make_shared<const config::Config>(std::move(config));
    const std::lock_guard lock(mutex_);
    snapshot_ = std::move(next);
  }
  Snapshot get() const {
    const std::lock_guard lock(mutex_);
    return snapshot_;
  }
  // Whether anybody's requests are counted at all.
  bool limits_rates() const { return limits_rates_; }

 private:
  mutable std::mutex mutex_;
  Snapshot snapshot_;
  std::atomic<bool> limits_rates_{false};
};

}  // namespace llorch::orchestratord::http
