#include "orchestratord/state_store/fault_vfs.h"

#include <sqlite3.h>

#include <new>

namespace llorch::orchestratord::state_store {
namespace {

DiskFaults g_faults;

struct FaultyFile {
  sqlite3_file base;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
FaultyFile* self(sqlite3_file* file) { return reinterpret_cast<FaultyFile*>(file); }
sqlite3_file* real(sqlite3_file* file) { return self(file)->real(); }
sqlite3_vfs* real_vfs() { return sqlite3_vfs_find("unix"); }

bool due() {
  const std::int64_t at = g_faults.fail_at;
  return at >= 0 && g_faults.operations++ >= at;
}

int on_write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  if (g_faults.full > 0) return SQLITE_FULL;
  if (due()) return SQLITE_IOERR_WRITE;
  return real(file)->pMethods->xWrite(real(file), data, bytes, offset);
}
int on_sync(sqlite3_file* file, int flags) {
  if (g_faults.sync_error > 0 || due()) return SQLITE_IOERR_FSYNC;
  return real(file)->pMethods->xSync(real(file), flags);
}

const sqlite3_io_methods kMethods = {
    .iVersion = 1,
    .xClose = [](sqlite3_file* f) { return real(f)->pMethods->xClose(real(f)); },
    .xRead = [](sqlite3_file* f, void* out, int n,
                sqlite3_int64 at) { return real(f)->pMethods->xRead(real(f), out, n, at); },
    .xWrite = on_write,
    .xTruncate = [](sqlite3_file* f, sqlite3_int64 size) { return real(f)->pMethods->xTruncate(real(f), size); },
    .xSync = on_sync,
    .xFileSize = [](sqlite3_file* f, sqlite3_int64* size) { return real(f)->pMethods->xFileSize(real(f), size); },
    .xLock = [](sqlite3_file* f, int level) { return real(f)->pMethods->xLock(real(f), level); },
    .xUnlock = [](sqlite3_file* f, int level) { return real(f)->pMethods->xUnlock(real(f), level); },
    .xCheckReservedLock = [](sqlite3_file* f, int* out) { return real(f)->pMethods->xCheckReservedLock(real(f), out); },
    .xFileControl = [](sqlite3_file* f, int op,
                       void* arg) { return real(f)->pMethods->xFileControl(real(f), op, arg); },
    .xSectorSize = [](sqlite3_file* f) { return real(f)->pMethods->xSectorSize(real(f)); },
    .xDeviceCharacteristics = [](sqlite3_file* f) { return real(f)->pMethods->xDeviceCharacteristics(real(f)); },
};

int on_open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  const int code = real_vfs()->xOpen(real_vfs(), name, real(file), flags, out_flags);
  file->pMethods = real(file)->pMethods == nullptr ? nullptr : &kMethods;
  return code;
}

}  // namespace

DiskFaults& disk_faults() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs v = *real_vfs();
    v.zName = "faulty";
    v.szOsFile = static_cast<int>(sizeof(FaultyFile)) + real_vfs()->szOsFile;
    v.pNext = nullptr;
    v.xOpen = on_open;
    return v;
  }();
  static const int registered = sqlite3_vfs_register(&vfs, 0);
  (void)registered;
  return g_faults;
}

}  // namespace llorch::orchestratord::state_store
