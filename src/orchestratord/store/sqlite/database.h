#pragma once
// SQLite as values and Results. One Database belongs to one thread at a time.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "orchestratord/store/backend.h"

struct sqlite3;
struct sqlite3_stmt;

namespace llorch::orchestratord::store::sqlite {

// CONFLICT for a violated constraint; CORRUPT_FILE for a file that is no database; else STORE_UNAVAILABLE with what to do.
base::Error database_error(sqlite3* db, std::string_view action);

class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  // 1-based, in order of the question marks.
  Statement& bind(int index, std::int64_t value);
  Statement& bind(int index, std::string_view text);
  Statement& bind(int index, const std::optional<std::int64_t>& value);
  Statement& bind(int index, const std::optional<std::string>& text);
  Statement& bind_blob(int index, std::string_view bytes);

  // Whether there is a row.
  base::Result<bool> step();
  // Runs a statement that yields no rows and makes it ready for the next use.
  base::Result<> run();
  void reset();

  // 0-based.
  std::int64_t integer(int column) const;
  std::string text(int column) const;  // also for blobs
  std::optional<std::int64_t> optional_integer(int column) const;
  std::optional<std::string> optional_text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// Resets a cached statement at the end of a scope, so that no read stays open.
class StatementUse {
 public:
  explicit StatementUse(Statement& statement) : statement_(statement) {}
  StatementUse(const StatementUse&) = delete;
  StatementUse& operator=(const StatementUse&) = delete;
  ~StatementUse() { statement_.reset(); }
  Statement* operator->() const { return &statement_; }
  const Statement& operator*() const { return statement_; }

 private:
  Statement& statement_;
};

struct DatabaseOptions {
  std::string path;
  std::string vfs;  // empty: the system's
  std::int64_t checkpoint_pages = 1000;
};

// Pages of the file, those of the log included.
struct Pages {
  std::int64_t count = 0;
  std::int64_t free_count = 0;
  std::int64_t bytes = 0;  // of one
};

class Database {
 public:
  // Opens a database, or makes one of an empty file: in WAL mode with synchronous FULL, foreign keys, secure delete and an
  // exclusive lock: one connection is what makes SQLite's WAL-reset race impossible. REQUIRES: the file exists; its mode is
  // the one SQLite gives the log.
  static base::Result<Database> open(const DatabaseOptions& options);
  Database(Database&&) noexcept = default;
  Database& operator=(Database&&) noexcept = default;

  // Rolls back a transaction that failed, also one in doubt; the next one that succeeds takes its place on disk, even if it
  // changes nothing.
  Ended transaction(const std::function<base::Result<>()>& write);

  base::Result<> execute(const std::string& sql);
  // Prepared once per connection and kept. REQUIRES `sql` to be a literal.
  base::Result<Statement*> statement(const char* sql);
  // A file of an older program is written anew, once: without that its free pages stay in it. What it needs beside the file
  // is as much memory. REQUIRES: no transaction is open.
  base::Result<> make_space_returnable();
  base::Result<Pages> pages();
  std::int64_t changes() const;
  // Of the last row inserted.
  std::int64_t last_rowid() const;
  sqlite3* handle() { return db_.get(); }

 private:
  explicit Database(sqlite3* db) : db_(db) {}
  base::Result<> run(const char* sql);
  base::Result<> remove_rollback_journal();

  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::unique_ptr<sqlite3, Close> db_;
  std::map<const char*, Statement> statements_;  // destroyed before db_
  bool in_doubt_ = false;                        // a transaction failed in doubt, and none has succeeded since
};

// The SQLite this process runs with, which need not be the one it was compiled with.
struct Library {
  std::string version;     // "3.40.1"
  int version_number = 0;  // 3040001
  int threads = 0;         // SQLITE_THREADSAFE: 0 none, 1 serialised, 2 one thread per connection at a time
};
Library loaded_library();
// VERSION_MISMATCH: built without threads, or older than the schema's STRICT tables (3.37).
base::Result<> check_library(const Library& library);

}  // namespace llorch::orchestratord::store::sqlite
