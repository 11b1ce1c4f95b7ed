#include "orchestratord/store/sqlite/database.h"

#include <fmt/core.h>
#include <sqlite3.h>

#include "base/assert.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

using base::ErrorCode;

constexpr int kVersionNumberMin = 3'037'000;

// SQLite answers a setting that it cannot take with another one, not with an error.
base::Result<> check_setting(Database& database, const char* pragma, std::string_view wanted) {
  const StatementUse row(*TRY(database.statement(pragma)));
  const std::string got = TRY(row->step()) ? row->text(0) : std::string();
  if (got == wanted) return {};
  return base::fail(ErrorCode::kStoreUnavailable,
                    fmt::format("the job store cannot be opened safely: {} is {} and has to be {}; put the state "
                                "directory on a local disk",
                                pragma, got, wanted));
}

std::string_view remedy(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL: return "free space on the disk of the state directory; the store recovers by itself";
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM: return "make the state directory writable for this user; the store recovers by itself";
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return "close the other program that has the database open";
    default: return "check the disk of the state directory; the store retries by itself";
  }
}

}  // namespace

base::Error database_error(sqlite3* db, std::string_view action) {
  const int code = sqlite3_extended_errcode(db);
  if ((code & 0xff) == SQLITE_CONSTRAINT) {
    return base::Error{ErrorCode::kConflict, fmt::format("{}: {}", action, sqlite3_errmsg(db)), {}};
  }
  if ((code & 0xff) == SQLITE_NOTADB || (code & 0xff) == SQLITE_CORRUPT) {
    return base::Error{
        ErrorCode::kCorruptFile,
        fmt::format("{}: the file of the job store is damaged or is no database; move it away and restart", action),
        {}}
        .with("sqlite_code", std::int64_t{code});
  }
  return base::Error{
      ErrorCode::kStoreUnavailable, fmt::format("{}: {}; {}", action, sqlite3_errstr(code), remedy(code)), {}}
      .with("sqlite_code", std::int64_t{code});
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

// A failed bind (out of memory, bad index) is a bug here: the values are small and the indices literal.
Statement& Statement::bind(int index, std::int64_t value) {
  ASSERT(sqlite3_bind_int64(statement_.get(), index, value) == SQLITE_OK, "index={}", index);
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  ASSERT(sqlite3_bind_text64(statement_.get(), index, text.empty() ? "" : text.data(), text.size(), SQLITE_TRANSIENT,
                             SQLITE_UTF8) == SQLITE_OK,
         "index={}", index);
  return *this;
}

Statement& Statement::bind(int index, const std::optional<std::int64_t>& value) {
  if (value) return bind(index, *value);
  ASSERT(sqlite3_bind_null(statement_.get(), index) == SQLITE_OK, "index={}", index);
  return *this;
}

Statement& Statement::bind(int index, const std::optional<std::string>& text) {
  if (text) return bind(index, std::string_view(*text));
  ASSERT(sqlite3_bind_null(statement_.get(), index) == SQLITE_OK, "index={}", index);
  return *this;
}

Statement& Statement::bind_blob(int index, std::string_view bytes) {
  ASSERT(sqlite3_bind_blob64(statement_.get(), index, bytes.empty() ? "" : bytes.data(), bytes.size(),
                             SQLITE_TRANSIENT) == SQLITE_OK,
         "index={}", index);
  return *this;
}

base::Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return base::fail(database_error(sqlite3_db_handle(statement_.get()), "the job store"));
}

base::Result<> Statement::run() {
  const StatementUse use(*this);
  const bool row = TRY(step());
  ASSERT(!row);
  return {};
}

void Statement::reset() {
  sqlite3_reset(statement_.get());  // repeats the error of the last step, which was reported there
  sqlite3_clear_bindings(statement_.get());
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
}

std::optional<std::int64_t> Statement::optional_integer(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return integer(column);
}

std::optional<std::string> Statement::optional_text(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return text(column);
}

void Database::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

namespace {
// Nobody asks SQLite how much memory it uses, and to count that takes a lock of all threads per allocation. Without effect if
// somebody in the process has used SQLite before.
void stop_counting_memory() {
  static const int once = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  (void)once;
}
}  // namespace

base::Result<Database> Database::open(const DatabaseOptions& options) {
  stop_counting_memory();
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code =
      sqlite3_open_v2(options.path.c_str(), &raw, flags, options.vfs.empty() ? nullptr : options.vfs.c_str());
  Database database(raw);
  if (code != SQLITE_OK) return base::fail(database_error(raw, "cannot open the job store"));
  // locking_mode before anything is read: WAL then needs no shared memory file. auto_vacuum before there is a page: space can
  // be given back then.
  // The CHECKs speak to people and other programs: what we write comes from enums, and each IN list would cost a temporary
  // table per row.
  TRY(database.execute(
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
      "PRAGMA foreign_keys=ON; PRAGMA secure_delete=ON; PRAGMA temp_store=MEMORY;"
      "PRAGMA trusted_schema=OFF; PRAGMA ignore_check_constraints=ON; PRAGMA journal_size_limit=16777216;"));
  TRY(check_setting(database, "PRAGMA locking_mode", "exclusive"));  // one connection, of all processes
  TRY(check_setting(database, "PRAGMA journal_mode", "wal"));
  TRY(check_setting(database, "PRAGMA synchronous", "2"));
  TRY(database.remove_rollback_journal());
  sqlite3_wal_autocheckpoint(raw, static_cast<int>(options.checkpoint_pages));
  return database;
}

// With locking_mode EXCLUSIVE the journal of the transaction that made the file is ended by zeros at its begin. A process
// that is killed before they are synced leaves them in the page cache only: the next one finds no journal to roll back, and
// after a power failure the one after that rolls back the whole file and drops the log with every job in it.
base::Result<> Database::remove_rollback_journal() {
  sqlite3_vfs* vfs = nullptr;
  sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  const int code = vfs->xDelete(vfs, sqlite3_filename_journal(sqlite3_db_filename(db_.get(), "main")), /*syncDir=*/1);
  if (code == SQLITE_OK || code == SQLITE_IOERR_DELETE_NOENT) return {};
  return base::fail(
      base::ErrorCode::kStoreUnavailable,
      "the job store: cannot remove the rollback journal beside the database; check the disk of the state directory");
}

Ended Database::transaction(const std::function<base::Result<>()>& write) {
  const auto end = [this](base::Result<> result) -> Ended {
    // A full disk is met while the frames are written, of which the one that commits is the last; what else fails may
    // have failed after it, and a sync that fails may have synced.
    const bool committing = result.has_value();
    if (committing) result = run("COMMIT");
    if (result) {
      in_doubt_ = false;
      return {};
    }
    const bool full = (sqlite3_errcode(db_.get()) & 0xff) == SQLITE_FULL;
    if (sqlite3_get_autocommit(db_.get()) == 0) (void)run("ROLLBACK");  // the failure that matters is the first one
    in_doubt_ = in_doubt_ || (committing && !full);
    return {std::move(result), committing && !full};
  };
  if (auto begun = run("BEGIN IMMEDIATE"); !begun) return {std::move(begun), false};
  // SQLite writes no page whose bytes stay what they are, and without a page there is no commit in the log: the next process
  // would find the transaction in doubt there. This writes the first page whatever it holds; nothing else uses the number.
  if (in_doubt_) {
    if (auto written = run("PRAGMA user_version = 0"); !written) return end(std::move(written));
  }
  return end(write());
}

base::Result<> Database::run(const char* sql) { return TRY(statement(sql))->run(); }

base::Result<> Database::execute(const std::string& sql) {
  if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return base::fail(database_error(db_.get(), "the job store"));
  }
  return {};
}

base::Result<Statement*> Database::statement(const char* sql) {
  const auto it = statements_.find(sql);
  if (it != statements_.end()) return &it->second;
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr) != SQLITE_OK) {
    return base::fail(database_error(db_.get(), "the job store"));
  }
  return &statements_.emplace(sql, Statement(raw)).first->second;
}

base::Result<> Database::make_space_returnable() {
  if (check_setting(*this, "PRAGMA auto_vacuum", "2")) return {};
  return execute("PRAGMA auto_vacuum=INCREMENTAL; VACUUM;");
}

base::Result<Pages> Database::pages() {
  const auto value = [this](const char* pragma) -> base::Result<std::int64_t> {
    const StatementUse row(*TRY(statement(pragma)));
    TRY(row->step());
    return row->integer(0);
  };
  Pages pages;
  pages.count = TRY(value("PRAGMA page_count"));
  pages.free_count = TRY(value("PRAGMA freelist_count"));
  pages.bytes = TRY(value("PRAGMA page_size"));
  return pages;
}

std::int64_t Database::changes() const { return sqlite3_changes64(db_.get()); }

std::int64_t Database::last_rowid() const { return sqlite3_last_insert_rowid(db_.get()); }

Library loaded_library() {
  return {
      .version = sqlite3_libversion(), .version_number = sqlite3_libversion_number(), .threads = sqlite3_threadsafe()};
}

base::Result<> check_library(const Library& library) {
  if (library.threads == 0) {
    return base::fail(ErrorCode::kVersionMismatch,
                      "the SQLite library was built without thread support; install Debian's");
  }
  if (library.version_number < kVersionNumberMin) {
    return base::fail(ErrorCode::kVersionMismatch,
                      fmt::format("SQLite {} is too old; 3.37 is the least", library.version));
  }
  return {};
}

}  // namespace llorch::orchestratord::store::sqlite
