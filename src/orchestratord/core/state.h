#pragma once
// The inside of Core: the owners of its state. An event goes to one of them; they ask and tell each other.
#include "orchestratord/core/jobs/attempts.h"
#include "orchestratord/core/placement/placing.h"
#include "orchestratord/core/pools/pool_control.h"
#include "orchestratord/core/pools/workers.h"
#include "orchestratord/core/views.h"

namespace llorch::orchestratord::core {

struct State : Env, Owner {
  State(CoreConfig c, base::Entropy& e) : Env(std::move(c), e), Owner(static_cast<Env&>(*this)) {}

  Jobs jobs;
  Commits commits;
  pools::PoolRegistry registry;
  Ledger ledger{*this, commits, registry};
  Models models;
  JobGroups groups{*this, ledger, models, registry};
  Replicas replicas{*this};
  Workers workers{*this};
  Pools pools{*this};
  Filling filling{*this};
  DesiredStates desired{*this};
  Attempts attempts{*this};
  Admissions admissions{*this};
  Staging staging{*this};
  Scheduler scheduler{*this};
  QueueReview review{*this};
  Views views{*this};
  using Owner::config_, Owner::now_, Owner::recheck_, Owner::timers_;  // Env has them too, for nobody but Owner

  bool restored = false, end_forced = false, drained = false;

  void run_timers();
  void fire(const Timer& timer);
  void check_drained();
  std::int64_t next_wakeup_ms() const;
  void on(Tick&) {}
  void on(SetLimits& e);
  void on(Shutdown& e);
  void on(Restored& e);
  void on(Committed& e);
  void on(CommitFailed& e);
  void shutdown_grace_over();

  void verify() const;
};

}  // namespace llorch::orchestratord::core
