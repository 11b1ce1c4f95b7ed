#pragma once
// payload.keys: one 32-byte slot per live job. The only place a payload's key is ever written (DECISIONS §5), so
// overwriting a slot is what makes a payload unreadable, whatever the database's log and free pages still hold.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/entropy.h"
#include "base/result.h"
#include "orchestratord/state_store/payload/sealing.h"

namespace llorch::orchestratord::state_store::payload {

// The operating-system seam: real and faulty versions exist. Offsets and sizes in bytes; short transfers are errors.
class KeyFile {
 public:
  virtual ~KeyFile() = default;
  virtual base::Result<std::uint64_t> size() = 0;
  virtual base::Result<> read(std::uint64_t offset, std::span<std::uint8_t> out) = 0;
  virtual base::Result<> write(std::uint64_t offset, std::span<const std::uint8_t> bytes) = 0;
  virtual base::Result<> sync() = 0;  // fdatasync
};

// Created with mode 0600. Errors (also of its members): STORE_UNAVAILABLE.
base::Result<std::unique_ptr<KeyFile>> open_key_file(const std::filesystem::path& path);

enum class Slot : std::uint32_t {};
constexpr std::uint32_t index(Slot slot) { return static_cast<std::uint32_t>(slot); }

// An all-zero slot is free. Not thread-safe.
class PayloadKeys {
 public:
  // REQUIRES: `entropy` outlives it.
  PayloadKeys(std::unique_ptr<KeyFile> file, base::Entropy& entropy) : file_(std::move(file)), entropy_(entropy) {}

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
  bool erasure_pending() const { return unsynced_erasures_ || !to_erase_.empty(); }

 private:
  base::Result<> overwrite(Slot slot);

  std::unique_ptr<KeyFile> file_;
  base::Entropy& entropy_;
  std::uint32_t slots_count_ = 0;
  std::set<Slot> free_;
  std::vector<Slot> to_erase_;
  bool unsynced_erasures_ = false;
};

}  // namespace llorch::orchestratord::state_store::payload
