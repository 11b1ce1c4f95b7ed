#include "orchestratord/store/group_core.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/assert.h"
#include "base/fair_share.h"
#include "base/log.h"
#include "base/settled_clock.h"
#include "orchestratord/store/payload/payload_keys.h"
#include "orchestratord/store/payload/sealing.h"

namespace llorch::orchestratord::store {
namespace {

using base::ErrorCode;

// A key overwritten by a terminal event is synced when keys run short, at the latest after this, so that it is
// gone from the disk within 1 s.
constexpr std::int64_t kErasureSyncDelayMs = 500;
// How long a job's progress waits for another write to share its commit: nobody waits for it, and a restart that finds an
// older state runs the job again all the same.
constexpr std::int64_t kProgressDelayMs = 10;
// It lets writes of others go ahead at first: of several steps that a job takes in this time one is written.
constexpr std::int64_t kProgressJoinMs = 5;
// Between attempts to settle admissions in doubt while the disk refuses and nobody else wants to write.
constexpr std::int64_t kRetryDelayMs = 200;
// Retention looks for jobs that are too old this often; for jobs that are too many, whenever some ended.
constexpr std::int64_t kCleanUpPeriodMs = 60'000;
// How long jobs that are too many wait for a commit to go with, so that they cost no sync of their own.
constexpr std::int64_t kRemovalDelayMs = 20;
// Of the jobs that are kept, one in so many goes ahead of its time with those that are too many: rows that lie together are
// one page, and by themselves one each.
constexpr std::int64_t kAheadDivisor = 16;
constexpr std::int64_t kAnyTime = std::numeric_limits<std::int64_t>::max();
// Between two small parts of the space that is given back.
constexpr std::int64_t kSpacePauseMs = 10;
// A backup copies so much at a time and then waits for so long: 64 MiB/s, and who comes meanwhile waits for a fraction of a
// millisecond.
constexpr int kBackupStepPages = 32;
constexpr std::int64_t kBackupPauseMs = 2;

// An admission with its key.
struct Prepared {
  Admit operation;
  std::optional<payload::Slot> slot;
  std::optional<PayloadRow> row;
  base::Result<> result;
};
// A list under way.
struct Reading {
  List operation;
  std::vector<JobRecord> jobs;
};
struct Sealed {
  payload::Slot slot;
  std::int64_t bytes = 0;
};

struct Batch {
  std::vector<Admit> admissions;
  std::vector<Move> moves;
  std::vector<Note> notes;
  std::vector<Store::Done> noters;  // who waits for a note; most are best effort
  std::vector<Restore> restores;
  bool writes() const { return !admissions.empty() || !moves.empty() || !notes.empty(); }
};

// Records of finished jobs that are kept.
class KeptRecords {
 public:
  explicit KeptRecords(RecordsByTenant of_tenants) : of_tenants_(std::move(of_tenants)) {
    for (const auto& [tenant_id, records] : of_tenants_) {
      all_.count += records.count;
      all_.bytes += records.bytes;
    }
  }
  const Records& all() const { return all_; }
  const RecordsByTenant& of_tenants() const { return of_tenants_; }
  void add(const std::string& tenant_id, const Records& more) { change(tenant_id, more.count, more.bytes); }
  void remove(const std::string& tenant_id, const Records& gone) { change(tenant_id, -gone.count, -gone.bytes); }

 private:
  void change(const std::string& tenant_id, std::int64_t count, std::int64_t bytes) {
    const auto tenant = of_tenants_.try_emplace(tenant_id).first;
    for (Records* records : {&tenant->second, &all_}) {
      records->count += count;
      records->bytes += bytes;
    }
    if (tenant->second.count == 0) of_tenants_.erase(tenant);
  }

  RecordsByTenant of_tenants_;
  Records all_;
};

// Records that are too many.
struct Excess {
  std::int64_t count = 0;
  bool is_of_bytes = false;  // by retention.bytes_max, so tenants share bytes; else they share retention.count_max
};

std::int64_t mean_bytes(const Records& records) { return std::max<std::int64_t>(1, records.bytes / records.count); }

std::int64_t bytes_of(const PayloadRow& row) {
  return static_cast<std::int64_t>(row.nonce.size() + row.ciphertext.size());
}

class GroupCore final : public StoreCore {
 public:
  explicit GroupCore(GroupCoreOptions options) : options_(std::move(options)) {}

  base::Result<> open();
  void run(std::vector<Operation> group) override;
  std::int64_t due_mono_ms() const override;
  void close() override;

 private:
  void give_back_space();
  std::int64_t now_ms() const { return options_.clock->now().mono_ms; }
  void release_progress(Batch& batch);
  void settle();
  void commit(Batch& batch);
  static void refuse(Batch& batch, const base::Error& error);
  std::vector<Prepared> prepare(std::vector<Admit>& admissions);
  void finish_admissions(std::vector<Prepared> prepared, const std::vector<Insert>& inserts, const Ended& ended);
  void finish_moves(std::vector<Move>& moves, const std::vector<Update>& updates, const Ended& ended);
  void note_health(const Ended& ended);
  void answer_finds();
  base::Result<RestoredState> read_live();
  void sync_erasures();
  Excess excess();
  std::vector<Removal::Part> parts_of(const Excess& excess, std::int64_t count_max) const;
  std::optional<Removal> due_removal(std::int64_t count_max);
  void finish_removal(const std::optional<Removal>& removal, const Ended& ended);
  void clean_up();
  void step_list();
  void remember_payload(const base::JobId& job_id, const Sealed& sealed);
  std::optional<payload::Slot> forget_payload(const base::JobId& job_id);
  void begin_backup(BackupOrder order);
  void step_backup();
  void end_backup(base::Result<std::string> result);

  GroupCoreOptions options_;
  std::optional<payload::PayloadKeys> keys_;
  std::map<base::JobId, Sealed> payloads_;  // of live jobs
  std::int64_t payload_bytes_ = 0;          // of all of them
  std::deque<Reading> lists_;
  // A flood of either holds up neither a commit nor the other for longer than its slice.
  std::deque<Find> finds_;
  std::deque<FindTask> task_finds_;
  // Admissions whose commit failed after it may have reached the log: a restart could find them. Neither "yes" nor "no" is
  // true until a later commit has taken their place in the log, so they are tried again and nobody is told meanwhile.
  std::vector<Prepared> in_doubt_;
  std::set<base::JobId> moves_in_doubt_;  // to a terminal state; their callers repeat them
  std::vector<Move> progress_;            // waits for company
  std::optional<base::Error> failure_;    // of the last commit
  std::int64_t retry_due_ms_ = kNever;
  std::int64_t erasure_due_ms_ = kNever;
  std::int64_t progress_due_ms_ = kNever;
  std::int64_t clean_up_due_ms_ = 0;
  std::int64_t space_due_ms_ = 0;
  std::int64_t count_due_ms_ = 0;                   // after a count that failed
  std::optional<base::SettledClock> expiry_clock_;  // set by open()
  std::optional<KeptRecords> records_;              // none after an error: to be counted
  struct Backup {
    BackupOrder order;
    std::unique_ptr<DatabaseCopy> copy;
  };
  std::optional<Backup> backup_;  // destroyed before the backend
  std::int64_t backup_due_ms_ = kNever;
};

base::Result<> GroupCore::open() {
  keys_.emplace(std::move(options_.keys), *options_.entropy);
  std::set<payload::Slot> live;
  FinishedJobs finished = TRY(options_.backend->finished_jobs());
  records_.emplace(std::move(finished.records));
  std::optional<std::int64_t> newest_unix_ms = finished.latest_unix_ms;
  for (const LiveJob& job : TRY(options_.backend->live_jobs())) {
    newest_unix_ms = std::max(newest_unix_ms, std::optional(job.job.submitted_unix_ms));
    if (!job.payload) continue;
    live.insert(payload::Slot{job.payload->key_slot});
    remember_payload(job.job.job_id, {payload::Slot{job.payload->key_slot}, bytes_of(*job.payload)});
  }
  TRY(keys_->adopt(live));
  expiry_clock_.emplace(*options_.clock, newest_unix_ms);
  clean_up();
  base::log_event(base::LogLevel::kInfo, "store.opened", {}, "The job store is open.",
                  {{"live_jobs", payloads_.size()}});
  return {};
}

void GroupCore::run(std::vector<Operation> group) {
  Batch batch;
  for (Operation& operation : group) {
    std::visit(
        [&](auto& op) {
          using Op = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<Op, Admit>) {
            batch.admissions.push_back(std::move(op));
          } else if constexpr (std::is_same_v<Op, Move>) {
            const bool terminal = wire::is_terminal(op.transition.progress.status);
            (terminal ? batch.moves : progress_).push_back(std::move(op));
          } else if constexpr (std::is_same_v<Op, SaveCheckpoints>) {
            batch.notes.emplace_back(std::move(op.checkpoints));
          } else if constexpr (std::is_same_v<Op, RememberPool>) {
            batch.notes.emplace_back(PoolSeen{std::move(op.pool), options_.clock->now().unix_ms});
          } else if constexpr (std::is_same_v<Op, SetDesiredState>) {
            batch.notes.emplace_back(PoolDesired{std::move(op.pool), options_.clock->now().unix_ms});
            batch.noters.push_back(std::move(op.done));
          } else if constexpr (std::is_same_v<Op, ForgetPool>) {
            batch.notes.emplace_back(PoolGone{std::move(op.pool_id)});
            batch.noters.push_back(std::move(op.done));
          } else if constexpr (std::is_same_v<Op, RememberSession>) {
            batch.notes.emplace_back(std::move(op.session));
            batch.noters.push_back(std::move(op.done));
          } else if constexpr (std::is_same_v<Op, ForgetSession>) {
            batch.notes.emplace_back(SessionGone{op.session_key});
          } else if constexpr (std::is_same_v<Op, List>) {
            lists_.push_back({std::move(op), {}});
          } else if constexpr (std::is_same_v<Op, Find>) {
            finds_.push_back(std::move(op));
          } else if constexpr (std::is_same_v<Op, FindTask>) {
            task_finds_.push_back(std::move(op));
          } else if constexpr (std::is_same_v<Op, BackupOrder>) {
            begin_backup(std::move(op));
          } else {
            batch.restores.push_back(std::move(op));
          }
        },
        operation);
  }
  release_progress(batch);
  if (!in_doubt_.empty() && (batch.writes() || now_ms() >= retry_due_ms_)) settle();
  if (!in_doubt_.empty()) {
    refuse(batch, *failure_);
  } else if (batch.writes()) {
    commit(batch);
  }
  for (const Restore& restore : batch.restores) restore.done(read_live());
  answer_finds();
  sync_erasures();
  if (!lists_.empty()) step_list();
  if (now_ms() >= clean_up_due_ms_) clean_up();
  if (now_ms() >= space_due_ms_) give_back_space();
  if (now_ms() >= backup_due_ms_) step_backup();
}

std::int64_t GroupCore::due_mono_ms() const {
  if (!lists_.empty() || !finds_.empty() || !task_finds_.empty()) return now_ms();
  return std::min({retry_due_ms_, erasure_due_ms_, progress_due_ms_, clean_up_due_ms_, space_due_ms_, backup_due_ms_});
}

// Progress joins what is written once it has waited a little, at once what ends its job, and goes alone when it has waited
// long enough.
void GroupCore::release_progress(Batch& batch) {
  if (progress_.empty()) return;
  const std::int64_t now = now_ms();
  if (progress_due_ms_ == kNever) progress_due_ms_ = now + kProgressDelayMs;
  auto stays = progress_.begin();
  if (now < progress_due_ms_ && (!batch.writes() || progress_due_ms_ - now > kProgressDelayMs - kProgressJoinMs)) {
    std::unordered_set<base::JobId> ends;
    for (const Move& move : batch.moves) ends.insert(move.transition.job_id);
    stays = std::stable_partition(progress_.begin(), progress_.end(),
                                  [&](const Move& move) { return !ends.contains(move.transition.job_id); });
  }
  batch.moves.insert(batch.moves.begin(), std::make_move_iterator(stays), std::make_move_iterator(progress_.end()));
  progress_.erase(stays, progress_.end());
  if (progress_.empty()) progress_due_ms_ = kNever;
}

void GroupCore::close() {
  if (backup_) end_backup(base::fail(ErrorCode::kShuttingDown, "orchestratord stopped before the backup was whole"));
  progress_due_ms_ = progress_.empty() ? kNever : now_ms();
  if (!in_doubt_.empty()) retry_due_ms_ = now_ms();  // once more
  run({});
  while (!lists_.empty()) step_list();
  while (!finds_.empty() || !task_finds_.empty()) answer_finds();
  for (const Prepared& p : std::exchange(in_doubt_, {})) {
    p.operation.done(
        base::fail(ErrorCode::kShuttingDown,
                   "the job store stopped before the disk had decided; ask for the job after the restart"));
  }
  (void)keys_->close();  // what fails here is overwritten at the next start
  options_.backend->close();
}

// ---- commits --------------------------------------------------------------------------------------------------------

std::vector<Insert> inserts_of(const std::vector<Prepared>& prepared, Attempt attempt) {
  std::vector<Insert> inserts;
  for (const Prepared& p : prepared) {
    if (!p.result) continue;
    const Admission& admission = p.operation.admission;
    inserts.push_back({.job = &admission.job,
                       .payload = p.row ? &*p.row : nullptr,
                       .session = admission.session ? &*admission.session : nullptr,
                       .attempt = attempt});
  }
  return inserts;
}

void GroupCore::settle() {
  std::vector<Insert> inserts = inserts_of(in_doubt_, Attempt::kRepeat);
  const Ended ended = options_.backend->commit({inserts, {}, {}, nullptr});
  note_health(ended);
  if (!ended.result) {
    retry_due_ms_ = now_ms() + kRetryDelayMs;
    return;
  }
  retry_due_ms_ = kNever;
  finish_admissions(std::exchange(in_doubt_, {}), inserts, ended);
}

void GroupCore::refuse(Batch& batch, const base::Error& error) {
  for (const Admit& admit : batch.admissions) admit.done(base::fail(error));
  for (const Move& move : batch.moves) move.done(base::fail(error));
  for (const Store::Done& done : batch.noters) done(base::fail(error));
}

// What an earlier move of the same job would have left in the row.
void absorb(JobProgress& later, const JobProgress& earlier) {
  const auto keep = [](auto& value, const auto& before) {
    if (!value) value = before;
  };
  keep(later.worker_id, earlier.worker_id);
  keep(later.worker_version, earlier.worker_version);
  keep(later.pool_id, earlier.pool_id);
  keep(later.dispatched_unix_ms, earlier.dispatched_unix_ms);
  keep(later.started_unix_ms, earlier.started_unix_ms);
  keep(later.tokens_out, earlier.tokens_out);
  keep(later.decode_time_ms, earlier.decode_time_ms);
}

// Of several moves of one job the last is written, for all of them.
void join_moves(std::vector<Move>& moves) {
  std::unordered_map<base::JobId, std::size_t> last;
  std::size_t count = 0;
  for (Move& move : moves) {
    const auto [at, first] = last.try_emplace(move.transition.job_id, count);
    if (first) {
      if (&moves[count] != &move) moves[count] = std::move(move);
      ++count;
      continue;
    }
    Move& joined = moves[at->second];
    absorb(move.transition.progress, joined.transition.progress);
    joined.transition = std::move(move.transition);
    joined.done = [first = std::move(joined.done), second = std::move(move.done)](const base::Result<>& result) {
      first(result);
      second(result);
    };
  }
  moves.resize(count);
}

// One transaction for everything that waits. Keys are on the disk before the rows that need them.
void GroupCore::commit(Batch& batch) {
  std::vector<Prepared> prepared = prepare(batch.admissions);
  std::vector<Insert> inserts = inserts_of(prepared, Attempt::kFirst);
  join_moves(batch.moves);
  std::vector<Update> updates;
  for (const Move& move : batch.moves) {
    const bool repeat = moves_in_doubt_.contains(move.transition.job_id);
    updates.push_back(
        {.transition = &move.transition, .attempt = repeat ? Attempt::kRepeat : Attempt::kFirst, .result = {}});
  }
  std::optional<Removal> removal = due_removal(kRemovedPerCommitJobs);
  const Ended ended = options_.backend->commit({inserts, updates, batch.notes, removal ? &*removal : nullptr});
  note_health(ended);
  finish_removal(removal, ended);
  finish_admissions(std::move(prepared), inserts, ended);
  finish_moves(batch.moves, updates, ended);
  for (const Store::Done& done : batch.noters) done(ended.result);
}

std::vector<Prepared> GroupCore::prepare(std::vector<Admit>& admissions) {
  std::vector<Prepared> prepared;
  prepared.reserve(admissions.size());
  base::Result<> keys;  // the first refusal is that of the others: the disk is not asked again for each
  for (Admit& operation : admissions) {
    Prepared& next = prepared.emplace_back();
    next.operation = std::move(operation);
    const Admission& admission = next.operation.admission;
    if (!admission.payload) continue;
    auto created = keys ? keys_->create(admissions.size() + 1 - prepared.size()) : base::fail(keys.error());
    if (!created) {
      next.result = keys = base::fail(std::move(created).error());
      continue;
    }
    next.slot = created->first;
    auto sealed = payload::seal(created->second, {.associated_data = admission.job.job_id.value}, *admission.payload,
                                *options_.entropy);
    next.row = PayloadRow{payload::index(*next.slot), std::move(sealed.nonce), std::move(sealed.ciphertext)};
  }
  return prepared;
}

// `inserts` are those of the prepared ones that were not refused before.
void GroupCore::finish_admissions(std::vector<Prepared> prepared, const std::vector<Insert>& inserts,
                                  const Ended& ended) {
  auto insert = inserts.begin();
  for (Prepared& p : prepared) {
    if (p.result) {
      const base::Result<>& written = (insert++)->result;
      if (ended.in_doubt && written) {
        retry_due_ms_ = now_ms() + kRetryDelayMs;
        in_doubt_.push_back(std::move(p));
        continue;
      }
      p.result = ended.result ? written : ended.result;
    }
    if (p.slot && p.result) remember_payload(p.operation.admission.job.job_id, {*p.slot, bytes_of(*p.row)});
    if (p.slot && !p.result) keys_->erase(*p.slot);
    p.operation.done(p.result);
  }
}

void GroupCore::finish_moves(std::vector<Move>& moves, const std::vector<Update>& updates, const Ended& ended) {
  bool any_ended = false;
  bool is_repeated = false;  // its row may have ended, and been counted, the first time
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Transition& transition = moves[i].transition;
    const bool terminal = wire::is_terminal(transition.progress.status);
    if (!ended.result) {
      if (terminal && ended.in_doubt) moves_in_doubt_.insert(transition.job_id);
      moves[i].done(base::fail(ended.result.error()));
      continue;
    }
    const base::Result<>& written = updates[i].result;
    // A row that a database has lost with its last commits has ended as well.
    if (terminal && (written || written.error().code == ErrorCode::kNotFound)) {
      moves_in_doubt_.erase(transition.job_id);
      if (const auto slot = forget_payload(transition.job_id)) keys_->erase(*slot);
    }
    if (written && terminal) {
      any_ended = true;
      is_repeated |= updates[i].attempt == Attempt::kRepeat;
      if (records_) records_->add(updates[i].tenant_id, {.count = 1, .bytes = updates[i].record_bytes});
    }
    moves[i].done(updates[i].result);
  }
  if (!any_ended) return;
  if (is_repeated) records_.reset();
  if (excess().count > 0) clean_up_due_ms_ = std::min(clean_up_due_ms_, now_ms() + kRemovalDelayMs);
}

void GroupCore::note_health(const Ended& ended) {
  const bool failed_before = failure_.has_value();
  failure_.reset();
  if (!ended.result) failure_ = ended.result.error();
  if (failure_ && !failed_before) {
    base::log_event(base::LogLevel::kError, "store.failed", {}, "The job store cannot commit.",
                    {{"error_code", failure_->name()}, {"error", failure_->message}});
  } else if (!failure_ && failed_before) {
    base::log_event(base::LogLevel::kInfo, "store.recovered", {}, "The job store commits again.");
  }
}

// ---- reads ----------------------------------------------------------------------------------------------------------

void GroupCore::answer_finds() {
  for (std::size_t i = 0; i < kFindsPerGroup && !task_finds_.empty(); ++i, task_finds_.pop_front()) {
    task_finds_.front().done(options_.backend->find_task(task_finds_.front().id));
  }
  for (std::size_t i = 0; i < kFindsPerGroup && !finds_.empty(); ++i, finds_.pop_front()) {
    finds_.front().done(options_.backend->find(finds_.front().job_id));
  }
}

base::Result<RestoredState> GroupCore::read_live() {
  RestoredState state;
  state.settled_unix_ms = expiry_clock_->unix_ms();
  for (KnownPool& pool : TRY(options_.backend->pools())) {
    state.pool_endpoints.emplace(pool.pool_id, std::move(pool.endpoint));
    if (pool.desired.any()) state.desired_states.emplace(std::move(pool.pool_id), std::move(pool.desired));
  }
  state.sessions = TRY(options_.backend->sessions());
  const std::int64_t unix_ms = options_.clock->now().unix_ms;
  state.tenants = TRY(options_.backend->tenants(unix_ms - unix_ms % kDayMs));
  for (LiveJob& live : TRY(options_.backend->live_jobs())) {
    RestoredJob restored{std::move(live.job), std::nullopt};
    if (live.payload) {
      const auto key = keys_->read(payload::Slot{live.payload->key_slot});
      if (!key && key.error().code != ErrorCode::kCorruptFile) return base::fail(key.error());
      if (key) {
        auto text = payload::unseal(*key, {.associated_data = restored.job.job_id.value},
                                    {live.payload->nonce, live.payload->ciphertext});
        if (text) restored.payload = std::move(*text);
      }
    }
    state.jobs.push_back(std::move(restored));
  }
  return state;
}

// ---- what is due by itself ------------------------------------------------------------------------------------------

void GroupCore::sync_erasures() {
  const std::int64_t now = now_ms();
  if (now >= erasure_due_ms_) (void)keys_->sync();  // what fails stays pending
  if (!keys_->erasure_pending()) {
    erasure_due_ms_ = kNever;
  } else if (erasure_due_ms_ == kNever || now >= erasure_due_ms_) {
    erasure_due_ms_ = now + kErasureSyncDelayMs;
  }
}

// How many of the finished jobs are too many, by count or by bytes. None also if the disk does not say: it may read all rows for
// that, so it is asked again in the next period.
Excess GroupCore::excess() {
  const bool may_ask = now_ms() >= count_due_ms_;
  if (!records_) {
    if (!may_ask) return {};
    auto finished = options_.backend->finished_jobs();
    if (!finished) {
      count_due_ms_ = now_ms() + kCleanUpPeriodMs;
      return {};
    }
    records_.emplace(std::move(finished->records));
  }
  const Records& all = records_->all();
  if (all.count == 0) return {};
  const Excess by_count{.count = all.count - options_.retention.count_max, .is_of_bytes = false};
  if (!may_ask) return by_count;
  const auto bytes = options_.backend->record_bytes(payload_bytes_, all.bytes);
  if (!bytes) {
    count_due_ms_ = now_ms() + kCleanUpPeriodMs;
    return by_count;
  }
  const std::int64_t over = *bytes - options_.retention.bytes_max;
  if (over <= 0) return by_count;
  const Excess by_bytes{.count = over / mean_bytes({.count = all.count, .bytes = *bytes}) + 1, .is_of_bytes = true};
  return by_bytes.count > by_count.count ? by_bytes : by_count;
}

// `count_max` of the records that are too many, of the tenants that hold more than their share: whoever ends many jobs takes nobody else's
// records. A tenant alone has them all.
std::vector<Removal::Part> GroupCore::parts_of(const Excess& excess, std::int64_t count_max) const {
  std::int64_t left = std::min(excess.count, count_max);
  if (records_->of_tenants().size() == 1) return {{.tenant_id = {}, .count_max = left}};
  const auto held = [&](const Records& records) { return excess.is_of_bytes ? records.bytes : records.count; };
  const std::int64_t wanted = excess.count * (excess.is_of_bytes ? mean_bytes(records_->all()) : 1);
  std::vector<std::int64_t> by_tenant;
  for (const auto& [tenant_id, records] : records_->of_tenants()) by_tenant.push_back(held(records));
  const std::int64_t share = base::fair_share(by_tenant, std::max<std::int64_t>(0, held(records_->all()) - wanted));
  std::vector<Removal::Part> parts;
  for (const auto& [tenant_id, records] : records_->of_tenants()) {
    const std::int64_t over = held(records) - share;
    if (over <= 0) continue;
    const std::int64_t each = excess.is_of_bytes ? mean_bytes(records) : 1;
    parts.push_back({.tenant_id = tenant_id, .count_max = std::min(left, over / each + (over % each != 0 ? 1 : 0))});
    left -= parts.back().count_max;
    if (left == 0) break;
  }
  return parts;
}

// One slice: what comes meanwhile waits for no more than that. Jobs that are too many go with any commit, and some more with
// them, so that a steady load pays for a removal once in a while and never with a sync; jobs that are too old wait for their
// period.
std::optional<Removal> GroupCore::due_removal(std::int64_t count_max) {
  const std::int64_t now = now_ms();
  Excess too_many = clean_up_due_ms_ <= now + kRemovalDelayMs ? excess() : Excess();
  if (too_many.count <= 0 && now < clean_up_due_ms_) return std::nullopt;
  const std::int64_t unix_ms = expiry_clock_->unix_ms();
  const std::int64_t days_from = unix_ms - unix_ms % kDayMs;
  if (too_many.count <= 0) {
    return Removal{.finished_before_unix_ms = unix_ms - options_.retention.ms,
                   .parts = {{.tenant_id = {}, .count_max = count_max}},
                   .days_from_unix_ms = days_from};
  }
  too_many.count += std::min(records_->all().count / kAheadDivisor, kRemovedPerCommitJobs);
  return Removal{
      .finished_before_unix_ms = kAnyTime, .parts = parts_of(too_many, count_max), .days_from_unix_ms = days_from};
}

// What failed is tried again in the next period.
void GroupCore::finish_removal(const std::optional<Removal>& removal, const Ended& ended) {
  if (!removal) return;
  if (ended.in_doubt) records_.reset();
  std::int64_t removed = 0;
  for (const auto& [tenant_id, gone] : ended.result ? removal->removed : RecordsByTenant()) {
    removed += gone.count;
    if (records_) records_->remove(tenant_id, gone);
  }
  const std::int64_t now = now_ms();
  if (removed > 0 && space_due_ms_ == kNever) space_due_ms_ = now + kSpacePauseMs;
  const bool by_age = removal->finished_before_unix_ms != kAnyTime;
  const bool more = removed > 0 && (excess().count > 0 || (by_age && removed == removal->parts[0].count_max));
  clean_up_due_ms_ = more ? now : now + kCleanUpPeriodMs;
}

void GroupCore::clean_up() {
  std::optional<Removal> removal = due_removal(kRetentionSliceJobs);
  if (!removal) return;
  const Ended ended = options_.backend->commit({{}, {}, {}, &*removal});
  finish_removal(removal, ended);
}

void GroupCore::give_back_space() {
  const auto more = options_.backend->give_back_space();
  space_due_ms_ = more && *more ? now_ms() + kSpacePauseMs : kNever;
}

// ---- lists ----------------------------------------------------------------------------------------------------------

// One slice of the first list, which then goes behind the others.
void GroupCore::step_list() {
  Reading reading = std::move(lists_.front());
  lists_.pop_front();
  const Listing& wanted = reading.operation.listing;
  Listing slice = wanted;
  slice.count_max = std::min(kListSliceJobs, wanted.count_max - static_cast<std::int64_t>(reading.jobs.size()));
  if (!reading.jobs.empty()) slice.before = reading.jobs.back().arrival;
  auto jobs = options_.backend->newest(slice);
  if (!jobs) return reading.operation.done(base::fail(std::move(jobs).error()));
  const bool last = static_cast<std::int64_t>(jobs->size()) < slice.count_max;
  std::move(jobs->begin(), jobs->end(), std::back_inserter(reading.jobs));
  if (last || static_cast<std::int64_t>(reading.jobs.size()) == wanted.count_max) {
    return reading.operation.done(std::move(reading.jobs));
  }
  lists_.push_back(std::move(reading));
}

// ---- payloads of live jobs ------------------------------------------------------------------------------------------

void GroupCore::remember_payload(const base::JobId& job_id, const Sealed& sealed) {
  if (payloads_.emplace(job_id, sealed).second) payload_bytes_ += sealed.bytes;
}

std::optional<payload::Slot> GroupCore::forget_payload(const base::JobId& job_id) {
  const auto payload = payloads_.extract(job_id);
  if (!payload) return std::nullopt;
  payload_bytes_ -= payload.mapped().bytes;
  return payload.mapped().slot;
}

// ---- backup ---------------------------------------------------------------------------------------------------------

void GroupCore::begin_backup(BackupOrder order) {
  if (backup_) return order.done(base::fail(ErrorCode::kConflict, "another backup is being made; wait for its end"));
  auto copy = options_.backend->copy_into(order.database_file);
  if (!copy) return order.done(base::fail(std::move(copy).error()));
  backup_ = Backup{std::move(order), std::move(*copy)};
  backup_due_ms_ = now_ms();
}

// The last step sees the rows as every commit so far has left them, and `payloads_` are theirs: no commit is under way.
void GroupCore::step_backup() {
  if (!backup_->order.progress(backup_->copy->progress())) {
    return end_backup(base::fail(ErrorCode::kCancelled, "nobody waits for the backup any more"));
  }
  const auto whole = backup_->copy->step(kBackupStepPages);
  if (!whole) return end_backup(base::fail(whole.error()));
  if (!*whole) {
    backup_due_ms_ = now_ms() + kBackupPauseMs;
    return;
  }
  std::set<payload::Slot> live;
  for (const auto& [job, sealed] : payloads_) live.insert(sealed.slot);
  end_backup(keys_->image(live));
}

void GroupCore::end_backup(base::Result<std::string> result) {
  backup_due_ms_ = kNever;
  backup_->copy.reset();  // closes its file
  const auto done = std::move(backup_->order.done);
  backup_.reset();
  done(std::move(result));
}

}  // namespace

base::Result<std::unique_ptr<StoreCore>> open_group_core(GroupCoreOptions options) {
  ASSERT(options.backend != nullptr && options.keys != nullptr);
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  auto core = std::make_unique<GroupCore>(std::move(options));
  TRY(core->open());
  return std::unique_ptr<StoreCore>(std::move(core));
}

}  // namespace llorch::orchestratord::store
