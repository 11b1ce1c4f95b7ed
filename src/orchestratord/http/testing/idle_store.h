#pragma once
#include <string>
#include <vector>

#include "orchestratord/store/store.h"

namespace llorch::orchestratord::http {

// Does nothing: a test has the calls do what it is about. Whoever waits for another one is told nothing.
class IdleStore : public store::Store {
 public:
  void admit(store::Admission, Done) override {}
  void transition(store::Transition, Done) override {}
  void checkpoint(std::vector<store::Checkpoint>) override {}
  void remember_session(core::sessions::SessionRecord, Done) override {}
  void forget_session(std::int64_t) override {}
  void remember_pool(store::KnownPool) override {}
  void set_desired_state(store::KnownPool, Done) override {}
  void forget_pool(base::PoolId, Done) override {}
  void find(base::JobId, Found) override {}
  void find_task(std::string, Found) override {}
  void list(store::Listing, Listed) override {}
  void backup(store::BackupOrder) override {}
  base::Result<store::RestoredState> restore() override { return store::RestoredState{}; }
  void stop() override {}
};

}  // namespace llorch::orchestratord::http
