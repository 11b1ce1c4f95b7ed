#pragma once
// When to register, to beat and to report to orchestratord, as a pure core (SYS-6.2.4, POOLREG-18010..18050).
// One request is in flight at a time, so what orchestratord sees is in the order it happened. Nothing here is fatal: a
// pool manager works without an orchestratord and tells it everything once there is one.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "wire/pool.h"

namespace llorch::pool_managerd::registration {

using base::Time;

struct RegistrationConfig {
  std::int64_t heartbeat_interval_ms = 15'000;
  std::int64_t backoff_initial_ms = 1'000;  // doubled after every failure
  std::int64_t backoff_max_ms = 30'000;
  std::size_t reports_max = 256;  // kept while nobody listens; then the oldest go, the full state says the rest
};

using Report = std::variant<wire::WorkerReady, wire::WorkerFailed>;

// ---- events ----
struct Started {};
struct Queue {
  Report report;
};
// The state changed: beat now.
struct Changed {};
// A call came in that orchestratord makes: it may be back, so try to register soon.
struct Heard {};
struct RegisterEnded {
  base::Result<wire::RegisterReply> reply;
};
struct HeartbeatEnded {
  base::Result<wire::HeartbeatReply> reply;
};
struct ReportEnded {
  base::Result<> result;
};
struct Leave {};
struct DeregisterEnded {};
struct Tick {};
using Event = std::variant<Started, Queue, Changed, Heard, RegisterEnded, HeartbeatEnded, ReportEnded, Leave,
                           DeregisterEnded, Tick>;

// ---- commands; each is answered by its ...Ended event ----
struct SendRegister {};   // the full state
struct SendHeartbeat {};  // the full state
struct SendReport {
  Report report;
};
struct SendDeregister {};
// For the log.
struct ConnectionChanged {
  bool connected = false;
  std::string reason;  // when not
  std::int64_t retry_in_ms = 0;
};
using Command = std::variant<SendRegister, SendHeartbeat, SendReport, SendDeregister, ConnectionChanged>;

struct Counters {
  std::map<std::string, std::int64_t> registrations_by_outcome;  // success | failure
  std::map<std::string, std::int64_t> heartbeats_by_outcome;
};

// Not thread-safe: one owner steps it.
class Registration {
 public:
  explicit Registration(RegistrationConfig config) : config_(config), interval_ms_(config.heartbeat_interval_ms) {}

  void step(const Event& event, Time now, std::vector<Command>& out);
  std::optional<std::int64_t> next_wake_ms() const;

  bool connected() const { return phase_ == Phase::kConnected; }
  // Nothing more will be sent.
  bool left() const { return phase_ == Phase::kLeft; }
  std::size_t reports_pending() const { return reports_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  enum class Phase : std::uint8_t { kIdle, kOffline, kConnected, kLeaving, kLeft };
  using Out = std::vector<Command>;

  void on(const Started&, Time, Out&);
  void on(const Queue&, Time, Out&);
  void on(const Changed&, Time, Out&);
  void on(const Heard&, Time, Out&);
  void on(const RegisterEnded&, Time, Out&);
  void on(const HeartbeatEnded&, Time, Out&);
  void on(const ReportEnded&, Time, Out&);
  void on(const Leave&, Time, Out&);
  void on(const DeregisterEnded&, Time, Out&);
  void on(const Tick&, Time, Out&) {}

  void send_next(Time now, Out& out);
  void lose_connection(const base::Error& error, Time now, Out& out);
  void take_interval(std::int64_t interval_ms);

  RegistrationConfig config_;
  std::int64_t interval_ms_;
  Phase phase_ = Phase::kIdle;
  bool leaving_ = false;
  bool in_flight_ = false;
  bool changed_ = false;
  std::int64_t backoff_ms_ = 0;
  std::int64_t due_ms_ = 0;  // the next registration or heartbeat
  std::deque<Report> reports_;
  Counters counters_;
};

}  // namespace llorch::pool_managerd::registration
