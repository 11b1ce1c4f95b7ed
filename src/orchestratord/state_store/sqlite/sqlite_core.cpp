#include "orchestratord/state_store/sqlite/sqlite_core.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/state_store/payload/payload_keys.h"
#include "orchestratord/state_store/payload/sealing.h"
#include "orchestratord/state_store/sqlite/database.h"
#include "orchestratord/state_store/sqlite/job_table.h"
#include "orchestratord/state_store/sqlite/migrations.h"
#include "orchestratord/state_store/sqlite/session_table.h"

namespace llorch::orchestratord::state_store {
namespace {

using base::ErrorCode;

// A key overwritten by a terminal event is synced with the next admission, at the latest after this (DECISIONS §5: 1 s).
constexpr std::int64_t kErasureSyncDelayMs = 500;
// Between attempts to settle admissions in doubt while the disk refuses.
constexpr std::int64_t kRetryDelayMs = 200;
constexpr std::int64_t kCleanUpPeriodMs = 3'600'000;
constexpr std::int64_t kCleanUpRowsMax = 1000;

// An admission whose key is written.
struct Prepared {
  Admit operation;
  std::optional<payload::Slot> slot;
  std::optional<sqlite::PayloadRow> row;
  base::Result<> result;
};
struct Moved {
  Move operation;
  base::Result<> result;  // of the statements; counts once the transaction is committed
};
using Note = std::variant<SaveCheckpoints, ForgetSession, RememberPool, SetDraining, ForgetPool>;
using Query = std::variant<Find, FindTask, List, Restore>;

struct Batch {
  std::vector<Admit> admissions;
  std::vector<Moved> moves;
  std::vector<RememberSession> sessions;
  std::vector<Note> notes;
  std::vector<Query> queries;
  bool writes() const { return !admissions.empty() || !moves.empty() || !sessions.empty() || !notes.empty(); }
};

class SqliteCore final : public StoreCore {
 public:
  explicit SqliteCore(SqliteStoreOptions options) : options_(std::move(options)) {}

  base::Result<> open();
  void run(std::vector<Operation> group) override;
  std::int64_t due_mono_ms() const override;
  void close() override;

 private:
  using Ended = sqlite::Database::Ended;

  std::int64_t now_ms() const { return options_.clock->now().mono_ms; }
  void settle();
  void commit(Batch& batch);
  static void refuse(Batch& batch, const base::Error& error);
  std::vector<Prepared> prepare(std::vector<Admit>& admissions);
  base::Result<> write(Batch& batch, std::vector<Prepared>& prepared);
  base::Result<> write_admissions(std::vector<Prepared>& prepared);
  base::Result<> write_moves(std::vector<Moved>& moves);
  base::Result<> write_note(const Note& note);
  void finish_admissions(std::vector<Prepared> prepared, const Ended& ended);
  void finish_moves(std::vector<Moved>& moves, const Ended& ended);
  static void finish_notes(const std::vector<Note>& notes, const base::Result<>& result);
  void note_health(const Ended& ended);
  void answer(const Query& query);
  base::Result<RestoredState> read_live();
  void sync_erasures();
  void clean_up();

  const SqliteStoreOptions options_;
  std::optional<sqlite::Database> database_;
  std::optional<payload::PayloadKeys> keys_;
  std::map<base::JobId, payload::Slot> slots_;  // of live jobs
  // Admissions whose commit failed after it may have reached the log: a restart could find them. Neither "yes" nor "no" is
  // true until a later commit has taken their place in the log, so they are tried again and nobody is told meanwhile.
  std::vector<Prepared> in_doubt_;
  std::optional<base::Error> failure_;  // of the last commit
  std::int64_t retry_due_ms_ = kNever;
  std::int64_t erasure_due_ms_ = kNever;
  std::int64_t clean_up_due_ms_ = 0;
};

base::Result<> SqliteCore::open() {
  const std::string version = TRY(sqlite::check_library());
  const std::filesystem::path path = options_.directory / "orchestrator.db";
  TRY(options_.open_file(path));  // its mode is also the one SQLite gives its log
  auto log = TRY(options_.open_file(path.string() + "-wal"));
  TRY(files::write_again(*log));
  log.reset();
  database_ = TRY(sqlite::Database::open(
      {.path = path.string(), .vfs = options_.sqlite_vfs, .checkpoint_pages = options_.checkpoint_pages}));
  TRY(sqlite::migrate(*database_, sqlite::migrations(), options_.clock->now().unix_ms));
  keys_.emplace(TRY(options_.open_file(options_.directory / "payload.keys")), *options_.entropy);
  std::set<payload::Slot> live;
  for (const sqlite::LiveJob& job : TRY(sqlite::live_jobs(*database_))) {
    if (!job.payload) continue;
    live.insert(payload::Slot{job.payload->key_slot});
    slots_.emplace(job.job.job_id, payload::Slot{job.payload->key_slot});
  }
  TRY(keys_->adopt(live));
  clean_up();
  base::log_event(base::LogLevel::kInfo, "store.opened", {}, "The job store is open.",
                  {{"sqlite_version", version}, {"live_jobs", slots_.size()}});
  return {};
}

void SqliteCore::run(std::vector<Operation> group) {
  Batch batch;
  for (Operation& operation : group) {
    std::visit(
        [&](auto& op) {
          using Op = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<Op, Admit>) {
            batch.admissions.push_back(std::move(op));
          } else if constexpr (std::is_same_v<Op, Move>) {
            batch.moves.push_back({std::move(op), {}});
          } else if constexpr (std::is_same_v<Op, RememberSession>) {
            batch.sessions.push_back(std::move(op));
          } else if constexpr (std::is_constructible_v<Note, Op>) {
            batch.notes.emplace_back(std::move(op));
          } else {
            batch.queries.emplace_back(std::move(op));
          }
        },
        operation);
  }
  if (!in_doubt_.empty()) settle();
  if (!in_doubt_.empty()) {
    refuse(batch, *failure_);
  } else if (batch.writes()) {
    commit(batch);
  }
  for (const Query& query : batch.queries) answer(query);
  sync_erasures();
  if (now_ms() >= clean_up_due_ms_) clean_up();
}

std::int64_t SqliteCore::due_mono_ms() const { return std::min({retry_due_ms_, erasure_due_ms_, clean_up_due_ms_}); }

void SqliteCore::close() {
  if (!in_doubt_.empty()) settle();
  for (const Prepared& p : std::exchange(in_doubt_, {})) {
    p.operation.done(
        base::fail(ErrorCode::kShuttingDown,
                   "the job store stopped before the disk had decided; ask for the job after the restart"));
  }
  if (keys_->erasure_pending()) (void)keys_->sync();            // what fails here is overwritten at the next start
  (void)database_->execute("PRAGMA wal_checkpoint(TRUNCATE)");  // what fails here the next start finds in the log
  database_.reset();
}

// ---- commits --------------------------------------------------------------------------------------------------------

void SqliteCore::settle() {
  const Ended ended = database_->transaction([this] { return write_admissions(in_doubt_); });
  note_health(ended);
  if (!ended.result) {
    retry_due_ms_ = now_ms() + kRetryDelayMs;
    return;
  }
  retry_due_ms_ = kNever;
  finish_admissions(std::exchange(in_doubt_, {}), ended);
}

void SqliteCore::refuse(Batch& batch, const base::Error& error) {
  for (const Admit& admit : batch.admissions) admit.done(base::fail(error));
  for (const Moved& moved : batch.moves) moved.operation.done(base::fail(error));
  for (const RememberSession& session : batch.sessions) session.done(base::fail(error));
  finish_notes(batch.notes, base::fail(error));
}

// One transaction for everything that waits. Keys reach the disk before the rows that need them.
void SqliteCore::commit(Batch& batch) {
  std::vector<Prepared> prepared = prepare(batch.admissions);
  const Ended ended = database_->transaction([&] { return write(batch, prepared); });
  note_health(ended);
  finish_admissions(std::move(prepared), ended);
  finish_moves(batch.moves, ended);
  for (const RememberSession& session : batch.sessions) session.done(ended.result);
  finish_notes(batch.notes, ended.result);
}

std::vector<Prepared> SqliteCore::prepare(std::vector<Admit>& admissions) {
  std::vector<Prepared> prepared;
  prepared.reserve(admissions.size());
  bool keys_written = false;
  for (Admit& operation : admissions) {
    Prepared& next = prepared.emplace_back();
    next.operation = std::move(operation);
    const Admission& admission = next.operation.admission;
    if (!admission.payload) continue;
    auto created = keys_->create();
    if (!created) {
      next.result = base::fail(std::move(created).error());
      continue;
    }
    keys_written = true;
    next.slot = created->first;
    auto sealed = payload::seal(created->second, {.associated_data = admission.job.job_id.value}, *admission.payload,
                                *options_.entropy);
    next.row = sqlite::PayloadRow{payload::index(*next.slot), std::move(sealed.nonce), std::move(sealed.ciphertext)};
  }
  if (keys_written) {
    if (const auto synced = keys_->sync(); !synced) {
      for (Prepared& p : prepared) {
        if (p.slot) p.result = base::fail(synced.error());
      }
    }
  }
  return prepared;
}

base::Result<> SqliteCore::write(Batch& batch, std::vector<Prepared>& prepared) {
  TRY(write_admissions(prepared));
  TRY(write_moves(batch.moves));
  for (const RememberSession& session : batch.sessions) TRY(sqlite::upsert_session(*database_, session.session));
  for (const Note& note : batch.notes) TRY(write_note(note));
  return {};
}

base::Result<> SqliteCore::write_admissions(std::vector<Prepared>& prepared) {
  for (Prepared& p : prepared) {
    if (!p.result) continue;
    const Admission& admission = p.operation.admission;
    if (TRY(sqlite::insert_job(*database_, admission.job, p.row))) {
      if (admission.session) TRY(sqlite::upsert_session(*database_, *admission.session));
      continue;
    }
    p.result = base::fail(ErrorCode::kConflict, "a job with this job_id or task_id exists");
  }
  return {};
}

base::Result<> SqliteCore::write_moves(std::vector<Moved>& moves) {
  for (Moved& moved : moves) {
    switch (TRY(sqlite::update_job(*database_, moved.operation.transition))) {
      case sqlite::Update::kDone: break;
      case sqlite::Update::kMissing:
        moved.result = base::fail(ErrorCode::kNotFound, "the job store has no such job");
        break;
      case sqlite::Update::kTerminal:
        moved.result = base::fail(ErrorCode::kConflict, "the job already has its terminal state");
        break;
    }
  }
  return {};
}

base::Result<> SqliteCore::write_note(const Note& note) {
  if (const auto* pool = std::get_if<RememberPool>(&note)) {
    return sqlite::upsert_pool(*database_, pool->pool, options_.clock->now().unix_ms);
  }
  if (const auto* set = std::get_if<SetDraining>(&note)) {
    return sqlite::set_draining(*database_, set->pool, options_.clock->now().unix_ms);
  }
  if (const auto* pool = std::get_if<ForgetPool>(&note)) return sqlite::delete_pool(*database_, pool->pool_id);
  if (const auto* session = std::get_if<ForgetSession>(&note)) {
    return sqlite::delete_session(*database_, session->session_key);
  }
  for (const Checkpoint& c : std::get<SaveCheckpoints>(note).checkpoints) TRY(sqlite::upsert_checkpoint(*database_, c));
  return {};
}

void SqliteCore::finish_admissions(std::vector<Prepared> prepared, const Ended& ended) {
  for (Prepared& p : prepared) {
    if (p.result && ended.in_doubt) {
      retry_due_ms_ = now_ms() + kRetryDelayMs;
      in_doubt_.push_back(std::move(p));
      continue;
    }
    if (p.result && !ended.result) p.result = base::fail(ended.result.error());
    if (p.slot && p.result) slots_.emplace(p.operation.admission.job.job_id, *p.slot);
    if (p.slot && !p.result) keys_->erase(*p.slot);
    p.operation.done(p.result);
  }
}

void SqliteCore::finish_moves(std::vector<Moved>& moves, const Ended& ended) {
  for (Moved& moved : moves) {
    if (!ended.result) {
      moved.operation.done(base::fail(ended.result.error()));
      continue;
    }
    const Transition& transition = moved.operation.transition;
    if (moved.result && contract::is_terminal(transition.progress.status)) {
      if (const auto slot = slots_.extract(transition.job_id)) keys_->erase(slot.mapped());
    }
    moved.operation.done(moved.result);
  }
}

// Most notes are best effort; somebody waits for a drain.
void SqliteCore::finish_notes(const std::vector<Note>& notes, const base::Result<>& result) {
  for (const Note& note : notes) {
    if (const auto* set = std::get_if<SetDraining>(&note)) set->done(result);
  }
}

void SqliteCore::note_health(const Ended& ended) {
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

void SqliteCore::answer(const Query& query) {
  if (const auto* find = std::get_if<Find>(&query)) {
    find->done(sqlite::find_job(*database_, find->job_id));
  } else if (const auto* task = std::get_if<FindTask>(&query)) {
    task->done(sqlite::find_job_by_task(*database_, task->id));
  } else if (const auto* list = std::get_if<List>(&query)) {
    list->done(sqlite::newest_jobs(*database_, list->count_max));
  } else {
    std::get<Restore>(query).done(read_live());
  }
}

base::Result<RestoredState> SqliteCore::read_live() {
  RestoredState state;
  for (KnownPool& pool : TRY(sqlite::known_pools(*database_))) {
    state.pool_endpoints.push_back(std::move(pool.endpoint));
    if (pool.draining) state.draining_pools.push_back(std::move(pool.pool_id));
  }
  state.sessions = TRY(sqlite::all_sessions(*database_));
  for (sqlite::LiveJob& live : TRY(sqlite::live_jobs(*database_))) {
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

void SqliteCore::sync_erasures() {
  const std::int64_t now = now_ms();
  if (now >= erasure_due_ms_) (void)keys_->sync();  // what fails stays pending
  if (!keys_->erasure_pending()) {
    erasure_due_ms_ = kNever;
  } else if (erasure_due_ms_ == kNever || now >= erasure_due_ms_) {
    erasure_due_ms_ = now + kErasureSyncDelayMs;
  }
}

void SqliteCore::clean_up() {
  const base::Time now = options_.clock->now();
  clean_up_due_ms_ = now.mono_ms + kCleanUpPeriodMs;
  const std::int64_t before = now.unix_ms - options_.retention_ms;
  while (true) {
    const auto removed =
        sqlite::delete_finished(*database_, {.finished_before_unix_ms = before, .count_max = kCleanUpRowsMax});
    if (!removed || *removed < kCleanUpRowsMax) return;  // what fails is tried again in the next period
  }
}

}  // namespace

base::Result<std::unique_ptr<StoreCore>> open_sqlite_core(SqliteStoreOptions options) {
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  auto core = std::make_unique<SqliteCore>(std::move(options));
  TRY(core->open());
  return std::unique_ptr<StoreCore>(std::move(core));
}

}  // namespace llorch::orchestratord::state_store
