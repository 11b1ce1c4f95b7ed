#pragma once
// What must survive a crash: jobs, their order and their sealed payloads. The narrow door to the database; nothing above
// it knows SQL, files or keys.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "orchestratord/core/sessions/session.h"
#include "wire/pool.h"
#include "wire/pool_control.h"
#include "wire/task.h"

namespace llorch::orchestratord::store {

// What changes in the life of a job.
struct JobProgress {
  wire::JobStatus status = wire::JobStatus::kQueued;
  std::int64_t attempts = 0;
  std::optional<std::string> worker_id;
  std::optional<std::string> worker_version;  // of the worker that last began it
  std::optional<std::string> pool_id;
  std::optional<std::int64_t> dispatched_unix_ms;
  std::optional<std::int64_t> started_unix_ms;
  std::optional<std::int64_t> finished_unix_ms;  // set exactly in the terminal states
  std::optional<std::int64_t> tokens_in;         // of the prompt, where it was a bound until now
  std::optional<std::int64_t> tokens_out;
  std::optional<std::int64_t> decode_time_ms;  // charged to the session
  std::optional<wire::EndEvent> end;           // completed
  std::optional<wire::ErrorBody> error;        // failed, cancelled
  std::optional<std::string> last_event_id;    // of the terminal event
};

struct JobRecord {
  base::JobId job_id;
  std::string task_id;
  std::string tenant_id;
  std::optional<std::string> session_id;
  std::optional<std::int64_t> session_key;  // with session_id: of which session of that id
  base::CorrelationId correlation_id;
  std::string request_sha256;
  wire::Priority priority = wire::Priority::kInteractive;
  std::string model;      // as the client wrote it
  std::string model_ref;  // what it resolved to
  wire::ModelFacts facts;
  std::string prompt_sha256;
  std::string params;  // JSON of the sampling parameters; nothing text-like
  std::int64_t max_tokens = 0;
  std::uint64_t seed = 0;
  wire::OnDisconnect on_disconnect = wire::OnDisconnect::kCancel;
  std::optional<std::int64_t> timeout_ms;
  std::optional<std::int64_t> deadline_ms;
  std::int64_t tokens_in = 0;
  std::int64_t submitted_unix_ms = 0;
  std::int64_t arrival = 0;  // order of admission; the store's to give
  JobProgress progress;
  std::optional<base::Error> unreadable{};  // names the first column that could not be read and has its default
};

struct Admission {
  JobRecord job;
  // Everything text-like of the job. Sealed under a key of its own; absent: not spooled.
  std::optional<std::string> payload;
  // Of a job with a session: written as well, if it is not there.
  std::optional<core::sessions::SessionRecord> session;
};

// Absent optionals leave their column as it is.
struct Transition {
  base::JobId job_id;
  JobProgress progress;
};

struct Checkpoint {
  base::JobId job_id;
  std::int64_t seq = 0;
  std::string event;
  std::string prefix_hash;
  std::int64_t unix_ms = 0;
};

struct RestoredJob {
  JobRecord job;
  std::optional<std::string> payload;  // absent: not spooled, or its key is lost
};

struct KnownPool {
  base::PoolId pool_id;
  std::string endpoint;
  wire::PoolDesiredState desired{};  // of an operator
};
struct RestoredState {
  std::vector<RestoredJob> jobs;  // not terminal, in order of arrival
  std::map<base::PoolId, std::string> pool_endpoints;
  std::vector<core::sessions::RestoredSession> sessions;          // in order of creation
  std::vector<core::sessions::TenantUse> tenants;                 // of this day, UTC
  std::map<base::PoolId, wire::PoolDesiredState> desired_states;  // of pools that have any
  std::int64_t settled_unix_ms = 0;                               // now, by a clock that no jump sets forward at once
};

struct BackupProgress {
  std::int64_t pages_done = 0;
  std::int64_t pages_total = 0;  // grows with the store
};
// A copy of the store, made while it serves.
struct BackupOrder {
  std::string database_file;  // exists; whole once it is done, and not synced
  // Called now and then; to return false cancels the backup.
  std::function<bool(BackupProgress)> progress;
  // With the keys of the jobs that are live in the copy, as they stand in payload.keys. CONFLICT: another backup is being
  // made. INVALID_PARAMS: this database has tools of its own. CANCELLED, STORE_UNAVAILABLE.
  std::function<void(base::Result<std::string>)> done;
};

// Which jobs a list has.
struct Listing {
  std::int64_t count_max = 0;
  std::optional<std::string> tenant_id{};  // of this one alone; absent: of all
  std::optional<std::int64_t> before{};    // only those that came before this JobRecord::arrival
  bool only_live = false;                  // only those that have not ended
};

// Finished jobs go, the oldest first, when one of these is passed.
struct RetentionLimits {
  std::int64_t ms = 7LL * 24 * 3600 * 1000;  // since the end of the job
  std::int64_t count_max = 1'000'000;
  std::int64_t bytes_max = 1LL << 30;  // of what the database holds, without the payloads of live jobs
};

// Thread-safe. Callbacks run on the store's thread, in order of commit, and must not block; every callback is called
// exactly once, also by stop().
class Store {
 public:
  using Done = std::function<void(base::Result<>)>;
  using Found = std::function<void(base::Result<std::optional<JobRecord>>)>;
  using Listed = std::function<void(base::Result<std::vector<JobRecord>>)>;

  virtual ~Store() = default;

  // Success: job, queue entry and payload are on disk. CONFLICT: job_id or task_id is taken. STORE_UNAVAILABLE: it is not and
  // will not be there; waits until that is certain (ADR 0016). SHUTTING_DOWN: it may be there.
  virtual void admit(Admission admission, Done done) = 0;
  // A transition that is not terminal waits up to 20 ms for another write to share a commit with; a later one of the
  // same job may replace it, and `done` then answers both. A terminal transition also destroys the payload and its key.
  // STORE_UNAVAILABLE: a restart may find the row changed or not, so repeat it until it succeeds. NOT_FOUND, and
  // CONFLICT for a job that is already terminal: bugs of the caller.
  virtual void transition(Transition transition, Done done) = 0;
  // Best effort: dropped when the disk refuses.
  virtual void checkpoint(std::vector<Checkpoint> checkpoints) = 0;
  // Writes a session that has no job yet, or a new `touched_unix_ms`. STORE_UNAVAILABLE: it may be there after a restart.
  virtual void remember_session(core::sessions::SessionRecord session, Done done) = 0;
  // Its jobs stay. Best effort: what the disk kept comes back after a restart and ends by its age.
  virtual void forget_session(std::int64_t session_key) = 0;
  // Leaves the desired state of a pool it knows as it is.
  virtual void remember_pool(KnownPool pool) = 0;
  // Success: the pool and its desired state are on disk; an empty endpoint leaves the one that is known. STORE_UNAVAILABLE: they
  // may be or not.
  virtual void set_desired_state(KnownPool pool, Done done) = 0;
  // Success: neither the pool nor its desired state is on disk. STORE_UNAVAILABLE: they may be, so repeat it until it succeeds.
  virtual void forget_pool(base::PoolId pool_id, Done done) = 0;

  virtual void find(base::JobId job_id, Found done) = 0;
  // The job that has this id as its task_id, or as its job_id.
  virtual void find_task(std::string id, Found done) = 0;
  // The newest first. Read in slices with what else is to be done between them; none is there twice, and one that goes
  // meanwhile may be missing.
  virtual void list(Listing listing, Listed done) = 0;
  // A few pages behind each commit, so that nobody waits for more than these.
  virtual void backup(BackupOrder order) = 0;
  // Blocks. REQUIRES: not on the store's thread.
  virtual base::Result<RestoredState> restore() = 0;

  // Commits what was posted before, moves the log into the database, closes. Idempotent.
  virtual void stop() = 0;
};

}  // namespace llorch::orchestratord::store
