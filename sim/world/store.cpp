#include "sim/world/store.h"

#include "sim/world/world.h"

namespace llorch::sim {

void Store::admit(orchestratord::jobs::CommitId commit, Row row) { post({commit, std::move(row), {}}); }
void Store::change(orchestratord::jobs::CommitId commit, RowChange change) { post({commit, {}, std::move(change)}); }

void Store::post(Write write) {
  waiting_.push_back(std::move(write));
  if (!busy_) begin();
}

void Store::begin() {
  busy_ = true;
  const std::int64_t sync_us = world_.dice_store.chance(30) ? world_.dice_store.between(10 * kMs, 800 * kMs)
                                                            : world_.dice_store.between(50, 3 * kMs);
  // What comes while the disk is busy shares the next commit; what came in this moment shares this one.
  world_.loop.post(world_.orchestrator_process, 0, [this, sync_us] {
    committing_.swap(waiting_);
    world_.loop.post(world_.orchestrator_process, sync_us, [this] { end(); });
  });
}

void Store::end() {
  const bool fails = world_.disk_refuses() || world_.dice_store.chance(world_.faults().commit_fails);
  Batch batch;
  batch.swap(committing_);
  std::vector<orchestratord::jobs::CommitId> commits;
  bool admissions = false;
  for (const Write& write : batch) {
    commits.push_back(write.commit);
    admissions |= write.admission.has_value();
  }
  busy_ = false;
  if (fails) {
    world_.trace("store refuses", "", static_cast<std::int64_t>(commits.size()));
    if (admissions) world_.oracle.reached("disk refused an admission");
    for (Write& write : batch) {
      if (write.change && contract::is_terminal(write.change->status)) limbo_.push_back(std::move(write));
    }
  } else {
    apply(batch);
    limbo_.clear();
    world_.trace("store commits", "", static_cast<std::int64_t>(commits.size()));
    if (world_.dice_store.chance(world_.faults().crash_in_commit)) {
      if (admissions) world_.oracle.reached("crash between commit and 202");
      return world_.crash_orchestrator();
    }
  }
  std::optional<base::Error> error;
  if (fails) error = base::Error{base::ErrorCode::kStoreUnavailable, "the simulated disk refuses", {}};
  if (!waiting_.empty()) begin();
  done_(std::move(commits), std::move(error));
}

void Store::apply(const Batch& batch) {
  for (const Write& write : batch) {
    if (write.admission) {
      const std::string& job = write.admission->request.task_id;
      if (!world_.disk.rows.emplace(job, *write.admission).second)
        world_.oracle.violate("a row is written twice: " + job);
      world_.disk.order.push_back(job);
    } else {
      apply(*write.change);
    }
  }
}

void Store::apply(const RowChange& change) {
  const auto it = world_.disk.rows.find(change.job);
  if (it == world_.disk.rows.end()) return world_.oracle.violate("a change without a row: " + change.job);
  Row& row = it->second;
  world_.oracle.row_moves(row, change.status);
  const bool terminal = contract::is_terminal(change.status);
  if (terminal && world_.options.plant == Plant::kFinishTwice) return;
  row.status = change.status;
  row.attempts = change.attempts;
  row.tokens_out = change.tokens_out;
  if (!terminal) return;
  row.event = change.event;
  row.data = change.data;
  row.last_event_id = change.last_event_id;
}

void Store::crash() {
  // The log holds the whole group or nothing of it.
  if (!committing_.empty() && world_.dice_store.chance(500)) {
    for (const Write& write : committing_) {
      if (write.admission) world_.oracle.reached("crash between commit and 202");
    }
    return apply(committing_);
  }
  if (!committing_.empty() || !waiting_.empty()) world_.oracle.reached("crash before a commit");
  if (limbo_.empty() || world_.dice_store.chance(500)) return;
  world_.oracle.reached("an ending that was refused is there after a crash");
  for (const Write& write : limbo_) apply(*write.change);
}

}  // namespace llorch::sim
