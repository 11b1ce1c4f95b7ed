#include "sim/world/disk.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/assert.h"
#include "base/settled_clock.h"
#include "orchestratord/store/payload/sealing.h"
#include "orchestratord/store/sqlite/sqlite_core.h"
#include "sim/world/world.h"
#include "wire/json.h"

namespace llorch::sim {

namespace store = orchestratord::store;

namespace {

// The store has a second to overwrite a key on disk; a group commit that takes 800 ms may stand in the way.
constexpr std::int64_t kErasedWithinMs = 1'900;
// Longer than an answer takes.
constexpr std::int64_t kMomentMs = 30'000;
constexpr std::int64_t kPageBytes = 1'024;
constexpr const char* kKeyFile = "state/payload.keys";

}  // namespace

Row row_of(const World& world, const store::JobRecord& job) {
  Row row;
  row.request = {.task_id = job.job_id.value,
                 .model = world.model_of(job.model_ref),
                 .priority = job.priority,
                 .on_disconnect = job.on_disconnect,
                 .tokens_in = job.tokens_in,
                 .max_tokens = job.max_tokens,
                 .seed = job.seed,
                 .timeout_ms = job.timeout_ms,
                 .deadline_ms = job.deadline_ms,
                 .placement = *wire::decode<wire::StoredParams>(job.params).value().placement,
                 .session = job.session_id};
  row.session_key = job.session_key;
  row.submitted_unix_ms = job.submitted_unix_ms;
  return changed(std::move(row), job.progress);
}

Row changed(Row row, const store::JobProgress& p) {
  row.status = p.status;
  row.attempts = p.attempts;
  if (p.tokens_out) row.tokens_out = *p.tokens_out;
  if (p.decode_time_ms) row.decode_time_ms = *p.decode_time_ms;
  if (p.finished_unix_ms) row.finished_unix_ms = *p.finished_unix_ms;
  if (!wire::is_terminal(p.status)) return row;
  row.event = p.end ? "end" : "error";
  row.data = p.end ? wire::encode(*p.end) : wire::encode(*p.error);
  row.last_event_id = p.last_event_id.value_or("");
  return row;
}

orchestratord::core::sessions::Use use_of(const std::map<std::string, Row>& rows, std::int64_t session_key) {
  orchestratord::core::sessions::Use use;
  for (const auto& [job, row] : rows) {
    if (row.session_key != session_key) continue;
    ++use.turns;
    if (!wire::is_terminal(row.status)) continue;
    if (row.attempts > 0) use.tokens_in += row.request.tokens_in;
    use.tokens_out += row.tokens_out;
    use.decode_time_ms += row.decode_time_ms;
  }
  return use;
}

void KeyWatch::fill(std::span<std::byte> out) {
  entropy_.fill(out);
  if (out.size() == store::payload::kKeyBytes) {
    drawn_.emplace_back(reinterpret_cast<const char*>(out.data()), out.size());
  } else if (out.size() == store::payload::kNonceBytes) {
    ASSERT(!drawn_.empty());
    used_.push_back(std::move(drawn_.front()));
    drawn_.pop_front();
  }
}

void KeyWatch::forget() {
  drawn_.clear();
  used_.clear();
}

// ---- rows -----------------------------------------------------------------------------------------------------------

void DiskCheck::committed(const Write& write) {
  Disk& disk = world_.disk;
  if (write.session && !write.admission) {
    const auto known = disk.sessions.find(write.session->key);
    // By a clock that was set back nothing changes, so nothing is written.
    if (known != disk.sessions.end() && write.session->touched_unix_ms <= known->second.touched_unix_ms) return;
  }
  open_.clear();  // a commit that wrote something has taken the place of those that failed
  if (write.pool_gone) {
    disk.desired.erase(write.pool_gone->value);
    return;
  }
  if (write.pool) {
    const std::string& pool = write.pool->pool_id.value;
    disk.desired.erase(pool);
    if (write.pool->desired.any()) disk.desired.emplace(pool, write.pool->desired);
    return;
  }
  if (write.admission) {
    if (!disk.rows.emplace(write.job, *write.admission).second) {
      world_.oracle.violate("a row is written twice: " + write.job);
    }
    disk.order.push_back(write.job);
    if (write.session && !forgotten_sessions_.contains(write.session->key)) {
      disk.sessions.emplace(write.session->key, *write.session);
    }
    return;
  }
  if (write.session) {
    if (!forgotten_sessions_.contains(write.session->key)) disk.sessions[write.session->key] = *write.session;
    return;
  }
  const auto row = disk.rows.find(write.job);
  if (row == disk.rows.end()) return world_.oracle.violate("a change without a row: " + write.job);
  world_.oracle.row_moves(row->second, write.change.status);
  row->second = changed(std::move(row->second), write.change);
  if (wire::is_terminal(write.change.status)) key_dies(write.job);
}

void DiskCheck::refused(const Write& write) {
  if (write.admission) return key_dies(write.job);
  open_.push_back(write);
}

void DiskCheck::left_open(const Write& write) { open_.push_back(write); }

void DiskCheck::check_found(const std::string& job, const Row& found) {
  const auto known = world_.disk.rows.find(job);
  const auto admission =
      std::find_if(open_.begin(), open_.end(), [&](const Write& write) { return write.job == job && write.admission; });
  if (known == world_.disk.rows.end() && admission == open_.end()) {
    return world_.oracle.violate("a job that was refused came to life: " + job);
  }
  if (known == world_.disk.rows.end()) world_.oracle.reached("an admission without an answer is there after a crash");
  const Row& before = known != world_.disk.rows.end() ? known->second : *admission->admission;
  if (found == before) return;
  for (const Write& write : open_) {
    if (write.job != job || write.admission || changed(before, write.change) != found) continue;
    world_.oracle.row_moves(before, found.status);
    if (wire::is_terminal(found.status)) world_.oracle.reached("an ending without an answer is there after a crash");
    return;
  }
  world_.oracle.violate(fmt::format("the row of {} is not what was committed: {} instead of {}", job,
                                    wire::enum_name(found.status), wire::enum_name(before.status)));
}

void DiskCheck::check_groups(const std::map<std::string, const Row*>& found) {
  std::map<std::int64_t, std::set<bool>> there;
  for (const Write& write : open_) {
    if (write.admission) there[write.group].insert(found.contains(write.job));
  }
  for (const auto& [group, answers] : there) {
    if (answers.size() > 1) world_.oracle.violate("half a group is on disk");
  }
}

void DiskCheck::session_forgotten(std::int64_t key) {
  forgotten_sessions_.insert(key);
  world_.disk.sessions.erase(key);
}

// Their rows, and what the store sums up of their jobs. REQUIRES: `disk.rows` are the found ones.
void DiskCheck::check_sessions(const std::vector<orchestratord::core::sessions::RestoredSession>& found) {
  Disk& disk = world_.disk;
  std::map<std::int64_t, orchestratord::core::sessions::SessionRecord> there;
  for (const auto& [record, use, last_activity] : found) {
    const auto known = disk.sessions.find(record.key);
    const bool is_open =
        forgotten_sessions_.contains(record.key) || std::any_of(open_.begin(), open_.end(), [&](const Write& write) {
          return write.session && write.session->key == record.key;
        });
    const std::string name = record.session_id.value;
    if (known == disk.sessions.end() && !is_open) world_.oracle.violate("a session that nobody made: " + name);
    if (known != disk.sessions.end() &&
        (known->second.token_budget != record.token_budget || known->second.time_budget_ms != record.time_budget_ms ||
         known->second.cost_budget_nano != record.cost_budget_nano || known->second.session_id != record.session_id)) {
      world_.oracle.violate("a session has other budgets after a restart: " + name);
    }
    auto right = use_of(disk.rows, record.key);
    const auto of_gone = use_of(gone_, record.key);
    right.turns += of_gone.turns;
    right.tokens_in += of_gone.tokens_in;
    right.tokens_out += of_gone.tokens_out;
    right.decode_time_ms += of_gone.decode_time_ms;
    if (use.turns != right.turns || use.tokens_in != right.tokens_in || use.tokens_out != right.tokens_out ||
        use.decode_time_ms != right.decode_time_ms) {
      world_.oracle.violate("what a session has used is not what its jobs took: " + name);
    }
    if (use.turns > 0) world_.oracle.reached("session over a restart");
    there.emplace(record.key, record);
  }
  for (const auto& [key, record] : disk.sessions) {
    if (!there.contains(key)) world_.oracle.violate("a session is lost: " + record.session_id.value);
  }
  disk.sessions = std::move(there);
  forgotten_sessions_.clear();
}

void DiskCheck::check_desired_states(const std::map<std::string, wire::PoolDesiredState>& found) {
  const auto is_open = [this](const std::string& pool) {
    return std::any_of(open_.begin(), open_.end(), [&](const Write& write) {
      return (write.pool && write.pool->pool_id.value == pool) || (write.pool_gone && write.pool_gone->value == pool);
    });
  };
  const std::map<std::string, wire::PoolDesiredState>& known = world_.disk.desired;
  const auto text = [](const std::map<std::string, wire::PoolDesiredState>& side, const std::string& pool) {
    const auto desired = side.find(pool);
    if (desired == side.end()) return std::string();
    return fmt::format("draining {} {}", desired->second.draining, wire::encode(desired->second));
  };
  for (const auto* side : {&found, &known}) {
    for (const auto& [pool, desired] : *side) {
      if (text(found, pool) == text(known, pool) || is_open(pool)) continue;
      world_.oracle.violate(fmt::format("the desired state of {} is not on disk as it was answered: {} instead of {}",
                                        pool, text(found, pool), text(known, pool)));
    }
  }
}

void DiskCheck::time_is(std::int64_t unix_ms) {
  unix_ms_ = unix_ms;
  const Disk& disk = world_.disk;
  const auto look = [&](const Row& row) {
    if (!wire::is_terminal(row.status) || row.finished_unix_ms >= unix_ms - world_.options.retention_ms) return;
    may_be_gone_.insert(row.request.task_id);
  };
  for (const auto& [job, row] : disk.rows) look(row);
  for (const Write& write : open_) {
    const auto row = disk.rows.find(write.job);
    if (row != disk.rows.end() && !write.admission) look(changed(row->second, write.change));
  }
}

// Whether the row of a job that is not there any more had its time.
bool DiskCheck::retires(const std::string& job) {
  if (!may_be_gone_.contains(job)) return false;
  Disk& disk = world_.disk;
  if (auto row = disk.rows.extract(job)) {
    for (const Write& write : open_) {
      if (write.job == job && !write.admission) row.mapped() = changed(std::move(row.mapped()), write.change);
    }
    gone_.insert(std::move(row));
  }
  std::erase(disk.order, job);
  disk.retired.insert(job);
  world_.oracle.retired(job);
  return true;
}

// What passed since the latest time on disk counts later, but for a moment.
void DiskCheck::check_retention(const Found& found) {
  std::int64_t newest_unix_ms = 0;
  for (const Row& row : found.rows) {
    if (wire::is_terminal(row.status)) newest_unix_ms = std::max(newest_unix_ms, row.finished_unix_ms);
  }
  for (const store::RestoredJob& live : found.state.jobs) {
    newest_unix_ms = std::max(newest_unix_ms, live.job.submitted_unix_ms);
  }
  const bool is_settled = unix_ms_ <= newest_unix_ms + base::SettledClock::kJumpMs;
  const std::int64_t settled_unix_ms = is_settled ? unix_ms_ : newest_unix_ms;
  for (const Row& row : found.rows) {
    const bool over =
        wire::is_terminal(row.status) && row.finished_unix_ms < settled_unix_ms - world_.options.retention_ms;
    if (over && found.cleaned) {
      world_.oracle.violate("a finished job is there after its retention: " + row.request.task_id);
    }
  }
}

void DiskCheck::opened(const Found& all) {
  const auto& [state, found, cleaned] = all;
  Disk& disk = world_.disk;
  check_retention(all);
  std::map<std::string, wire::PoolDesiredState> desired;
  for (const auto& [pool, of_it] : state.desired_states) desired.emplace(pool.value, of_it);
  check_desired_states(desired);
  disk.desired = std::move(desired);
  std::map<std::string, const Row*> by_job;
  std::vector<std::string> order, known_order;
  for (const Row& row : found) {
    const std::string& job = row.request.task_id;
    by_job[job] = &row;
    order.push_back(job);
    if (disk.rows.contains(job)) known_order.push_back(job);
    check_found(job, row);
  }
  for (const std::string& job : std::vector(disk.order)) {
    if (!by_job.contains(job)) retires(job);
  }
  if (known_order != disk.order) {
    world_.oracle.violate(fmt::format("accepted jobs are lost, or not in their order: {} instead of {}",
                                      fmt::join(known_order, " "), fmt::join(disk.order, " ")));
  }
  check_groups(by_job);
  for (const store::RestoredJob& job : state.jobs) {
    if (job.payload != payloads_[job.job.job_id.value]) {
      world_.oracle.violate("the payload of a live job is lost: " + job.job.job_id.value);
    }
  }
  for (const Write& write : open_) {
    const auto row = by_job.find(write.job);
    const bool over = row == by_job.end() || wire::is_terminal(row->second->status);
    if (over) key_dies(write.job);
  }
  disk.order = std::move(order);
  disk.rows.clear();
  for (const Row& row : found) disk.rows.emplace(row.request.task_id, row);
  check_sessions(state.sessions);
  open_.clear();
  check_keys(true);
}

void DiskCheck::looked_up(const std::string& job, const std::optional<Row>& found) {
  if (!found && retires(job)) return;
  const auto known = world_.disk.rows.find(job);
  const bool same =
      found ? known != world_.disk.rows.end() && known->second == *found : known == world_.disk.rows.end();
  if (!same) world_.oracle.violate("the store does not know what it has answered: " + job);
}

bool DiskCheck::is_too_late(const std::string& job) const {
  const auto row = world_.disk.rows.find(job);
  if (row == world_.disk.rows.end()) return world_.disk.retired.contains(job);
  return wire::is_terminal(row->second.status) &&
         row->second.finished_unix_ms + world_.options.retention_ms < unix_ms_ + kMomentMs;
}

// ---- keys -----------------------------------------------------------------------------------------------------------

void DiskCheck::key_dies(const std::string& job) {
  if (auto key = keys_.extract(job)) dying_.push_back({job, std::move(key.mapped()), world_.loop.now_ms()});
}

void DiskCheck::trouble() { trouble_ms_ = world_.loop.now_ms(); }

void DiskCheck::check_keys(bool all) {
  const std::int64_t now = world_.loop.now_ms();
  std::erase_if(dying_, [&](const DyingKey& dying) {
    if (!all && now < std::max(dying.since_ms, trouble_ms_) + kErasedWithinMs) return false;
    if (world_.device.holds(kKeyFile, dying.key))
      world_.oracle.violate("the key of a job that is over is still there: " + dying.job);
    return true;
  });
  if (world_.device.forbidden_seen()) world_.oracle.violate("a payload was written in the clear");
}

// ---- the beginning --------------------------------------------------------------------------------------------------

const store::testing::FaultyDisk& empty_disk() {
  static const store::testing::FaultyDisk disk(0);
  return disk;
}

const store::testing::FaultyDisk& prepared_disk() {
  static const auto disk = [] {
    auto out = std::make_unique<store::testing::FaultyDisk>(0);
    store::testing::create_database(*out, std::string(kStateDirectory) + "/orchestrator.db", kPageBytes);
    const base::ManualClock clock;
    base::SeededEntropy entropy(0);
    store::SqliteStoreOptions options;
    options.directory = kStateDirectory;
    options.clock = &clock;
    options.entropy = &entropy;
    options.sqlite_vfs = out->sqlite_vfs();
    options.open_file = out->door();
    (*store::open_sqlite_core(std::move(options)))->close();
    return out;
  }();
  return *disk;
}

}  // namespace llorch::sim
