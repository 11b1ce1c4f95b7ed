#include "orchestratord/store/postgres/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/store/postgres/migrations.h"
#include "orchestratord/store/rows/payload_row.h"

namespace llorch::orchestratord::store::postgres {
namespace {

using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// "llorch" and a zero: locks of one database share one space of numbers.
constexpr std::int64_t kLockKey = 0x6c6c'6f72'6368'0000;
constexpr const char* kKind = "PostgreSQL";
constexpr int kServerVersionMin = 140000;  // client_connection_check_interval
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{2'000};
constexpr std::chrono::milliseconds kLockPollPause{50};

base::Result<> check_server(Connection& connection) {
  if (connection.server_version() < kServerVersionMin) {
    return base::fail(ErrorCode::kVersionMismatch, fmt::format("the PostgreSQL server has version {}; 14 is the least",
                                                               connection.server_version() / 10000));
  }
  const Rows rows =
      TRY(connection.query(Query("SELECT current_setting('server_encoding')::text, current_setting('fsync')::text")));
  return rows.read([](const Values& values) -> base::Result<> {
    if (values.text(0, 0) != "UTF8") {
      return base::fail(
          ErrorCode::kConfigInvalid,
          fmt::format("the database of the job store has encoding {}; create it with UTF8", values.text(0, 0)));
    }
    if (values.text(0, 1) != "on") {
      return base::fail(ErrorCode::kConfigInvalid,
                        "the PostgreSQL server runs with fsync = off, so a power failure would lose accepted jobs; set "
                        "fsync = on");
    }
    return {};
  });
}

// Durable commits whatever the role's defaults say, nothing that ends the session behind our back, and a server that
// notices within about ten seconds that we are gone, so that the lock does not outlive its holder.
base::Result<> configure(Connection& connection) {
  return connection.execute(
      "SET search_path = llorch; SET client_min_messages = error;"
      "SELECT set_config('synchronous_commit', 'on', false) "
      "WHERE current_setting('synchronous_commit') IN ('off', 'local');"
      "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0;"
      "SET idle_in_transaction_session_timeout = 0; SET client_connection_check_interval = '2s';"
      "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
      "SET tcp_user_timeout = 10000");
}

base::Result<bool> try_lock(Connection& connection) {
  Query lock("SELECT pg_try_advisory_lock($1)::int::bigint");
  return TRY(TRY(connection.query(std::move(lock.add(kLockKey)))).read(first_integer)) == 1;
}

base::Result<std::vector<SealedPayload>> read_payloads(Connection& connection) {
  const Rows table =
      TRY(connection.query(Query("SELECT (to_regclass('llorch.job_payloads') IS NOT NULL)::int::bigint")));
  if (TRY(table.read(first_integer)) == 0) return std::vector<SealedPayload>();
  const Rows rows = TRY(connection.query(Query("SELECT job_id, key_slot, nonce, ciphertext FROM job_payloads")));
  return rows.read([](const Values& values) {
    std::vector<SealedPayload> payloads;
    for (int i = 0; i < values.count(); ++i) {
      if (auto payload = read_payload(RowView{values, i}, 1)) {
        payloads.push_back({values.text(i, 0), *std::move(payload)});
      }
    }
    return payloads;
  });
}

// None: no start has said it. The column comes with a migration, which a start that is refused leaves to the owner.
base::Result<std::optional<StateDirectoryFacts>> read_owner(Connection& connection) {
  const Rows column = TRY(
      connection.query(Query("SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('llorch.store_owner') AND "
                             "attname = 'store_id' AND NOT attisdropped")));
  if (TRY(column.read(first_integer)) == 0) return std::optional<StateDirectoryFacts>();
  const Rows rows = TRY(connection.query(Query(
      "SELECT store_id, coalesce(host, ''), coalesce(directory, '') FROM store_owner WHERE store_id IS NOT NULL")));
  if (rows.count() == 0) return std::optional<StateDirectoryFacts>();
  return rows.read([](const Values& values) {
    return std::optional(StateDirectoryFacts{values.text(0, 0), values.text(0, 1), values.text(0, 2)});
  });
}

std::string place_of(const StateDirectoryFacts& directory) {
  return fmt::format("{}:{}", directory.host, directory.directory);
}

// What the server would refuse; they are for people.
ServerOptions with_storable_texts(ServerOptions options) {
  for (std::string* text : {&options.self.host, &options.self.directory}) {
    if (!is_storable(*text)) *text = "?";
  }
  return options;
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(with_storable_texts(std::move(options))), connection_(options_.connection), pause_(kFirstPause) {
  ASSERT(options_.clock != nullptr && options_.keys != nullptr);
}

base::Result<Connection> Server::connect() {
  if (taken_over_) return base::fail(taken_over());
  if (failure_ && Clock::now() < next_attempt_) return base::fail(*failure_);
  auto connection = reach();
  if (!connection) {
    failure_ = connection.error();
    next_attempt_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return base::fail(std::move(connection).error());
  }
  failure_.reset();
  pause_ = kFirstPause;
  return connection;
}

base::Result<Connection> Server::reach() {
  if (ownership_ && options_.read_conninfo) {
    if (auto text = options_.read_conninfo()) connection_.conninfo = *std::move(text);
  }
  Connection connection = TRY(Connection::open(connection_));
  TRY(check_server(connection));
  TRY(configure(connection));
  if (!ownership_) {
    TRY(wait_for_lock(connection));
    TRY(check_keys(connection));
    if (options_.before_migration) TRY(options_.before_migration());
    TRY(check_live_jobs(connection));
    TRY(become_owner(connection));
    return connection;
  }
  TRY(check_owner(connection));
  if (!TRY(try_lock(connection))) {
    return base::fail(ErrorCode::kStoreUnavailable,
                      "the PostgreSQL server still holds the lock of an earlier session; the store retries by itself");
  }
  TRY(check_owner(connection));  // it may have been free because its holder was between coming and going
  return connection;
}

base::Result<> Server::wait_for_lock(Connection& connection) {
  const auto deadline = Clock::now() + options_.lock_wait;
  for (bool told = false; !TRY(try_lock(connection)); told = true) {
    if (Clock::now() >= deadline) return base::fail(locked(TRY(read_owner(connection))));
    if (!told) {
      base::log_event(base::LogLevel::kWarn, "store.locked", {},
                      "Another session owns the job store; waiting for its end.",
                      {{"wait_ms_max", options_.lock_wait.count()}});
    }
    std::this_thread::sleep_for(kLockPollPause);
  }
  return {};
}

// One process at a time has a state directory: who finds its own in the row waits for a session of an earlier process.
base::Error Server::locked(const std::optional<StateDirectoryFacts>& owner) const {
  if (owner == options_.self) {
    return {ErrorCode::kStoreUnavailable,
            "the PostgreSQL server still holds the lock of an earlier session of this orchestratord; start it again",
            {}};
  }
  base::Error error{
      ErrorCode::kAlreadyRunning,
      fmt::format("another orchestratord{} owns the job store in this PostgreSQL database; stop it or give this one "
                  "a database of its own",
                  owner ? fmt::format(", that of {},", place_of(*owner)) : ""),
      {}};
  return owner ? std::move(error).with("store_owner", place_of(*owner)) : error;
}

// An owner of an older program has said nothing of itself, and has keys all the same.
base::Result<> Server::check_keys(Connection& connection) const {
  const FoundSchema schema = TRY(find_schema(connection, migrations()));
  FoundStore found{
      .kind = kKind, .made_unix_ms = schema.made_unix_ms, .owner = std::nullopt, .payloads = [&connection] {
        return read_payloads(connection);
      }};
  const auto owner = TRY(read_owner(connection));
  if (!owner) {
    found.owner = "another state directory";
  } else if (owner->store_id != options_.self.store_id) {
    found.owner = place_of(*owner);
  }
  return options_.keys->check(found);
}

// These columns have been there since the first schema; its index of live jobs has not, so the server may read all of them.
base::Result<> Server::check_live_jobs(Connection& connection) const {
  const FoundSchema schema = TRY(find_schema(connection, migrations()));
  const bool is_due = schema.applied_count > 0 && schema.applied_count < migrations().size();
  if (!options_.check_live_job || !is_due) return {};
  const ReplyTimeout none(connection, std::nullopt);
  const Rows rows = TRY(connection.query(
      Query("SELECT j.job_id, j.params, p.key_slot, p.nonce, p.ciphertext FROM jobs j "
            "LEFT JOIN job_payloads p ON p.job_id = j.job_id WHERE j.completed_at IS NULL ORDER BY j.arrival")));
  return rows.read([&](const Values& values) -> base::Result<> {
    for (int i = 0; i < values.count(); ++i) {
      FoundLiveJob job{base::JobId(values.text(i, 0)), values.text(i, 1), std::nullopt};
      if (auto payload = read_payload(RowView{values, i}, 2)) {
        job.payload = options_.keys->unsealed({job.job_id.value, *std::move(payload)});
      }
      TRY(options_.check_live_job(job));
    }
    return {};
  });
}

base::Result<> Server::become_owner(Connection& connection) {
  const std::int64_t made_unix_ms = TRY(migrate(connection, migrations(), options_.clock->now().unix_ms));
  TRY(options_.keys->record(kKind, made_unix_ms));
  Query update("UPDATE store_owner SET epoch = epoch + 1, store_id = $1, host = $2, directory = $3 RETURNING epoch");
  update.add(std::string_view(options_.self.store_id)).add(std::string_view(options_.self.host));
  update.add(std::string_view(options_.self.directory));
  const std::int64_t epoch = TRY(TRY(connection.query(std::move(update))).read(first_integer));
  ownership_ = Ownership{epoch, made_unix_ms, options_.self.store_id};
  return {};
}

base::Result<> Server::check_owner(Connection& connection) {
  const Rows rows = TRY(connection.query(
      Query("SELECT o.epoch, m.applied_at, coalesce(o.store_id, '') FROM store_owner o, schema_migrations m "
            "WHERE m.version = 1")));
  const bool is_ours = TRY(rows.read([&](const Values& values) {
    return values.count() == 1 &&
           Ownership{values.integer(0, 0), values.integer(0, 1), values.text(0, 2)} == *ownership_;
  }));
  if (is_ours) return {};
  taken_over_ = true;
  base::log_event(base::LogLevel::kError, "store.taken_over", {},
                  "Another orchestratord has the job store, or the database is an older or another one.");
  if (options_.on_taken_over) options_.on_taken_over();
  return base::fail(taken_over());
}

base::Error Server::taken_over() {
  return base::Error{
      ErrorCode::kStoreUnavailable,
      "while the connection was lost another orchestratord has taken the job store over, or the database went back in "
      "time, or the connection leads to another one; orchestratord ends, and its next start sees which",
      {}};
}

}  // namespace llorch::orchestratord::store::postgres
