#include "orchestratord/store/sqlite/copy.h"

#include <fmt/core.h>
#include <sqlite3.h>

#include "base/assert.h"

namespace llorch::orchestratord::store::sqlite {
namespace {

base::Error copy_error(int code) {
  return base::Error{base::ErrorCode::kStoreUnavailable,
                     fmt::format("cannot write the copy of the job store: {}; give a file on a disk with room that "
                                 "orchestratord may write",
                                 sqlite3_errstr(code)),
                     {}}
      .with("sqlite_code", std::int64_t{code});
}

}  // namespace

void Copy::Close::operator()(sqlite3* db) const { sqlite3_close_v2(db); }
void Copy::Finish::operator()(sqlite3_backup* backup) const { sqlite3_backup_finish(backup); }

base::Result<std::unique_ptr<Copy>> Copy::begin(Database& source, const Target& target) {
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int opened =
      sqlite3_open_v2(target.path.c_str(), &raw, flags, target.vfs.empty() ? nullptr : target.vfs.c_str());
  std::unique_ptr<Copy> copy(new Copy(raw));
  if (opened != SQLITE_OK) return base::fail(copy_error(opened));
  // A copy that was cut short is thrown away, so it needs no journal.
  const int set = sqlite3_exec(raw, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
  if (set != SQLITE_OK) return base::fail(copy_error(set));
  copy->backup_.reset(sqlite3_backup_init(raw, "main", source.handle(), "main"));
  if (!copy->backup_) return base::fail(copy_error(sqlite3_extended_errcode(raw)));
  return copy;
}

base::Result<bool> Copy::step(int pages_count) {
  ASSERT(backup_ != nullptr, "a step after the last one");
  const int code = sqlite3_backup_step(backup_.get(), pages_count);
  if (code == SQLITE_OK) return false;
  if (code != SQLITE_DONE) return base::fail(copy_error(code));
  backup_.reset();
  return true;
}

BackupProgress Copy::progress() const {
  if (!backup_) return {};
  const int total = sqlite3_backup_pagecount(backup_.get());
  return {.pages_done = total - sqlite3_backup_remaining(backup_.get()), .pages_total = total};
}

}  // namespace llorch::orchestratord::store::sqlite
