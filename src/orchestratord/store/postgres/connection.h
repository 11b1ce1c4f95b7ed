#pragma once
// libpq as values and Results: one session, statements in pipelines, a deadline on every answer. Values travel only as
// parameters. One Connection belongs to one thread at a time.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"

struct pg_conn;
struct pg_result;

namespace llorch::orchestratord::store::postgres {

struct ConnectionOptions {
  // Keywords or a URL as libpq takes them; empty: libpq's own variables (PGHOST, PGSERVICE, ...). Never part of an error.
  std::string conninfo;
  // Server and network have this long to answer; whoever is silent for longer counts as gone.
  std::chrono::milliseconds reply_timeout{10'000};
};

// A statement and its values, in order of $1, $2, ...
class Query {
 public:
  // REQUIRES `sql` to be a literal: it is prepared once per connection and known by its address.
  explicit Query(const char* sql) : sql_(sql) {}

  Query& add(std::int64_t value);
  // The server refuses a text with a zero byte or with invalid UTF-8; see is_storable.
  Query& add(std::string_view text);
  Query& add(const std::optional<std::int64_t>& value);
  Query& add(const std::optional<std::string>& text);
  Query& add_bytes(std::string_view bytes);

 private:
  friend class Connection;
  struct Value {
    unsigned type = 0;  // the server's number of the type
    std::optional<std::string> bytes;
  };
  Query& add_value(unsigned type, std::optional<std::string> bytes);

  const char* sql_;
  std::vector<Value> values_;
};

// Whether PostgreSQL takes `text` as a TEXT value.
bool is_storable(std::string_view text);

// The values of an answer, for whoever reads them. One that is not there, or is of another type, is 0 or empty, and the reading fails.
class Values {
 public:
  int count() const;  // of rows
  std::int64_t integer(int row, int column) const;
  std::string text(int row, int column) const;  // also for bytes
  std::optional<std::int64_t> optional_integer(int row, int column) const;
  std::optional<std::string> optional_text(int row, int column) const;

 private:
  friend class Rows;
  explicit Values(const pg_result* result) : result_(result) {}
  bool is_null(int row, int column) const;
  void fail(int column) const;

  const pg_result* result_;
  mutable std::optional<base::Error> failure_;  // the first
};

// One row, as rows/ reads it.
struct RowView {
  const Values& values;
  int row;
  std::int64_t integer(int column) const { return values.integer(row, column); }
  std::string text(int column) const { return values.text(row, column); }
  std::optional<std::int64_t> optional_integer(int column) const { return values.optional_integer(row, column); }
  std::optional<std::string> optional_text(int column) const { return values.optional_text(row, column); }
};

// The first value of an answer, for Rows::read().
inline std::int64_t first_integer(const Values& values) { return values.integer(0, 0); }

template <class T>
struct ReadResult {
  using Type = base::Result<T>;
};
template <class T>
struct ReadResult<base::Result<T>> {
  using Type = base::Result<T>;
};

// The answer to one statement. Columns are BIGINT, TEXT or BYTEA as this program made them, and what somebody else made of them since.
class Rows {
 public:
  explicit Rows(pg_result* result) : result_(result) {}
  int count() const;
  // What `read(values)` makes of them, a value or a Result of one. STORE_UNAVAILABLE: a value is not there, or is of another type.
  template <class Read>
  auto read(const Read& read) const {
    const Values values(result_.get());
    typename ReadResult<decltype(read(values))>::Type out = read(values);
    if (out && values.failure_) out = base::fail(*std::move(values.failure_));
    return out;
  }
  std::string_view command() const;  // "COMMIT", "ROLLBACK", ...

 private:
  friend class Connection;
  struct Clear {
    void operator()(pg_result* result) const;
  };
  std::unique_ptr<pg_result, Clear> result_;
};

class Connection {
 public:
  // CONFIG_INVALID: the connection string cannot be read. STORE_UNAVAILABLE: nobody answers, or lets us in.
  static base::Result<Connection> open(const ConnectionOptions& options);
  Connection(Connection&& other) noexcept = default;
  Connection& operator=(Connection&& other) noexcept = default;

  // Without parameters or rows; several statements, separated by semicolons.
  base::Result<> execute(const std::string& sql);
  base::Result<Rows> query(Query query);
  // All or, in a transaction, none: the error is that of the first statement that failed. One round trip.
  base::Result<std::vector<Rows>> pipeline(std::span<const Query> queries);

  int server_version() const;  // 150018
  // Whether another statement may follow: all of the last one's answer has come, and the session lives.
  bool is_usable() const;
  bool in_transaction() const;

 private:
  friend class ReplyTimeout;
  Connection(pg_conn* connection, std::chrono::milliseconds reply_timeout)
      : connection_(connection), reply_timeout_(reply_timeout) {}

  base::Result<> send(std::span<const Query> queries, std::vector<bool>& prepares);
  base::Result<std::vector<Rows>> receive(std::span<const Query> queries, const std::vector<bool>& prepares);
  base::Result<Rows> next_statement();
  // The next result of what was sent, or null behind the results of a statement. Owned by the caller.
  base::Result<pg_result*> next_result();
  base::Error lost() const;

  struct Finish {
    void operator()(pg_conn* connection) const;
  };
  std::unique_ptr<pg_conn, Finish> connection_;
  std::optional<std::chrono::milliseconds> reply_timeout_;  // none: a reply may take as long as it does
  std::unordered_set<const char*> prepared_;
};

// Another deadline for the answers of a connection, for as long as this lives. None: keep-alives still notice a host that is gone.
class ReplyTimeout {
 public:
  ReplyTimeout(Connection& connection, std::optional<std::chrono::milliseconds> timeout)
      : connection_(connection), before_(std::exchange(connection.reply_timeout_, timeout)) {}
  ReplyTimeout(const ReplyTimeout&) = delete;
  ReplyTimeout& operator=(const ReplyTimeout&) = delete;
  ~ReplyTimeout() { connection_.reply_timeout_ = before_; }

 private:
  Connection& connection_;
  const std::optional<std::chrono::milliseconds> before_;
};

}  // namespace llorch::orchestratord::store::postgres
