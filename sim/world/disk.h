#pragma once
// The disk of orchestratord's host, and what must be on it: everything the store has said yes to. Outlives the processes.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/entropy.h"
#include "orchestratord/core/sessions/session.h"
#include "orchestratord/store/store.h"
#include "orchestratord/store/testing/faulty_disk.h"
#include "sim/world/request.h"

namespace llorch::sim {

struct World;

inline constexpr const char* kStateDirectory = "state";
// Stands in every payload; no file may ever hold it.
inline constexpr const char* kPayloadNeedle = "prompt of ";

struct Row {
  JobRequest request;
  wire::JobStatus status = wire::JobStatus::kQueued;
  std::int64_t attempts = 0;
  std::int64_t submitted_unix_ms = 0;
  std::int64_t tokens_out = 0;
  std::optional<std::int64_t> session_key;
  std::int64_t decode_time_ms = 0;
  std::int64_t finished_unix_ms = 0;
  std::string event, data, last_event_id;  // of the terminal event

  bool operator==(const Row&) const = default;
};

// What has been answered with success.
struct Disk {
  std::map<std::string, Row> rows;
  std::vector<std::string> order;                         // of arrival
  std::set<std::string> retired;                          // jobs that had rows until their retention was over
  std::map<std::string, wire::PoolDesiredState> desired;  // of operators, by pool id; of those that have any
  std::map<std::int64_t, orchestratord::core::sessions::SessionRecord> sessions;  // by key
};

// What the rows say that the jobs of a session have used, by the rules of core/sessions/session.h.
orchestratord::core::sessions::Use use_of(const std::map<std::string, Row>& rows, std::int64_t session_key);

// An admission (perhaps with its session), a transition, the desired state of a pool, its end, or a session.
struct Write {
  orchestratord::store::Store::Done done;
  std::string job;
  std::optional<Row> admission;
  orchestratord::store::JobProgress change;
  std::optional<orchestratord::store::KnownPool> pool;
  std::optional<base::PoolId> pool_gone;
  std::optional<orchestratord::core::sessions::SessionRecord> session;
  std::int64_t group = 0;  // writes of one group are there together or not at all
};
using WritePtr = std::shared_ptr<Write>;

Row row_of(const World& world, const orchestratord::store::JobRecord& record);
Row changed(Row row, const orchestratord::store::JobProgress& progress);

// The store's randomness. Keys are drawn ahead and used in that order, each with the nonce that is drawn for its payload.
class KeyWatch final : public base::Entropy {
 public:
  explicit KeyWatch(std::uint64_t seed) : entropy_(seed) {}
  void fill(std::span<std::byte> out) override;
  // Those used since the last call.
  std::vector<std::string> take_keys() { return std::exchange(used_, {}); }
  // The store's process is gone, and with it the keys it had not used.
  void forget();

 private:
  base::SeededEntropy entropy_;
  std::deque<std::string> drawn_;
  std::vector<std::string> used_;
};

// Compares the disk with what was answered. A job whose admission was refused is never there; one that was admitted always
// is, as its last transition left it; what nobody has answered may be there or not.
class DiskCheck {
 public:
  explicit DiskCheck(World& world) : world_(world) {}

  // ---- what was answered, in that order ----
  void committed(const Write& write);
  void refused(const Write& write);
  // orchestratord is dead and this has no answer.
  void left_open(const Write& write);
  // The store has been at work at this time of its wall clock.
  void time_is(std::int64_t unix_ms);
  // A new life has found these, in order of arrival; `cleaned`: and nothing has kept it from removing what is past its time.
  struct Found {
    const orchestratord::store::RestoredState& state;
    const std::vector<Row>& rows;
    bool cleaned = false;
  };
  void opened(const Found& found);
  // It is forgotten when the disk gets to it; nobody waits for that.
  void session_forgotten(std::int64_t key);
  void looked_up(const std::string& job, const std::optional<Row>& found);
  // Its row has gone after its time, or may go within a moment.
  bool is_too_late(const std::string& job) const;

  // ---- payloads ----
  // It is on its way to the disk, sealed.
  void payload_given(const std::string& job, const std::optional<std::string>& payload) { payloads_[job] = payload; }
  void key_made(const std::string& job, std::string key) { keys_[job] = std::move(key); }
  // The disk fails or the process hangs: a key may be late by that.
  void trouble();
  // Keys whose time is up must be gone; `all`: every one whose job is over.
  void check_keys(bool all);

 private:
  struct DyingKey {
    std::string job, key;
    std::int64_t since_ms = 0;
  };
  void key_dies(const std::string& job);
  bool retires(const std::string& job);
  void check_retention(const Found& found);
  void check_found(const std::string& job, const Row& found);
  void check_desired_states(const std::map<std::string, wire::PoolDesiredState>& found);
  void check_sessions(const std::vector<orchestratord::core::sessions::RestoredSession>& found);
  void check_groups(const std::map<std::string, const Row*>& found);

  World& world_;
  std::vector<Write> open_;  // may be found after a crash: never answered, or refused in doubt
  std::set<std::int64_t> forgotten_sessions_;
  std::set<std::string> may_be_gone_;  // jobs past their retention
  std::map<std::string, Row> gone_;    // what they took is still their session's
  std::int64_t unix_ms_ = 0;
  std::map<std::string, std::string> keys_;  // of live jobs
  std::vector<DyingKey> dying_;
  std::int64_t trouble_ms_ = 0;
  std::map<std::string, std::optional<std::string>> payloads_;
};

// The content every run begins with: a database with the schema. One run in some begins with nothing instead.
const orchestratord::store::testing::FaultyDisk& prepared_disk();
const orchestratord::store::testing::FaultyDisk& empty_disk();

}  // namespace llorch::sim
