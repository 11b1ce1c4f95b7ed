#include "orchestratord/http/admission_board.h"

#include <utility>

namespace llorch::orchestratord::http {

void AdmissionBoard::set(core::PublishStanding standing) {
  const std::lock_guard lock(mutex_);
  standings_.insert_or_assign(std::move(standing.tenant_id), std::move(standing.standing));
}

void AdmissionBoard::set(core::PublishQueueRoom room) {
  const std::lock_guard lock(mutex_);
  room_ = std::move(room);
}

std::optional<base::Error> AdmissionBoard::refusal(const Newcomer& newcomer, base::Time now) const {
  const std::lock_guard lock(mutex_);
  if (const auto it = standings_.find(newcomer.account); it != standings_.end()) {
    const auto& [throttle, quota] = it->second;
    if (throttle) {
      if (auto error = throttle->refusal(newcomer.tokens.at_least, now.mono_ms, newcomer.counted)) return error;
    }
    if (quota) {
      if (auto error = quota->refusal(newcomer.tokens, now.unix_ms)) return error;
    }
  }
  const auto full = room_.refusals.find(newcomer.is_tenant ? newcomer.account : std::string());
  if (full != room_.refusals.end() && full->second.refuses[static_cast<std::size_t>(newcomer.priority)]) {
    return full->second.error;
  }
  return std::nullopt;
}

std::optional<base::Error> AdmissionBoard::arrival_refusal(const std::string& account, base::Time now) const {
  const std::lock_guard lock(mutex_);
  const auto it = standings_.find(account);
  if (it == standings_.end() || !it->second.throttle) return std::nullopt;
  return it->second.throttle->refusal(0, now.mono_ms);
}

std::optional<std::int64_t> AdmissionBoard::tokens_left(const std::string& account, base::Time now) const {
  const std::lock_guard lock(mutex_);
  const auto it = standings_.find(account);
  if (it == standings_.end() || !it->second.quota) return std::nullopt;
  return it->second.quota->left(now.unix_ms);
}

}  // namespace llorch::orchestratord::http
