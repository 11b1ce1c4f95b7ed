#pragma once
// A copy of a database that is in use, made a few pages at a time.
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "orchestratord/store/backend.h"
#include "orchestratord/store/sqlite/database.h"

struct sqlite3_backup;

namespace llorch::orchestratord::store::sqlite {

// What `source` commits between two steps is in the copy as well: SQLite writes it to both, so a copy is done in as many
// steps as there are pages, and is of the moment of its last step. Not synced. REQUIRES: `source` outlives it, and nobody
// else opens the file meanwhile.
class Copy final : public DatabaseCopy {
 public:
  struct Target {
    std::string path;  // an existing file: empty, or a whole database
    std::string vfs;   // empty: the system's
  };
  // Errors: STORE_UNAVAILABLE.
  static base::Result<std::unique_ptr<Copy>> begin(Database& source, const Target& target);
  base::Result<bool> step(int pages_count) override;
  BackupProgress progress() const override;

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  struct Finish {
    void operator()(sqlite3_backup* backup) const;
  };
  explicit Copy(sqlite3* target) : target_(target) {}

  std::unique_ptr<sqlite3, Close> target_;
  std::unique_ptr<sqlite3_backup, Finish> backup_;  // destroyed before target_
};

}  // namespace llorch::orchestratord::store::sqlite
