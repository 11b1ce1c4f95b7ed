#pragma once
// The PostgreSQL server as the store sees it: connects, takes the lock that only one orchestratord can hold, keeps away
// from a server that does not answer.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/key_owner.h"
#include "orchestratord/store/live_check.h"
#include "orchestratord/store/postgres/connection.h"

namespace llorch::orchestratord::store::postgres {

// A state directory: its random id, which goes where it goes, and where it is, for people.
struct StateDirectoryFacts {
  std::string store_id, host, directory;
  friend bool operator==(const StateDirectoryFacts&, const StateDirectoryFacts&) = default;
};

struct ServerOptions {
  ConnectionOptions connection;
  std::function<base::Result<std::string>()> read_conninfo{};  // see PostgresStoreOptions
  StateDirectoryFacts self;
  KeyOwner* keys = nullptr;  // REQUIRES not null; outlives the first connect()
  // What it refuses the first connect() refuses; the database has not been changed then.
  std::function<base::Result<>()> before_migration{};
  CheckLiveJob check_live_job{};  // see PostgresStoreOptions
  // The first open waits this long for the lock: a server may need ~10 s to notice that its former holder is gone.
  std::chrono::milliseconds lock_wait{15'000};
  const base::Clock* clock = nullptr;   // REQUIRES not null; outlives it
  std::function<void()> on_taken_over;  // once, from connect(): another orchestratord owns the store now
};

// Writes are fenced: the lock is the session's, and every write goes through the session that holds it. Whoever holds it
// also knows that no commit of an earlier session is still under way. Not thread-safe.
class Server {
 public:
  explicit Server(ServerOptions options);

  // The first one also migrates the schema and becomes the owner. ALREADY_RUNNING: another orchestratord holds the lock, which is said in
  // the detail `store_owner` where it is known. CONFLICT: see KeyOwner::check.
  // A later one finds itself still the owner, or fails for good. STORE_UNAVAILABLE otherwise; then the next attempt that
  // reaches out comes after a pause, and calls before it repeat the error.
  base::Result<Connection> connect();

 private:
  base::Result<Connection> reach();
  base::Result<> wait_for_lock(Connection& connection);
  base::Error locked(const std::optional<StateDirectoryFacts>& owner) const;
  base::Result<> check_keys(Connection& connection) const;
  base::Result<> check_live_jobs(Connection& connection) const;
  base::Result<> become_owner(Connection& connection);
  base::Result<> check_owner(Connection& connection);
  base::Error taken_over();

  // What the database of our ownership says: another one that the connection leads to meanwhile may have had as many owners.
  struct Ownership {
    std::int64_t epoch = 0, made_unix_ms = 0;
    std::string store_id;
    friend bool operator==(const Ownership&, const Ownership&) = default;
  };

  const ServerOptions options_;
  ConnectionOptions connection_;  // as it was read last
  std::optional<Ownership> ownership_;
  bool taken_over_ = false;
  std::optional<base::Error> failure_;
  std::chrono::milliseconds pause_;
  std::chrono::steady_clock::time_point next_attempt_;
};

}  // namespace llorch::orchestratord::store::postgres
