#include "orchestratord/store/postgres/connection.h"

#include <endian.h>
#include <fmt/core.h>
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::orchestratord::store::postgres {
namespace {

using base::ErrorCode;
using Clock = std::chrono::steady_clock;

// Of pg_type.h; stable since there are types.
constexpr unsigned kBytea = 17;
constexpr unsigned kInt8 = 20;
constexpr unsigned kText = 25;
constexpr int kBinary = 1;

std::string_view remedy(std::string_view sqlstate) {
  if (sqlstate == "53100") return "free space on the disk of the PostgreSQL server; the store recovers by itself";
  if (sqlstate == "25006") return "the server is read-only: connect to the primary";
  if (sqlstate == "42501") return "make the role the owner of its database (createdb --owner)";
  if (sqlstate.starts_with("28")) return "check role and password of the connection";
  return "check the PostgreSQL server and its log; the store retries by itself";
}

// libpq ends its messages with a line break.
std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? ' ' : c;
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Without detail and context, which repeat values of the row.
base::Error statement_error(const PGresult* result) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  const std::string_view sqlstate = state == nullptr ? "" : state;
  const std::string message = one_line(primary == nullptr ? "the server went away" : primary);
  return base::Error{ErrorCode::kStoreUnavailable, fmt::format("the job store: {}; {}", message, remedy(sqlstate)), {}}
      .with("sqlstate", std::string(sqlstate));
}

struct FreeConninfo {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};

std::string name_of(const char* sql) { return fmt::format("s{:x}", std::bit_cast<std::uintptr_t>(sql)); }

}  // namespace

bool is_storable(std::string_view text) {
  return text.find('\0') == std::string_view::npos && base::is_valid_utf8(text);
}

Query& Query::add_value(unsigned type, std::optional<std::string> bytes) {
  values_.push_back({type, std::move(bytes)});
  return *this;
}
Query& Query::add(std::int64_t value) {
  const std::uint64_t big_endian = htobe64(std::bit_cast<std::uint64_t>(value));
  return add_value(kInt8, std::string(reinterpret_cast<const char*>(&big_endian), sizeof big_endian));
}
Query& Query::add(std::string_view text) { return add_value(kText, std::string(text)); }
Query& Query::add(const std::optional<std::int64_t>& value) {
  return value ? add(*value) : add_value(kInt8, std::nullopt);
}
Query& Query::add(const std::optional<std::string>& text) {
  return text ? add(std::string_view(*text)) : add_value(kText, std::nullopt);
}
Query& Query::add_bytes(std::string_view bytes) { return add_value(kBytea, std::string(bytes)); }

int Values::count() const { return PQntuples(result_); }
// Also of a row or a column that is not there.
bool Values::is_null(int row, int column) const { return PQgetisnull(result_, row, column) != 0; }
void Values::fail(int column) const {
  if (failure_) return;
  const char* name = PQfname(result_, column);
  failure_ = base::Error{ErrorCode::kStoreUnavailable,
                         fmt::format("the job store: the server's answer has no value that can be read in column {}; "
                                     "somebody else has changed the tables: bring back what they were",
                                     name == nullptr ? std::to_string(column) : std::string(name)),
                         {}};
}
std::int64_t Values::integer(int row, int column) const {
  std::uint64_t big_endian = 0;
  if (is_null(row, column) || PQftype(result_, column) != kInt8 ||
      PQgetlength(result_, row, column) != sizeof big_endian) {
    fail(column);
    return 0;
  }
  std::memcpy(&big_endian, PQgetvalue(result_, row, column), sizeof big_endian);
  return std::bit_cast<std::int64_t>(be64toh(big_endian));
}
std::string Values::text(int row, int column) const {
  const Oid type = PQftype(result_, column);
  if (is_null(row, column) || (type != kText && type != kBytea)) {
    fail(column);
    return {};
  }
  return {PQgetvalue(result_, row, column), static_cast<std::size_t>(PQgetlength(result_, row, column))};
}
std::optional<std::int64_t> Values::optional_integer(int row, int column) const {
  if (is_null(row, column)) return std::nullopt;
  return integer(row, column);
}
std::optional<std::string> Values::optional_text(int row, int column) const {
  if (is_null(row, column)) return std::nullopt;
  return text(row, column);
}

void Rows::Clear::operator()(pg_result* result) const { PQclear(result); }
int Rows::count() const { return PQntuples(result_.get()); }
std::string_view Rows::command() const { return PQcmdStatus(result_.get()); }

void Connection::Finish::operator()(pg_conn* connection) const { PQfinish(connection); }

base::Result<Connection> Connection::open(const ConnectionOptions& options) {
  const std::string& conninfo = options.conninfo;
  char* reason = nullptr;
  const std::unique_ptr<PQconninfoOption, FreeConninfo> parsed(PQconninfoParse(conninfo.c_str(), &reason));
  PQfreemem(reason);  // quotes the text, and with it passwords
  if (parsed == nullptr) {
    return base::fail(ErrorCode::kConfigInvalid,
                      "the PostgreSQL connection string cannot be read: write keyword=value pairs or a "
                      "postgresql:// URL");
  }
  // What stands before dbname is a default, what stands after it overrules the connection string. The keep-alives
  // notice a dead host in about ten seconds, from both sides (see session.cpp).
  const std::array<const char*, 10> keywords{"connect_timeout",           "keepalives_idle",
                                             "keepalives_interval",       "keepalives_count",
                                             "tcp_user_timeout",          "target_session_attrs",
                                             "fallback_application_name", "dbname",
                                             "client_encoding",           nullptr};
  const std::array<const char*, 10> values{
      "5", "5", "2", "3", "10000", "read-write", "orchestratord", conninfo.c_str(), "UTF8", nullptr};
  Connection connection(PQconnectdbParams(keywords.data(), values.data(), 1), options.reply_timeout);
  PGconn* raw = connection.connection_.get();
  ASSERT(raw != nullptr);
  if (PQstatus(raw) != CONNECTION_OK) return base::fail(connection.lost());
  PQsetNoticeProcessor(
      raw, [](void*, const char*) {}, nullptr);  // of CREATE TABLE IF NOT EXISTS
  if (PQsetnonblocking(raw, 1) != 0) return base::fail(connection.lost());
  return connection;
}

int Connection::server_version() const { return PQserverVersion(connection_.get()); }

bool Connection::is_usable() const {
  const PGTransactionStatusType status = PQtransactionStatus(connection_.get());
  return PQstatus(connection_.get()) == CONNECTION_OK && PQpipelineStatus(connection_.get()) == PQ_PIPELINE_OFF &&
         status != PQTRANS_ACTIVE && status != PQTRANS_UNKNOWN;
}
bool Connection::in_transaction() const { return PQtransactionStatus(connection_.get()) != PQTRANS_IDLE; }

base::Error Connection::lost() const {
  return base::Error{ErrorCode::kStoreUnavailable,
                     fmt::format("no connection to the job store: {}; check that the PostgreSQL server runs and lets "
                                 "orchestratord in; the store retries by itself",
                                 one_line(PQerrorMessage(connection_.get()))),
                     {}};
}

base::Result<> Connection::execute(const std::string& sql) {
  if (PQsendQuery(connection_.get(), sql.c_str()) == 0) return base::fail(lost());
  base::Result<> outcome;
  while (PGresult* raw = TRY(next_result())) {
    const Rows rows(raw);
    if (PQresultStatus(raw) != PGRES_COMMAND_OK && PQresultStatus(raw) != PGRES_TUPLES_OK && outcome) {
      outcome = base::fail(statement_error(raw));
    }
  }
  return outcome;
}

base::Result<Rows> Connection::query(Query query) {
  auto rows = TRY(pipeline(std::span(&query, 1)));
  return std::move(rows.front());
}

base::Result<std::vector<Rows>> Connection::pipeline(std::span<const Query> queries) {
  if (PQenterPipelineMode(connection_.get()) == 0) return base::fail(lost());
  std::vector<bool> prepares;
  TRY(send(queries, prepares));
  auto rows = receive(queries, prepares);
  if (PQexitPipelineMode(connection_.get()) == 0 && rows) return base::fail(lost());
  return rows;
}

base::Result<> Connection::send(std::span<const Query> queries, std::vector<bool>& prepares) {
  PGconn* raw = connection_.get();
  std::unordered_set<const char*> sent;
  std::vector<Oid> types;
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
  for (const Query& query : queries) {
    types.clear(), values.clear(), lengths.clear();
    for (const Query::Value& value : query.values_) {
      types.push_back(value.type);
      values.push_back(value.bytes ? value.bytes->data() : nullptr);
      lengths.push_back(value.bytes ? static_cast<int>(value.bytes->size()) : 0);
    }
    formats.assign(values.size(), kBinary);
    const int count = static_cast<int>(values.size());
    const std::string name = name_of(query.sql_);
    prepares.push_back(!prepared_.contains(query.sql_) && sent.insert(query.sql_).second);
    if (prepares.back() && PQsendPrepare(raw, name.c_str(), query.sql_, count, types.data()) == 0) {
      return base::fail(lost());
    }
    if (PQsendQueryPrepared(raw, name.c_str(), count, values.data(), lengths.data(), formats.data(), kBinary) == 0) {
      return base::fail(lost());
    }
  }
  if (PQpipelineSync(raw) == 0) return base::fail(lost());
  return {};
}

base::Result<std::vector<Rows>> Connection::receive(std::span<const Query> queries, const std::vector<bool>& prepares) {
  std::vector<Rows> all;
  base::Result<> outcome;
  // What follows a failure is answered too, as aborted.
  const auto succeeded = [&](const PGresult* result) {
    const ExecStatusType status = PQresultStatus(result);
    const bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    if (!good && outcome) outcome = base::fail(statement_error(result));
    return good;
  };
  for (std::size_t i = 0; i < queries.size(); ++i) {
    if (prepares[i]) {
      const Rows prepared = TRY(next_statement());
      if (succeeded(prepared.result_.get())) prepared_.insert(queries[i].sql_);
    }
    all.push_back(TRY(next_statement()));
    (void)succeeded(all.back().result_.get());
  }
  const Rows end(TRY(next_result()));
  if (PQresultStatus(end.result_.get()) != PGRES_PIPELINE_SYNC) return base::fail(lost());
  if (!outcome) return base::fail(std::move(outcome).error());
  return all;
}

// Each has one result here, and a null behind it.
base::Result<Rows> Connection::next_statement() {
  Rows rows(TRY(next_result()));
  const Rows end(TRY(next_result()));
  if (rows.result_ == nullptr || end.result_ != nullptr) return base::fail(lost());
  return rows;
}

base::Result<pg_result*> Connection::next_result() {
  PGconn* raw = connection_.get();
  auto silent_since = Clock::now();
  while (true) {
    const int unsent = PQflush(raw);
    if (unsent < 0) return base::fail(lost());
    if (PQisBusy(raw) == 0) return PQgetResult(raw);
    int left_ms = -1;
    if (reply_timeout_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(silent_since + *reply_timeout_ - Clock::now());
      left_ms = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    pollfd socket{.fd = PQsocket(raw), .events = static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN)};
    const int ready = ::poll(&socket, 1, left_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return base::fail(ErrorCode::kStoreUnavailable, "the PostgreSQL server does not answer");
    if ((socket.revents & ~POLLOUT) == 0) continue;
    if (PQconsumeInput(raw) == 0) return base::fail(lost());
    silent_since = Clock::now();  // a long answer is no silence
  }
}

}  // namespace llorch::orchestratord::store::postgres
