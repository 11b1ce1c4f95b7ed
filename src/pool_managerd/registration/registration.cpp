#include "pool_managerd/registration/registration.h"

#include <algorithm>

namespace llorch::pool_managerd::registration {
namespace {

// Bounds of what a reply may ask for: no storm, and no pool that looks dead for minutes.
constexpr std::int64_t kIntervalMinMs = 100;
constexpr std::int64_t kIntervalMaxMs = 300'000;
// From a call to the registration it prompts: an orchestratord that starts asks its pools before it listens itself. Also
// what bounds the attempts when somebody else asks all the time.
constexpr std::int64_t kHeardDelayMs = 200;

// The other side has answered and will answer the same again.
bool is_final_refusal(const base::Error& error) {
  const int status = base::info(error.code).http_status;
  return status >= 400 && status < 500 && error.code != base::ErrorCode::kMissingToken &&
         error.code != base::ErrorCode::kBadToken;
}

}  // namespace

void Registration::step(const Event& event, Time now, std::vector<Command>& out) {
  std::visit([&](const auto& e) { on(e, now, out); }, event);
  send_next(now, out);
}

void Registration::send_next(Time now, Out& out) {
  if (in_flight_) return;
  if (phase_ == Phase::kOffline) {
    if (leaving_) {
      phase_ = Phase::kLeft;
    } else if (now.mono_ms >= due_ms_) {
      in_flight_ = true;
      out.push_back(SendRegister{});
    }
    return;
  }
  if (phase_ != Phase::kConnected) return;
  in_flight_ = true;
  if (!reports_.empty()) {
    out.push_back(SendReport{reports_.front()});
  } else if (leaving_) {
    phase_ = Phase::kLeaving;
    out.push_back(SendDeregister{});
  } else if (changed_ || now.mono_ms >= due_ms_) {
    changed_ = false;
    out.push_back(SendHeartbeat{});
  } else {
    in_flight_ = false;
  }
}

void Registration::on(const Started&, Time now, Out&) {
  phase_ = Phase::kOffline;
  due_ms_ = now.mono_ms;
}

void Registration::on(const Queue& event, Time, Out&) {
  reports_.push_back(event.report);
  // The one being sent is the front: it must stay there until its answer.
  if (reports_.size() > config_.reports_max) reports_.erase(reports_.begin() + (in_flight_ ? 1 : 0));
}

void Registration::on(const Changed&, Time, Out&) { changed_ = true; }

void Registration::on(const Heard&, Time now, Out&) {
  if (phase_ != Phase::kOffline) return;
  backoff_ms_ = kHeardDelayMs;
  due_ms_ = std::min(due_ms_, now.mono_ms + kHeardDelayMs);
}

void Registration::on(const RegisterEnded& event, Time now, Out& out) {
  in_flight_ = false;
  ++counters_.registrations_by_outcome[event.reply ? "success" : "failure"];
  if (!event.reply) return lose_connection(event.reply.error(), now, out);
  phase_ = Phase::kConnected;
  backoff_ms_ = 0;
  changed_ = false;
  take_interval(event.reply->heartbeat_interval_ms);
  due_ms_ = now.mono_ms + interval_ms_;
  out.push_back(ConnectionChanged{.connected = true});
}

void Registration::on(const HeartbeatEnded& event, Time now, Out& out) {
  in_flight_ = false;
  ++counters_.heartbeats_by_outcome[event.reply ? "success" : "failure"];
  if (!event.reply) return lose_connection(event.reply.error(), now, out);
  take_interval(event.reply->next_heartbeat_ms);
  due_ms_ = now.mono_ms + interval_ms_;
}

void Registration::on(const ReportEnded& event, Time now, Out& out) {
  in_flight_ = false;
  if (event.result || is_final_refusal(event.result.error())) {
    reports_.pop_front();
  } else {
    lose_connection(event.result.error(), now, out);
  }
}

void Registration::on(const Leave&, Time, Out&) {
  leaving_ = true;
  if (phase_ == Phase::kIdle) phase_ = Phase::kLeft;
}

void Registration::on(const DeregisterEnded&, Time, Out&) {
  in_flight_ = false;
  phase_ = Phase::kLeft;
}

void Registration::lose_connection(const base::Error& error, Time now, Out& out) {
  // An orchestratord that restarted knows us no more: register at once (POOLREG-18030). All else: after a pause.
  const bool forgotten = phase_ == Phase::kConnected && error.code == base::ErrorCode::kPoolNotFound;
  phase_ = Phase::kOffline;
  if (forgotten) {
    backoff_ms_ = 0;
    due_ms_ = now.mono_ms;
  } else {
    backoff_ms_ = backoff_ms_ == 0 ? config_.backoff_initial_ms : std::min(backoff_ms_ * 2, config_.backoff_max_ms);
    due_ms_ = now.mono_ms + backoff_ms_;
  }
  out.push_back(ConnectionChanged{.connected = false, .reason = error.message, .retry_in_ms = due_ms_ - now.mono_ms});
}

void Registration::take_interval(std::int64_t interval_ms) {
  interval_ms_ = std::clamp(interval_ms, kIntervalMinMs, kIntervalMaxMs);
}

std::optional<std::int64_t> Registration::next_wake_ms() const {
  if (in_flight_ || (phase_ != Phase::kOffline && phase_ != Phase::kConnected)) return std::nullopt;
  return due_ms_;
}

}  // namespace llorch::pool_managerd::registration
