#include "orchestratord/state_store/sqlite_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <variant>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "orchestratord/state_store/payload/sealing.h"
#include "orchestratord/state_store/sqlite/database.h"
#include "orchestratord/state_store/sqlite/job_table.h"
#include "orchestratord/state_store/sqlite/migrations.h"

namespace llorch::orchestratord::state_store {
namespace {

using base::ErrorCode;

// A key overwritten by a terminal event is synced with the next admission, at the latest after this (DECISIONS §5: 1 s).
constexpr std::chrono::milliseconds kErasureSyncDelay{500};
// Between attempts to commit transitions while the disk refuses.
constexpr std::chrono::milliseconds kRetryDelay{200};
constexpr std::int64_t kCleanUpPeriodMs = 3'600'000;
constexpr std::int64_t kCleanUpRowsMax = 1000;

struct AdmitItem {
  Admission admission;
  Store::Done done;
};
struct TransitionItem {
  Transition transition;
  Store::Done done;
  base::Result<> result;  // of the statements; counts once the transaction is committed
};
// Best effort: a failed one is not repeated.
using NoteItem = std::function<base::Result<>(sqlite::Database&)>;
// Answered after the batch's commit, with the connection or the reason why there is none.
struct QueryItem {
  std::function<void(base::Result<sqlite::Database*>)> run;
};
using Item = std::variant<AdmitItem, TransitionItem, NoteItem, QueryItem>;

// An admission whose key is written and whose rows are about to be committed.
struct Prepared {
  AdmitItem* item = nullptr;
  std::optional<payload::Slot> slot;
  std::optional<sqlite::PayloadRow> row;
  base::Result<> result;
};

base::Error stopping() {
  return base::Error{ErrorCode::kShuttingDown, "the job store is stopping; try again when the daemon is back", {}};
}

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(SqliteStoreOptions options) : options_(std::move(options)) {}
  ~SqliteStore() override { stop(); }

  base::Result<> start();

  void admit(Admission admission, Done done) override { post(AdmitItem{std::move(admission), std::move(done)}); }
  void transition(Transition transition, Done done) override {
    post(TransitionItem{std::move(transition), std::move(done), {}});
  }
  void checkpoint(std::vector<Checkpoint> checkpoints) override;
  void remember_pool(KnownPool pool) override;
  void forget_pool(base::PoolId pool_id) override;
  void find(base::JobId job_id, Found done) override;
  void find_task(std::string task_id, Found done) override;
  void list(std::int64_t count_max, Listed done) override;
  base::Result<RestoredState> restore() override;
  void stop() override;

 private:
  void post(Item item);
  template <class Value, class Read>
  void query(Read read, std::function<void(base::Result<Value>)> done);
  static void refuse(Item& item, const base::Error& error);

  // Everything below runs on the store's thread (and in start(), before it exists).
  void run();
  std::deque<Item> wait_for_items();
  void process(std::deque<Item> items);
  struct Batch {
    std::vector<AdmitItem> admissions;
    std::vector<TransitionItem> transitions;
    std::vector<NoteItem> notes;
    bool empty() const { return admissions.empty() && transitions.empty() && notes.empty(); }
  };
  void commit(Batch batch);
  std::vector<Prepared> prepare(std::vector<AdmitItem>& admissions);
  base::Result<> write(std::vector<Prepared>& prepared, Batch& batch);
  base::Result<> write_forgets(sqlite::Database& database);
  base::Result<> write_admissions(sqlite::Database& database, std::vector<Prepared>& prepared);
  base::Result<> write_transitions(sqlite::Database& database, std::vector<TransitionItem>& transitions);
  void finish_admissions(std::vector<Prepared>& prepared, const base::Result<>& committed);
  void finish_transitions(std::vector<TransitionItem>& transitions, const base::Result<>& committed);
  base::Result<sqlite::Database*> connection();
  void drop_connection(const base::Error& error);
  base::Result<RestoredState> read_live(sqlite::Database& database);
  void sync_erasures();
  void clean_up();

  const SqliteStoreOptions options_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> mailbox_;  // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::thread thread_;

  std::optional<sqlite::Database> database_;
  std::optional<payload::PayloadKeys> keys_;
  std::map<base::JobId, payload::Slot> slots_;  // of live jobs
  // Jobs of a commit that failed half-way. The log may still hold them, and a restart would find them committed, though
  // their clients were refused: they are deleted by the next commit that succeeds.
  std::vector<base::JobId> forgets_;
  std::set<base::JobId> unsettled_;  // their terminal transition was in such a commit
  bool failing_ = false;             // the last commit was refused
  std::optional<std::chrono::steady_clock::time_point> erasure_due_;
  std::int64_t next_clean_up_ms_ = std::numeric_limits<std::int64_t>::min();
};

base::Result<> SqliteStore::start() {
  const std::string version = TRY(sqlite::check_library());
  sqlite::Database* database = TRY(connection());
  TRY(sqlite::migrate(*database, sqlite::migrations(), options_.clock->now().unix_ms));
  keys_.emplace(TRY(options_.open_keys(options_.directory / "payload.keys")), *options_.entropy);
  std::set<payload::Slot> live;
  for (const sqlite::LiveJob& job : TRY(sqlite::live_jobs(*database))) {
    if (!job.payload) continue;
    live.insert(payload::Slot{job.payload->key_slot});
    slots_.emplace(job.job.job_id, payload::Slot{job.payload->key_slot});
  }
  TRY(keys_->adopt(live));
  clean_up();
  base::log_event(base::LogLevel::kInfo, "store.opened", {}, "The job store is open.",
                  {{"sqlite_version", version}, {"live_jobs", slots_.size()}});
  thread_ = std::thread([this] { run(); });
  return {};
}

void SqliteStore::post(Item item) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      mailbox_.push_back(std::move(item));
      wake_.notify_one();
      return;
    }
  }
  refuse(item, stopping());
}

void SqliteStore::refuse(Item& item, const base::Error& error) {
  if (auto* admit = std::get_if<AdmitItem>(&item)) admit->done(base::fail(error));
  if (auto* move = std::get_if<TransitionItem>(&item)) move->done(base::fail(error));
  if (auto* query = std::get_if<QueryItem>(&item)) query->run(base::fail(error));
}

template <class Value, class Read>
void SqliteStore::query(Read read, std::function<void(base::Result<Value>)> done) {
  post(QueryItem{[read = std::move(read), done = std::move(done)](base::Result<sqlite::Database*> database) {
    if (!database) return done(base::fail(std::move(database).error()));
    done(read(**database));
  }});
}

void SqliteStore::checkpoint(std::vector<Checkpoint> checkpoints) {
  post(NoteItem{[checkpoints = std::move(checkpoints)](sqlite::Database& db) -> base::Result<> {
    for (const Checkpoint& checkpoint : checkpoints) TRY(sqlite::upsert_checkpoint(db, checkpoint));
    return {};
  }});
}

void SqliteStore::remember_pool(KnownPool pool) {
  post(NoteItem{[pool = std::move(pool), now = options_.clock->now().unix_ms](sqlite::Database& db) {
    return sqlite::upsert_pool(db, pool, now);
  }});
}

void SqliteStore::forget_pool(base::PoolId pool_id) {
  post(NoteItem{[pool_id = std::move(pool_id)](sqlite::Database& db) { return sqlite::delete_pool(db, pool_id); }});
}

void SqliteStore::find(base::JobId job_id, Found done) {
  query<std::optional<JobRecord>>(
      [job_id = std::move(job_id)](sqlite::Database& db) { return sqlite::find_job(db, job_id); }, std::move(done));
}

void SqliteStore::find_task(std::string task_id, Found done) {
  query<std::optional<JobRecord>>(
      [task_id = std::move(task_id)](sqlite::Database& db) { return sqlite::find_job_by_task(db, task_id); },
      std::move(done));
}

void SqliteStore::list(std::int64_t count_max, Listed done) {
  query<std::vector<JobRecord>>([count_max](sqlite::Database& db) { return sqlite::newest_jobs(db, count_max); },
                                std::move(done));
}

base::Result<RestoredState> SqliteStore::restore() {
  std::promise<base::Result<RestoredState>> promise;
  query<RestoredState>([this](sqlite::Database& db) { return read_live(db); },
                       [&promise](base::Result<RestoredState> state) { promise.set_value(std::move(state)); });
  return promise.get_future().get();
}

base::Result<RestoredState> SqliteStore::read_live(sqlite::Database& database) {
  RestoredState state;
  state.pool_endpoints = TRY(sqlite::pool_endpoints(database));
  for (sqlite::LiveJob& live : TRY(sqlite::live_jobs(database))) {
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

void SqliteStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SqliteStore::run() {
  while (true) {
    std::deque<Item> items = wait_for_items();
    const bool last = items.empty();
    process(std::move(items));
    const std::lock_guard lock(mutex_);
    if (last && stopping_ && mailbox_.empty()) break;
  }
  if (keys_->erasure_pending()) (void)keys_->sync();  // what fails here is overwritten at the next start
  if (database_) (void)database_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
  database_.reset();
}

// Empty when a delay has passed or the store stops.
std::deque<Item> SqliteStore::wait_for_items() {
  std::unique_lock lock(mutex_);
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kCleanUpPeriodMs);
  if (!forgets_.empty()) until = std::chrono::steady_clock::now() + kRetryDelay;
  if (erasure_due_) until = std::min(until, *erasure_due_);
  wake_.wait_until(lock, until, [this] { return stopping_ || !mailbox_.empty(); });
  return std::exchange(mailbox_, {});
}

void SqliteStore::process(std::deque<Item> items) {
  Batch batch;
  std::vector<QueryItem> queries;
  for (Item& item : items) {
    if (auto* admit = std::get_if<AdmitItem>(&item)) batch.admissions.push_back(std::move(*admit));
    if (auto* move = std::get_if<TransitionItem>(&item)) batch.transitions.push_back(std::move(*move));
    if (auto* note = std::get_if<NoteItem>(&item)) batch.notes.push_back(std::move(*note));
    if (auto* query = std::get_if<QueryItem>(&item)) queries.push_back(std::move(*query));
  }
  if (!batch.empty() || !forgets_.empty()) commit(std::move(batch));
  for (QueryItem& query : queries) {
    if (forgets_.empty()) {
      query.run(connection());
    } else {  // the rows may hold a job that was refused
      query.run(base::fail(ErrorCode::kStoreUnavailable, "the job store recovers from a failed commit; try again"));
    }
  }
  sync_erasures();
  clean_up();
}

void SqliteStore::sync_erasures() {
  const auto now = std::chrono::steady_clock::now();
  if (erasure_due_ && now >= *erasure_due_) (void)keys_->sync();  // what fails stays pending
  if (!keys_->erasure_pending()) {
    erasure_due_.reset();
  } else if (!erasure_due_ || now >= *erasure_due_) {
    erasure_due_ = now + kErasureSyncDelay;
  }
}

// One transaction for everything that waits. Keys reach the disk before the rows that need them.
void SqliteStore::commit(Batch batch) {
  std::vector<Prepared> prepared = prepare(batch.admissions);
  const base::Result<> committed = write(prepared, batch);
  if (!committed) {
    drop_connection(committed.error());
  } else if (failing_) {
    failing_ = false;
    base::log_event(base::LogLevel::kInfo, "store.recovered", {}, "The job store commits again.");
  }
  if (committed) forgets_.clear();
  finish_admissions(prepared, committed);
  finish_transitions(batch.transitions, committed);
}

std::vector<Prepared> SqliteStore::prepare(std::vector<AdmitItem>& admissions) {
  std::vector<Prepared> prepared;
  prepared.reserve(admissions.size());
  bool keys_written = false;
  for (AdmitItem& item : admissions) {
    Prepared& next = prepared.emplace_back();
    next.item = &item;
    if (!item.admission.payload) continue;
    auto created = keys_->create();
    if (!created) {
      next.result = base::fail(std::move(created).error());
      continue;
    }
    keys_written = true;
    next.slot = created->first;
    auto sealed = payload::seal(created->second, {.associated_data = item.admission.job.job_id.value},
                                *item.admission.payload, *options_.entropy);
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

base::Result<> SqliteStore::write(std::vector<Prepared>& prepared, Batch& batch) {
  sqlite::Database& database = *TRY(connection());
  TRY(database.execute("BEGIN IMMEDIATE"));
  TRY(write_forgets(database));  // before the admissions: a refused job may have come back under the same id
  TRY(write_admissions(database, prepared));
  TRY(write_transitions(database, batch.transitions));
  for (const NoteItem& note : batch.notes) TRY(note(database));
  return database.execute("COMMIT");
}

base::Result<> SqliteStore::write_forgets(sqlite::Database& database) {
  for (const base::JobId& job_id : forgets_) TRY(sqlite::delete_job(database, job_id));
  return {};
}

base::Result<> SqliteStore::write_admissions(sqlite::Database& database, std::vector<Prepared>& prepared) {
  for (Prepared& p : prepared) {
    if (!p.result) continue;
    TRY(database.execute("SAVEPOINT admission"));
    auto inserted = sqlite::insert_job(database, p.item->admission.job, p.row);
    if (!inserted && inserted.error().code != ErrorCode::kConflict) return inserted;
    if (!inserted) TRY(database.execute("ROLLBACK TO admission"));
    TRY(database.execute("RELEASE admission"));
    p.result = std::move(inserted);
  }
  return {};
}

base::Result<> SqliteStore::write_transitions(sqlite::Database& database, std::vector<TransitionItem>& transitions) {
  for (TransitionItem& item : transitions) {
    const bool repeat = unsettled_.contains(item.transition.job_id);
    item.result =
        sqlite::update_job(database, item.transition, repeat ? sqlite::Attempt::kRepeat : sqlite::Attempt::kFirst);
    if (!item.result && base::info(item.result.error().code).retriable) return item.result;
  }
  return {};
}

void SqliteStore::finish_admissions(std::vector<Prepared>& prepared, const base::Result<>& committed) {
  for (Prepared& p : prepared) {
    if (p.result && !committed) {
      p.result = base::fail(committed.error());
      forgets_.push_back(p.item->admission.job.job_id);
    }
    if (p.slot && p.result) slots_.emplace(p.item->admission.job.job_id, *p.slot);
    if (p.slot && !p.result) keys_->erase(*p.slot);
    p.item->done(p.result);
  }
}

void SqliteStore::finish_transitions(std::vector<TransitionItem>& transitions, const base::Result<>& committed) {
  for (TransitionItem& item : transitions) {
    const base::JobId& job_id = item.transition.job_id;
    const bool terminal = contract::is_terminal(item.transition.progress.status);
    if (!committed) {
      if (terminal) unsettled_.insert(job_id);
      item.done(committed);
      continue;
    }
    if (item.result && terminal) {
      unsettled_.erase(job_id);
      if (const auto slot = slots_.extract(job_id)) keys_->erase(slot.mapped());
    }
    item.done(item.result);
  }
}

base::Result<sqlite::Database*> SqliteStore::connection() {
  if (!database_) {
    database_ = TRY(sqlite::Database::open(
        {.path = (options_.directory / "orchestrator.db").string(), .vfs = options_.sqlite_vfs}));
  }
  return &*database_;
}

// After a failure the state of the connection and of its transaction is not worth knowing: the next use opens another.
void SqliteStore::drop_connection(const base::Error& error) {
  database_.reset();
  if (failing_) return;
  failing_ = true;
  base::log_event(base::LogLevel::kError, "store.failed", {}, "The job store cannot commit.",
                  {{"error_code", error.name()}, {"error", error.message}});
}

void SqliteStore::clean_up() {
  const base::Time now = options_.clock->now();
  if (now.mono_ms < next_clean_up_ms_ || !database_) return;
  next_clean_up_ms_ = now.mono_ms + kCleanUpPeriodMs;
  const std::int64_t before = now.unix_ms - options_.retention_ms;
  while (true) {
    const auto removed =
        sqlite::delete_finished(*database_, {.finished_before_unix_ms = before, .count_max = kCleanUpRowsMax});
    if (!removed) return drop_connection(removed.error());
    if (*removed < kCleanUpRowsMax) return;
  }
}

}  // namespace

base::Result<std::unique_ptr<Store>> open_sqlite_store(SqliteStoreOptions options) {
  ASSERT(options.clock != nullptr && options.entropy != nullptr);
  auto store = std::make_unique<SqliteStore>(std::move(options));
  TRY(store->start());
  return std::unique_ptr<Store>(std::move(store));
}

StateDirectoryLock::StateDirectoryLock(StateDirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
StateDirectoryLock& StateDirectoryLock::operator=(StateDirectoryLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
StateDirectoryLock::~StateDirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

base::Result<StateDirectoryLock> lock_state_directory(const std::filesystem::path& directory) {
  const auto unavailable = [](base::Error error) {
    error.code = ErrorCode::kStoreUnavailable;
    error.message += "; give --state-dir a folder this user may write";
    return base::fail(std::move(error));
  };
  if (auto made = base::ensure_private_directory(directory); !made) return unavailable(std::move(made).error());
  const std::filesystem::path path = directory / "orchestrator.lock";
  StateDirectoryLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const int fd = lock.fd();
  if (fd < 0) return unavailable(base::io_error("cannot open", path, errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return unavailable(base::io_error("cannot lock", path, errno));
    return base::fail(ErrorCode::kAlreadyRunning,
                      fmt::format("another orchestratord owns the state directory {}; stop it or give --state-dir",
                                  directory.string()));
  }
  return lock;
}

}  // namespace llorch::orchestratord::state_store
