#pragma once
// A disk in memory for tests and the simulator: SQLite reaches it through a VFS, the key file through the file door. It
// knows what a power failure would leave, and fails when told to. Deterministic for one seed. Thread-safe.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "orchestratord/store/files/state_file.h"

namespace llorch::orchestratord::store::testing {

enum class Fault : std::uint8_t {
  kNone,
  kFull,   // a write puts down less than it should: ENOSPC
  kWrite,  // a write puts down any part and is an error: EIO
  kSync,  // a sync makes any part durable and is an error; the rest stays visible, and often counts as written from then on
  kRead,  // a read fails half-way
  kIo,    // writes and syncs
};

// What of a file survives: a kill leaves everything that was written. A power failure leaves, of what was written since the
// last sync, any prefix of the changes of each 512-byte sector, the last of them torn; and the directory as it is or as it
// was when it was last synced, entry by entry.
enum class Crash : std::uint8_t { kKill, kPowerFailure };

class FaultyDisk {
 public:
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

  explicit FaultyDisk(std::uint64_t seed);
  // Another disk with the same content, all of it durable.
  FaultyDisk(std::uint64_t seed, const FaultyDisk& content);
  ~FaultyDisk();  // REQUIRES: nothing is open
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  const std::string& sqlite_vfs() const;
  files::OpenFile door();

  // ---- faults ----
  // Of the operations that the fault concerns, the first `after` succeed and the next `times` fail.
  struct Plan {
    Fault fault = Fault::kNone;
    std::int64_t after = 0;
    std::int64_t times = kForever;
  };
  void fail(const Plan& plan);
  void heal() { fail({}); }
  // How many operations the plan has made fail.
  std::int64_t failures() const;

  // ---- crashes ----
  // The process dies after this many further changes (writes, syncs, truncations, deletions), the next one half done: what
  // it does from then on fails and changes nothing.
  void die_after(std::int64_t changes);
  void die();
  bool dead() const;
  // The process is gone; another one may open what is left. REQUIRES: nothing is open.
  void restart(Crash crash);

  // ---- what an observer sees ----
  // As a process reads it; empty if there is no such file.
  std::string content(std::string_view name) const;
  // Whether the file, as read, as it is on the medium, or on its way there, holds these bytes.
  bool holds(std::string_view name, std::string_view bytes) const;
  // From now on no write may carry these bytes.
  void forbid(std::string bytes);
  bool forbidden_seen() const;

  // ---- bugs put in on purpose ----
  // Syncs of this file do nothing and succeed.
  void ignore_syncs(std::string name);

 private:
  std::unique_ptr<struct DiskState> state_;
};

// An empty database with pages of this size; small ones make a simulated commit cheap.
void create_database(FaultyDisk& disk, const std::string& name, std::int64_t page_bytes);

}  // namespace llorch::orchestratord::store::testing
