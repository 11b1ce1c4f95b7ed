#pragma once
// payload.keys: one 32-byte slot per live job. The only place a payload's key is ever written (DECISIONS §5), so
// overwriting a slot is what makes a payload unreadable, whatever the database's log and free pages still hold.
#include <cstdint>
#include <set>
#include <utility>

#include "base/entropy.h"
#include "base/result.h"
#include "orchestratord/state_store/files/state_file.h"
#include "orchestratord/state_store/payload/sealing.h"

namespace llorch::orchestratord::state_store::payload {

enum class Slot : std::uint32_t {};
constexpr std::uint32_t index(Slot slot) { return static_cast<std::uint32_t>(slot); }

// An all-zero slot is free. Not thread-safe.
class PayloadKeys {
 public:
  // REQUIRES: `entropy` outlives it.
  PayloadKeys(files::StateFilePtr file, base::Entropy& entropy) : file_(std::move(file)), entropy_(entropy) {}

  // Takes over the file at start: slots of `live` are in use, every other one is overwritten and synced.
  base::Result<> adopt(const std::set<Slot>& live);

  // Writes a new key into a free slot. Durable after sync().
  base::Result<std::pair<Slot, Key>> create();
  // CORRUPT_FILE: the slot is empty or beyond the end, so the key is lost.
  base::Result<Key> read(Slot slot);
  // Overwrites the slot now; what the disk refuses is tried again by sync(). The slot is free from then on.
  void erase(Slot slot);
  // Makes keys and erasures durable.
  base::Result<> sync();
  // Whether an erasure is not yet durable.
  bool erasure_pending() const { return !erasing_.empty(); }

 private:
  base::Result<> overwrite(Slot slot);

  files::StateFilePtr file_;
  base::Entropy& entropy_;
  std::uint32_t slots_count_ = 0;
  std::set<Slot> free_;
  std::set<Slot> erasing_;    // their overwriting is not yet durable; those that are free are written
  bool write_again_ = false;  // a sync failed: what it was to write counts as written and may not be (see files/)
};

}  // namespace llorch::orchestratord::state_store::payload
