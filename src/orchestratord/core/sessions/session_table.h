#pragma once
// The live sessions: their turns, budgets, reservations and age. Pure: time, prices and randomness come in.
//
// Nobody overspends: a job reserves all it may take before it is enqueued and is charged what it took when it ends, which
// is never more. So at any time used + reserved <= budget, whatever runs at once.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/id.h"
#include "base/result.h"
#include "config/config.h"
#include "orchestratord/core/sessions/session.h"
#include "wire/session.h"

namespace llorch::orchestratord::core::sessions {

// What a job may take at most.
struct Demand {
  std::int64_t tokens_in = 0;
  std::int64_t max_tokens = 0;
  std::int64_t timeout_ms = 0;  // its own limit on a run
};
struct Reservation {
  std::int64_t tokens = 0;
  std::optional<std::int64_t> time_ms;  // with a time budget: the run may last this long and no longer
  std::int64_t cost_nano = 0;
};
// What a job took. REQUIRES: within its reservation.
struct Charge {
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;
  std::int64_t decode_time_ms = 0;
};

// What a running job's stream says of its session, see after().
struct Share {
  wire::BudgetRemaining before;  // had the job taken nothing
  std::int64_t tokens_in = 0;
  std::int64_t prompt_token_cost_nano = 0;
  std::int64_t output_token_cost_nano = 0;
  bool kv_warmth = false;
};
// What is left once the job has generated this much.
wire::BudgetRemaining after(const Share& share, std::int64_t tokens_out, std::int64_t decode_time_ms);

struct Session {
  SessionRecord record;
  Use use;
  Reservation reserved;  // time_ms: the sum, 0 without a budget
  std::int64_t jobs_live = 0;
  std::int64_t active_ms = 0, active_unix_ms = 0;  // last activity
  // Where its last job ended well.
  std::optional<std::pair<base::PoolId, base::WorkerId>> last_worker;
};

class SessionTable {
 public:
  // Each of `tenants_count` tenants, and the operator, may have an equal share of the sessions, so that nobody's fill all
  // places.
  explicit SessionTable(config::SessionConfig config, std::size_t tenants_count = 0);
  // Sessions above a share that has become smaller stay; its tenant gets no more.
  void set_tenants_count(std::size_t tenants_count);

  // Takes over the stored sessions, in order of creation. Returns the keys of rows that are of no use any more.
  std::vector<std::int64_t> restore(std::vector<RestoredSession> sessions, base::Time now);

  // A client makes a session, or touches one that is there. CONFLICT: it is there with other budgets. QUOTA_EXCEEDED: its
  // tenant has its share of sessions.
  struct Opened {
    std::int64_t key = 0;
    bool created = false;
  };
  base::Result<Opened> open(const wire::CreateSessionRequest& request, base::Time now, base::Entropy& entropy);

  // Why a job may not be enqueued; of a session that is not there: why it could not be made. BUDGET_EXCEEDED,
  // QUOTA_EXCEEDED.
  std::optional<base::Error> refusal(const base::SessionId& id, const Demand& demand, base::Time now) const;
  // A job is about to be enqueued; its session is made if it is not there. REQUIRES: refusal() says nothing.
  struct Admitted {
    std::int64_t key = 0;
    Reservation reservation;
  };
  Admitted admit(const base::SessionId& id, const Demand& demand, base::Time now, base::Entropy& entropy);
  // It was not enqueued after all.
  void withdraw(const Admitted& admitted);
  // A job of the store that has not ended; nullopt: its session is over.
  std::optional<Admitted> readmit(std::int64_t key, const Demand& demand);
  // The job has ended. Of a session that is over: nothing.
  void settle(const Admitted& admitted, const Charge& charge, base::Time now);

  // Null: over, or never there.
  const Session* find(const base::SessionId& id) const;
  const Session* find(std::int64_t key) const;
  void ended_well_on(std::int64_t key, base::PoolId pool_id, base::WorkerId worker_id);
  // Jobs of it that are live run on and are charged to nobody.
  bool close(std::int64_t key) { return erase(key); }

  wire::BudgetRemaining remaining(const Session& session) const;
  // For a live job.
  std::optional<Share> share(const Admitted& admitted, std::int64_t tokens_in, bool kv_warmth) const;
  wire::SessionView view(const Session& session, base::Time now) const;
  const std::map<std::int64_t, Session>& all() const { return sessions_; }

  // Removes those that nobody used for the ttl and returns their keys. Sessions with live jobs do not age.
  std::vector<std::int64_t> expire(std::int64_t now_ms);
  std::int64_t next_expiry_ms() const;

 private:
  Session fresh(const base::SessionId& id, base::Time now) const;
  Session& insert(Session session, base::Entropy& entropy);
  Session& put(Session session);
  bool erase(std::int64_t key);
  Session* find_mutable(std::int64_t key);
  std::optional<base::Error> over_share(const base::SessionId& id, std::int64_t now_ms) const;
  std::int64_t next_expiry_ms(std::string_view tenant) const;
  static Reservation reservation_of(const Session& session, const Demand& demand);
  static void reserve(Session& session, const Reservation& r, int sign);
  void used_now(Session& session, base::Time now);
  // Takes it out of the order of ageing, or puts it in.
  void set_ageing(const Session& session, bool ageing);

  const config::SessionConfig config_;
  std::int64_t share_ = 0;                    // of the sessions that one tenant may have
  std::map<std::int64_t, Session> sessions_;  // by key
  std::unordered_map<base::SessionId, std::int64_t> key_of_;
  std::map<std::string, std::int64_t, std::less<>> count_of_;  // sessions by tenant, none with 0
  std::set<std::pair<std::int64_t, std::int64_t>> ageing_;     // (last activity, key) of sessions without live jobs
};

}  // namespace llorch::orchestratord::core::sessions
