#include "orchestratord/core/sessions/quota.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/id.h"

namespace llorch::orchestratord::core::sessions {
namespace {

constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;
// Jobs that run may give back some of what they reserved: worth another try soon.
constexpr std::int64_t kReservedRetryMs = 1000;

// Other accounts are "token:..." and these.
bool is_tenants(const std::string& account) {
  return base::is_valid_identifier(account) && account != "localhost" && account != "nobody";
}

}  // namespace

std::string tenant_of(const std::string& account) { return is_tenants(account) ? account : std::string(); }

bool is_former_tenant(const std::string& account, const std::vector<config::TenantConfig>& tenants) {
  return is_tenants(account) && std::ranges::find(tenants, account, &config::TenantConfig::id) == tenants.end();
}

QuotaTable::QuotaTable(const config::QuotaConfig& everybody, const std::vector<config::TenantConfig>& tenants,
                       std::optional<config::QuotaConfig> former_tenants) {
  set_limits(everybody, tenants, std::move(former_tenants));
}

void QuotaTable::set_limits(const config::QuotaConfig& everybody, const std::vector<config::TenantConfig>& tenants,
                            std::optional<config::QuotaConfig> former_tenants) {
  everybody_ = everybody;
  former_tenants_ = std::move(former_tenants);
  limits_.clear();
  for (const config::TenantConfig& tenant : tenants) {
    limits_[tenant.id] = tenant.quotas ? tenant.quotas->over(everybody) : everybody;
  }
  for (auto& [account, state] : tenants_) state.kept = state.running;
}

const config::QuotaConfig& QuotaTable::limits_of(const std::string& tenant) const {
  const auto it = limits_.find(tenant);
  if (it != limits_.end()) return it->second;
  return former_tenants_ && is_tenants(tenant) ? *former_tenants_ : everybody_;
}

const QuotaTable::State& QuotaTable::state_of(const std::string& tenant) const {
  static const State kNothing;
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? kNothing : it->second;
}

void QuotaTable::State::turn_to(std::int64_t day) {
  if (day == open.day || day == open.day - 1) return;
  const std::int64_t used = day < open.day ? open.used : 0;
  std::swap(open, before);
  if (open.day != day) open = {.day = day, .used = used};
}

QuotaTable::State& QuotaTable::state_on(const std::string& tenant, std::int64_t unix_ms) {
  State& state = tenants_[tenant];
  state.turn_to(unix_ms / kDayMs);
  return state;
}

void QuotaTable::restore(const std::vector<TenantUse>& used, std::int64_t unix_ms) {
  for (const TenantUse& use : used) state_on(use.tenant_id, unix_ms).open.used = use.tokens;
}

std::optional<QuotaTable::Standing> QuotaTable::standing(const std::string& tenant) const {
  Standing standing;
  standing.budget_ = limits_of(tenant).token_budget_daily;
  if (standing.budget_ == 0) return std::nullopt;
  standing.state_ = state_of(tenant);
  return standing;
}

std::optional<base::Error> QuotaTable::refusal(const std::string& tenant, std::int64_t tokens,
                                               std::int64_t unix_ms) const {
  const auto limited = standing(tenant);
  return limited ? limited->refusal(tokens, unix_ms) : std::nullopt;
}

std::optional<base::Error> QuotaTable::Standing::refusal(std::int64_t tokens, std::int64_t unix_ms) const {
  return refusal(tokens, "", unix_ms);
}

std::optional<base::Error> QuotaTable::Standing::refusal(const Tokens& tokens, std::int64_t unix_ms) const {
  if (tokens.at_least <= budget_ && tokens.at_most > budget_) return std::nullopt;
  return refusal(tokens.at_least, "at least ", unix_ms);
}

std::int64_t QuotaTable::Standing::left(std::int64_t unix_ms) const {
  State state = state_;
  state.turn_to(unix_ms / kDayMs);
  return std::max<std::int64_t>(0, budget_ - state.open.used - state.reserved);
}

std::optional<base::Error> QuotaTable::Standing::refusal(std::int64_t tokens, std::string_view how_many,
                                                         std::int64_t unix_ms) const {
  State state = state_;
  state.turn_to(unix_ms / kDayMs);
  const std::int64_t budget = budget_;
  const auto [day, used] = state.open;
  if (used + state.reserved + tokens <= budget) return std::nullopt;
  const auto error = [&](base::ErrorCode code, std::string message) {
    return base::Error{code, std::move(message), {}}
        .with("policy_label", "quotas.token_budget_daily")
        .with("token_budget_daily", budget)
        .with("tokens_used_today", used)
        .with("tokens_reserved", state.reserved)
        .with("tokens_requested", tokens);
  };
  if (tokens > budget) {
    return error(base::ErrorCode::kBudgetExceeded,
                 fmt::format("Prompt and max_tokens come to {}{} tokens; this tenant has {} a day "
                             "(token_budget_daily). Shorten the prompt or lower max_tokens.",
                             how_many, tokens, budget));
  }
  const bool fits_without_others = used + tokens <= budget;
  // The day that is open may be tomorrow.
  const std::int64_t retry_ms =
      fits_without_others ? kReservedRetryMs : std::clamp<std::int64_t>((day + 1) * kDayMs - unix_ms, 1, kDayMs);
  return error(base::ErrorCode::kQuotaExceeded,
               fmt::format("Of the {} tokens that this tenant has a day (token_budget_daily), {} are used and {} "
                           "reserved by jobs that have not ended; this one may take {}{}. Try again in {} ms{}.",
                           budget, used, state.reserved, how_many, tokens, retry_ms,
                           fits_without_others ? ", or lower max_tokens" : ", at midnight UTC"))
      .with("retry_after_ms", retry_ms);
}

void QuotaTable::reserve(const std::string& tenant, std::int64_t tokens) { tenants_[tenant].reserved += tokens; }

void QuotaTable::withdraw(const std::string& tenant, std::int64_t tokens) {
  State& state = tenants_[tenant];
  ASSERT(state.reserved >= tokens, "tenant {}: {} of {}", tenant, tokens, state.reserved);
  state.reserved -= tokens;
}

void QuotaTable::settle(const std::string& tenant, const Charge& charge) {
  ASSERT(charge.used <= charge.reserved, "tenant {}: {} of {}", tenant, charge.used, charge.reserved);
  withdraw(tenant, charge.reserved);
  state_on(tenant, charge.ended_unix_ms).open.used += charge.used;
}

bool QuotaTable::may_run(const std::string& tenant) const {
  const std::int64_t limit = concurrent_max(tenant);
  return limit == 0 || running(tenant) < limit;
}

void QuotaTable::began(const std::string& tenant) { ++tenants_[tenant].running; }

void QuotaTable::ended(const std::string& tenant) {
  State& state = tenants_[tenant];
  ASSERT(state.running > 0, "tenant {}", tenant);
  --state.running;
  state.kept = std::min(state.kept, state.running);
}

std::int64_t QuotaTable::running(const std::string& tenant) const { return state_of(tenant).running; }
std::int64_t QuotaTable::reserved(const std::string& tenant) const { return state_of(tenant).reserved; }
std::int64_t QuotaTable::running_max(const std::string& tenant) const {
  const std::int64_t limit = concurrent_max(tenant);
  return limit == 0 ? 0 : std::max(limit, state_of(tenant).kept);
}
void QuotaTable::add_accounts(std::set<std::string>& out) const {
  for (const auto& [account, state] : tenants_) out.insert(account);
}

}  // namespace llorch::orchestratord::core::sessions
