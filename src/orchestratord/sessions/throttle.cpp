#include "orchestratord/sessions/throttle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace llorch::orchestratord::sessions {
namespace {

constexpr std::int64_t kMicro = 1'000'000;

base::Error too_fast(std::string_view what, std::string_view key, std::int64_t retry_ms) {
  return base::Error{
      base::ErrorCode::kQuotaExceeded,
      fmt::format("This tenant submits more {} than its throttle.{} allows. Try again in {} ms.", what, key, retry_ms),
      {}}
      .with("policy_label", fmt::format("throttle.{}", key))
      .with("retry_after_ms", retry_ms);
}

}  // namespace

Throttle::Throttle(const contract::ThrottleConfig& everybody, const std::vector<contract::TenantConfig>& tenants)
    : everybody_(rates_of(everybody)) {
  for (const contract::TenantConfig& tenant : tenants) {
    if (tenant.throttle) rates_[tenant.id] = rates_of(*tenant.throttle);
  }
}

Throttle::Rates Throttle::rates_of(const contract::ThrottleConfig& config) {
  return {.requests = rate_of(config.requests_per_second, config.burst_seconds),
          .tokens = rate_of(config.tokens_per_second, config.burst_seconds)};
}

Throttle::Rate Throttle::rate_of(double per_second, double burst_seconds) {
  Rate rate;
  if (per_second <= 0) return rate;
  rate.micro_per_ms = std::max<std::int64_t>(1, std::llround(per_second * 1000));
  // At least one whole request fits, or nothing ever passed.
  rate.burst_micro = std::max<std::int64_t>(kMicro, std::llround(per_second * burst_seconds * kMicro));
  return rate;
}

void Throttle::fill(Bucket& bucket, const Rate& rate, std::int64_t now_ms) {
  if (rate.micro_per_ms == 0) return;
  const std::int64_t missing = rate.burst_micro - bucket.level_micro;
  const std::int64_t elapsed_ms = now_ms - bucket.filled_ms;
  bucket.filled_ms = now_ms;
  bucket.level_micro = elapsed_ms >= missing / rate.micro_per_ms + 1
                           ? rate.burst_micro
                           : std::min(rate.burst_micro, bucket.level_micro + elapsed_ms * rate.micro_per_ms);
}

std::int64_t Throttle::wait_ms(const Bucket& bucket, const Rate& rate, std::int64_t amount) {
  if (rate.micro_per_ms == 0) return 0;
  const std::int64_t missing = std::min(amount * kMicro, rate.burst_micro) - bucket.level_micro;
  return missing <= 0 ? 0 : (missing + rate.micro_per_ms - 1) / rate.micro_per_ms;
}

Throttle::Tenant& Throttle::tenant_at(const std::string& name, std::int64_t now_ms) {
  auto it = tenants_.find(name);
  if (it == tenants_.end()) {
    const auto own = rates_.find(name);
    const Rates& rates = own == rates_.end() ? everybody_ : own->second;
    it = tenants_.emplace(name, Tenant{rates, {rates.requests.burst_micro, now_ms}, {rates.tokens.burst_micro, now_ms}})
             .first;
  }
  Tenant& tenant = it->second;
  fill(tenant.requests, tenant.rates.requests, now_ms);
  fill(tenant.tokens, tenant.rates.tokens, now_ms);
  return tenant;
}

std::optional<base::Error> Throttle::arrives(const std::string& name, std::int64_t tokens, std::int64_t now_ms) {
  Tenant& tenant = tenant_at(name, now_ms);
  if (const std::int64_t wait = wait_ms(tenant.requests, tenant.rates.requests, 1)) {
    return too_fast("requests", "requests_per_second", wait);
  }
  if (const std::int64_t wait = wait_ms(tenant.tokens, tenant.rates.tokens, tokens)) {
    return too_fast("tokens", "tokens_per_second", wait);
  }
  if (tenant.rates.requests.micro_per_ms > 0) tenant.requests.level_micro -= kMicro;
  return std::nullopt;
}

void Throttle::accepted(const std::string& name, std::int64_t tokens, std::int64_t now_ms) {
  Tenant& tenant = tenant_at(name, now_ms);
  if (tenant.rates.tokens.micro_per_ms > 0) tenant.tokens.level_micro -= tokens * kMicro;
}

}  // namespace llorch::orchestratord::sessions
