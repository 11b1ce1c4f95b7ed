#include "orchestratord/core/sessions/throttle.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace llorch::orchestratord::core::sessions {
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

Throttle::Throttle(const config::ThrottleConfig& everybody, const std::vector<config::TenantConfig>& tenants) {
  set_limits(everybody, tenants, 0);
}

void Throttle::set_limits(const config::ThrottleConfig& everybody, const std::vector<config::TenantConfig>& tenants,
                          std::int64_t now_ms) {
  everybody_ = rates_of(everybody);
  rates_.clear();
  for (const config::TenantConfig& tenant : tenants) {
    if (tenant.throttle) rates_[tenant.id] = rates_of(tenant.throttle->over(everybody));
  }
  const auto carry = [&](Bucket& bucket, const Rate& before, const Rate& after) {
    fill(bucket, before, now_ms);
    const std::int64_t level = before.micro_per_ms == 0 ? after.burst_micro : bucket.level_micro;
    bucket = {std::min(level, after.burst_micro), now_ms};
  };
  for (auto& [name, standing] : tenants_) {
    const Rates before = std::exchange(standing.rates_, rates_of(name));
    carry(standing.requests_, before.requests, standing.rates_.requests);
    carry(standing.tokens_, before.tokens, standing.rates_.tokens);
  }
}

const Throttle::Rates& Throttle::rates_of(const std::string& name) const {
  const auto own = rates_.find(name);
  return own == rates_.end() ? everybody_ : own->second;
}

void Throttle::add_accounts(std::set<std::string>& out) const {
  for (const auto& [name, standing] : tenants_) out.insert(name);
}

Throttle::Rates Throttle::rates_of(const config::ThrottleConfig& config) {
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
  const std::int64_t elapsed_ms = std::max<std::int64_t>(0, now_ms - bucket.filled_ms);
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

Throttle::Standing& Throttle::standing_at(const std::string& name, std::int64_t now_ms) {
  auto it = tenants_.find(name);
  if (it == tenants_.end()) {
    Standing fresh;
    fresh.rates_ = rates_of(name);
    fresh.requests_ = {fresh.rates_.requests.burst_micro, now_ms};
    fresh.tokens_ = {fresh.rates_.tokens.burst_micro, now_ms};
    it = tenants_.emplace(name, fresh).first;
  }
  Standing& tenant = it->second;
  fill(tenant.requests_, tenant.rates_.requests, now_ms);
  fill(tenant.tokens_, tenant.rates_.tokens, now_ms);
  return tenant;
}

std::optional<base::Error> Throttle::Standing::refusal(std::int64_t tokens, std::int64_t now_ms, bool counted) const {
  Bucket by_request = requests_, by_token = tokens_;
  fill(by_request, rates_.requests, now_ms);
  fill(by_token, rates_.tokens, now_ms);
  if (const std::int64_t wait = counted ? 0 : wait_ms(by_request, rates_.requests, 1)) {
    return too_fast("requests", "requests_per_second", wait);
  }
  if (const std::int64_t wait = wait_ms(by_token, rates_.tokens, tokens)) {
    return too_fast("tokens", "tokens_per_second", wait);
  }
  return std::nullopt;
}

std::optional<Throttle::Standing> Throttle::standing(const std::string& name) const {
  const auto it = tenants_.find(name);
  if (it == tenants_.end()) return std::nullopt;
  const Rates& rates = it->second.rates_;
  if (rates.requests.micro_per_ms == 0 && rates.tokens.micro_per_ms == 0) return std::nullopt;
  return it->second;
}

std::optional<base::Error> Throttle::arrives(const std::string& name, std::int64_t tokens, std::int64_t now_ms,
                                             bool counted) {
  Standing& tenant = standing_at(name, now_ms);
  if (auto error = tenant.refusal(tokens, now_ms, counted)) return error;
  if (!counted && tenant.rates_.requests.micro_per_ms > 0) tenant.requests_.level_micro -= kMicro;
  return std::nullopt;
}

void Throttle::accepted(const std::string& name, std::int64_t tokens, std::int64_t now_ms) {
  Standing& tenant = standing_at(name, now_ms);
  if (tenant.rates_.tokens.micro_per_ms > 0) tenant.tokens_.level_micro -= tokens * kMicro;
}

}  // namespace llorch::orchestratord::core::sessions
