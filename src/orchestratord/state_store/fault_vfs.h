#pragma once
// A SQLite VFS over the system's that fails when told to. For tests.
#include <atomic>
#include <cstdint>

namespace llorch::orchestratord::state_store {

struct DiskFaults {
  std::atomic<int> full{0};               // writes answer SQLITE_FULL while > 0
  std::atomic<int> sync_error{0};         // syncs answer SQLITE_IOERR_FSYNC while > 0
  std::atomic<std::int64_t> fail_at{-1};  // the n-th write or sync from now on, and every later one, is an I/O error
  std::atomic<std::int64_t> operations{0};

  void heal() {
    full = 0;
    sync_error = 0;
    fail_at = -1;
    operations = 0;
  }
};

// Registers the VFS "faulty" (once) and returns its switches.
DiskFaults& disk_faults();

}  // namespace llorch::orchestratord::state_store
