#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

void Core::verify() const { state_->verify(); }

void State::verify() const {
  jobs.verify();
  commits.verify();
  ledger.verify(jobs);
  groups.verify(jobs);
  workers.verify();
  desired.verify();
  pools.verify();

  // Nobody waits while a worker could take the job now.
  if (draining()) return;
  std::set<GroupIndex> seen;
  for (const auto& [arrival, job] : jobs.all()) {
    const JobGroup& l = groups.at(job.group);
    if (!seen.insert(job.group).second || !groups.queue().head_of(job.group)) continue;
    const wire::ModelFacts& facts = l.facts;
    ASSERT(l.wait, "model {} waits for nothing", facts.digest);
    if (!groups.may_run(l)) continue;
    for (const Worker* w : registry.workers_of(facts.digest)) {
      ASSERT(
          !accepts(l, *w) || !replicas.serves(*w, facts) || w->slots_free() == 0 || !replicas.keeps_replica_set(l, *w),
          "worker {} is idle", w->id.value);
    }
  }
}

}  // namespace llorch::orchestratord::core
