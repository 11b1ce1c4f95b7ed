// What SQLite sees of a FaultyDisk.
#include <sqlite3.h>

#include <atomic>
#include <new>
#include <utility>

#include "orchestratord/store/testing/disk_state.h"

namespace llorch::orchestratord::store::testing {
namespace {

struct File {
  sqlite3_file base;
  DiskState* state;
  NodePtr node;
  std::string remove_on_close;  // the name, if so
  bool sync_directory = false;  // with the first sync, as SQLite's own VFS does for logs and journals
};
File& self(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
DiskState& state_of(sqlite3_vfs* vfs) { return *static_cast<DiskState*>(vfs->pAppData); }

int on_close(sqlite3_file* file) {
  File& f = self(file);
  {
    const std::lock_guard lock(f.state->mutex);
    if (!f.remove_on_close.empty()) f.state->entries.erase(f.remove_on_close);
  }
  f.~File();
  return SQLITE_OK;
}
int on_read(sqlite3_file* file, void* out, int bytes, sqlite3_int64 offset) {
  File& f = self(file);
  const std::lock_guard lock(f.state->mutex);
  switch (f.state->read(*f.node, static_cast<std::size_t>(offset),
                        {static_cast<char*>(out), static_cast<std::size_t>(bytes)})) {
    case Outcome::kDone: return SQLITE_OK;
    case Outcome::kShort: return SQLITE_IOERR_SHORT_READ;
    default: return SQLITE_IOERR_READ;
  }
}
int on_write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  File& f = self(file);
  const std::lock_guard lock(f.state->mutex);
  switch (f.state->write(*f.node, static_cast<std::size_t>(offset),
                         {static_cast<const char*>(data), static_cast<std::size_t>(bytes)})) {
    case Outcome::kDone: return SQLITE_OK;
    case Outcome::kFull: return SQLITE_FULL;
    default: return SQLITE_IOERR_WRITE;
  }
}
int on_truncate(sqlite3_file* file, sqlite3_int64 size) {
  File& f = self(file);
  const std::lock_guard lock(f.state->mutex);
  const Outcome outcome = f.state->truncate(*f.node, static_cast<std::size_t>(size));
  return outcome == Outcome::kDone ? SQLITE_OK : SQLITE_IOERR_TRUNCATE;
}
int on_sync(sqlite3_file* file, int) {
  File& f = self(file);
  const std::lock_guard lock(f.state->mutex);
  if (f.state->sync(*f.node) != Outcome::kDone) return SQLITE_IOERR_FSYNC;
  if (std::exchange(f.sync_directory, false)) f.state->durable_entries = f.state->entries;
  return SQLITE_OK;
}
int on_size(sqlite3_file* file, sqlite3_int64* size) {
  File& f = self(file);
  const std::lock_guard lock(f.state->mutex);
  *size = static_cast<sqlite3_int64>(f.node->now.size());
  return SQLITE_OK;
}

// Lock calls succeed: one process has one connection. As on Linux, a write leaves the bytes around it alone.
const sqlite3_io_methods kMethods = {
    .iVersion = 1,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_size,
    .xLock = [](sqlite3_file*, int) { return SQLITE_OK; },
    .xUnlock = [](sqlite3_file*, int) { return SQLITE_OK; },
    .xCheckReservedLock = [](sqlite3_file*, int* out) { return *out = 0, SQLITE_OK; },
    .xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; },
    .xSectorSize = [](sqlite3_file*) { return 4096; },
    .xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; },
};

int on_open(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  static std::atomic<int> temporary{0};
  DiskState& state = state_of(vfs);
  const std::lock_guard lock(state.mutex);
  const std::string path = name != nullptr ? std::string(name) : "temporary-" + std::to_string(temporary++);
  NodePtr node = state.open(path, (flags & SQLITE_OPEN_CREATE) != 0);
  file->pMethods = nullptr;
  if (state.dead || node == nullptr) return SQLITE_CANTOPEN;
  new (file) File{.base = {.pMethods = &kMethods},
                  .state = &state,
                  .node = std::move(node),
                  .remove_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0 ? path : std::string(),
                  .sync_directory = (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0};
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}
int on_delete(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  DiskState& state = state_of(vfs);
  const std::lock_guard lock(state.mutex);
  if (state.dead || state.dies()) return SQLITE_IOERR_DELETE;
  if (state.entries.erase(name) == 0) return SQLITE_IOERR_DELETE_NOENT;
  if (sync_directory != 0) state.durable_entries = state.entries;
  return SQLITE_OK;
}
int on_access(sqlite3_vfs* vfs, const char* name, int, int* out) {
  DiskState& state = state_of(vfs);
  const std::lock_guard lock(state.mutex);
  *out = state.entries.contains(name) ? 1 : 0;
  return SQLITE_OK;
}
int on_full_name(sqlite3_vfs*, const char* name, int bytes, char* out) {
  sqlite3_snprintf(bytes, out, "%s", name);
  return SQLITE_OK;
}

}  // namespace

void register_vfs(DiskState& state) {
  static std::atomic<int> disks{0};
  state.vfs_name = "faulty-disk-" + std::to_string(disks++);
  auto* vfs = new sqlite3_vfs(*sqlite3_vfs_find("unix"));
  state.vfs = {vfs, [](sqlite3_vfs* v) { delete v; }};
  vfs->iVersion = 1;
  vfs->szOsFile = sizeof(File);
  vfs->pNext = nullptr;
  vfs->zName = state.vfs_name.c_str();
  vfs->pAppData = &state;
  vfs->xOpen = on_open;
  vfs->xDelete = on_delete;
  vfs->xAccess = on_access;
  vfs->xFullPathname = on_full_name;
  sqlite3_vfs_register(vfs, 0);
}

void create_database(FaultyDisk& disk, const std::string& name, std::int64_t page_bytes) {
  sqlite3* db = nullptr;
  sqlite3_open_v2(name.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, disk.sqlite_vfs().c_str());
  const std::string sql = "PRAGMA page_size=" + std::to_string(page_bytes) + "; PRAGMA auto_vacuum=INCREMENTAL; VACUUM";
  sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  sqlite3_close(db);
}

void unregister_vfs(DiskState& state) { sqlite3_vfs_unregister(state.vfs.get()); }

}  // namespace llorch::orchestratord::store::testing
