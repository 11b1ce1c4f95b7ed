#pragma once
// The seam between what a store means (group commit, keys, refused jobs, retention) and the database that holds the rows.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "orchestratord/store/store.h"

namespace llorch::orchestratord::store {

struct PayloadRow {
  std::uint32_t key_slot = 0;
  std::string nonce;
  std::string ciphertext;
};
struct LiveJob {
  JobRecord job;
  std::optional<PayloadRow> payload;
};

// kRepeat: an earlier transaction with the same change was in doubt; finding it done is a success.
enum class Attempt { kFirst, kRepeat };

// Results are those of the statements; they count once the transaction is committed.
struct Insert {
  const JobRecord* job = nullptr;
  const PayloadRow* payload = nullptr;                     // null: not spooled
  const core::sessions::SessionRecord* session = nullptr;  // of the job; written as well, if it is not there
  Attempt attempt = Attempt::kFirst;
  base::Result<> result;  // CONFLICT: the job_id or task_id is taken. INVALID_PARAMS: a text cannot be stored
};
struct Update {
  const Transition* transition = nullptr;
  Attempt attempt = Attempt::kFirst;
  base::Result<> result;  // NOT_FOUND, CONFLICT: the job is terminal already
  // Of a job that ended by it: whose record it is, and what that counts as.
  std::string tenant_id{};
  std::int64_t record_bytes = 0;
};
struct PoolSeen {
  KnownPool pool;  // leaves the desired state of a known one as it is
  std::int64_t unix_ms = 0;
};
struct PoolDesired {
  KnownPool pool;  // an empty endpoint leaves the known one
  std::int64_t unix_ms = 0;
};
struct PoolGone {
  base::PoolId pool_id;
};
struct SessionGone {
  std::int64_t session_key = 0;
};
using Note =
    std::variant<std::vector<Checkpoint>, core::sessions::SessionRecord, SessionGone, PoolSeen, PoolDesired, PoolGone>;

// Records of finished jobs.
struct Records {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // what they count as, each as it came and as it goes
};
using RecordsByTenant = std::map<std::string, Records>;

// Finished jobs go, the oldest first; their sums stay with their sessions, and with their tenants by the day on which they ended.
struct Removal {
  struct Part {
    std::optional<std::string> tenant_id;  // of this one; absent: of all
    std::int64_t count_max = 0;            // all parts together keep a commit short
  };
  std::int64_t finished_before_unix_ms = 0;
  std::vector<Part> parts;
  std::int64_t days_from_unix_ms = 0;  // the begin of a day; sums of earlier days go
  RecordsByTenant removed{};           // out
};

// One transaction, written in this order.
struct Changes {
  std::span<Insert> inserts;
  std::span<Update> updates;
  std::span<const Note> notes;
  Removal* removal = nullptr;  // null: nothing goes
};

// A day of Unix time, of which a tenant has a budget.
inline constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;

struct FinishedJobs {
  RecordsByTenant records;
  std::optional<std::int64_t> latest_unix_ms{};  // when the last of them ended
};

// What became of a transaction. In doubt: it failed, and yet a restart may find it committed, until a later one has
// succeeded in its place.
struct Ended {
  base::Result<> result;
  bool in_doubt = false;
};

// A copy of all rows under way, in a file of its own.
class DatabaseCopy {
 public:
  virtual ~DatabaseCopy() = default;
  // Copies so many more pages; all of them if negative. True: it is whole, and as the rows are now; nothing but destruction
  // follows, as after an error.
  virtual base::Result<bool> step(int pages_count) = 0;
  virtual BackupProgress progress() const = 0;
};

// The rows, and whatever it takes to reach them again after an error. Belongs to one thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Success: all of it is on disk.
  virtual Ended commit(Changes changes) = 0;
  // Reads all rows, so only for the start.
  virtual base::Result<FinishedJobs> finished_jobs() = 0;
  // Bytes in the database, without the payloads of live jobs, which have `payload_bytes`. Where its files do not say that, what its
  // finished jobs count as: `counted_bytes`.
  virtual base::Result<std::int64_t> record_bytes(std::int64_t payload_bytes, std::int64_t counted_bytes) = 0;
  // Gives a little of the space that nothing needs any more back to the file system; whether there is more.
  virtual base::Result<bool> give_back_space() = 0;

  virtual base::Result<std::optional<JobRecord>> find(const base::JobId& job_id) = 0;
  virtual base::Result<std::optional<JobRecord>> find_task(const std::string& id) = 0;
  virtual base::Result<std::vector<JobRecord>> newest(const Listing& listing) = 0;
  virtual base::Result<std::vector<LiveJob>> live_jobs() = 0;
  virtual base::Result<std::vector<KnownPool>> pools() = 0;  // by id
  // With what their jobs have used; in order of creation.
  virtual base::Result<std::vector<core::sessions::RestoredSession>> sessions() = 0;
  // What jobs have used that ended at this time or later; by tenant.
  virtual base::Result<std::vector<core::sessions::TenantUse>> tenants(std::int64_t ended_from_unix_ms) = 0;

  // Into an existing file. REQUIRES: the backend outlives it. INVALID_PARAMS: this database has tools of its own.
  virtual base::Result<std::unique_ptr<DatabaseCopy>> copy_into(const std::string& path) = 0;

  // Leaves as little work as possible to the next start; best effort. REQUIRES: nothing but destruction follows.
  virtual void close() {}
};

}  // namespace llorch::orchestratord::store
