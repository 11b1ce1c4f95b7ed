#pragma once
// payload.keys: 32-byte slots, one per live job and some whose keys no job has yet. A payload's key is written nowhere
// else, so overwriting a slot makes the payload unreadable, whatever the database's log and free pages still hold. A
// slot is overwritten with the key of a job to come: keys are on disk before they are needed, and an admission waits
// for no sync of this file (ADR 0024).
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "base/entropy.h"
#include "base/result.h"
#include "orchestratord/store/files/state_file.h"
#include "orchestratord/store/payload/sealing.h"

namespace llorch::orchestratord::store::payload {

enum class Slot : std::uint32_t {};
constexpr std::uint32_t index(Slot slot) { return static_cast<std::uint32_t>(slot); }

// More jobs than any machine has live at a time; their keys have 512 MiB.
inline constexpr std::uint32_t kSlotsMax = 1U << 24;
inline constexpr std::uint64_t kKeysBytesMax = std::uint64_t{kSlotsMax} * kKeyBytes;
// Of the whole file. CORRUPT_FILE: it is larger than that.
base::Result<std::uint64_t> keys_bytes(files::StateFile& file);

// Not thread-safe.
class PayloadKeys {
 public:
  // Keys made at once when none is left, at least.
  static constexpr std::size_t kSpareKeys = 32;

  // REQUIRES: `entropy` outlives it.
  PayloadKeys(files::StateFilePtr file, base::Entropy& entropy) : file_(std::move(file)), entropy_(entropy) {}

  // Takes over the file at start: slots of `live` are in use, every other one is filled with zeros and synced. CORRUPT_FILE: as of
  // keys_bytes(). REQUIRES: those of `live` are below kSlotsMax.
  base::Result<> adopt(const std::set<Slot>& live);

  // A slot with a new key that is on disk already. Keys are handed out in the order they were drawn in. `count` is how many
  // this and the next calls will take: one sync is enough for them. STORE_UNAVAILABLE: kSlotsMax are in use.
  base::Result<std::pair<Slot, Key>> create(std::size_t count = 1);
  // CORRUPT_FILE: the slot is empty or beyond the end, so the key is lost.
  base::Result<Key> read(Slot slot);
  // The file as it stands, with zeroes in every slot but these.
  base::Result<std::string> image(const std::set<Slot>& slots);
  // Overwrites the slot now; what the disk refuses is tried again by sync().
  void erase(Slot slot);
  // Makes erasures durable. An error is that of some slot: those that could be written and synced are durable all the same.
  base::Result<> sync();
  // Whether an erasure is not yet durable.
  bool erasure_pending() const { return !fresh_.empty(); }
  bool erasure_pending(Slot slot) const;
  // Fills every slot that no job has with zeros, and syncs. REQUIRES: nothing but destruction follows.
  base::Result<> close();

 private:
  base::Result<Slot> empty_slot();
  void renew(Slot slot);
  base::Result<> write_fresh();

  files::StateFilePtr file_;
  base::Entropy& entropy_;
  std::uint32_t slots_count_ = 0;
  std::set<Slot> empty_;  // zeros
  std::set<Slot>
      lost_;  // of live jobs and past the end of the file that adopt() found: there is no key, and nothing to overwrite
  // A key of nobody yet. Until it is durable, what its slot held before may still be there.
  struct Fresh {
    Slot slot{};
    Key key{};
    bool written = false;
    bool durable = false;
  };
  std::deque<Fresh> fresh_;        // the first of them is not durable: those behind it wait, for the sake of the order
  std::size_t written_count_ = 0;  // so many of the first of them are written
  std::deque<std::pair<Slot, Key>> durable_;
};

}  // namespace llorch::orchestratord::store::payload
