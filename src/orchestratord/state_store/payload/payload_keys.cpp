#include "orchestratord/state_store/payload/payload_keys.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace llorch::orchestratord::state_store::payload {
namespace {

constexpr std::array<std::uint8_t, kKeyBytes> kEmpty{};

std::uint64_t offset_of(Slot slot) { return std::uint64_t{index(slot)} * kKeyBytes; }

}  // namespace

base::Result<> PayloadKeys::adopt(const std::set<Slot>& live) {
  const std::uint64_t bytes = TRY(file_->size());
  const auto whole_slots_count = static_cast<std::uint32_t>(bytes / kKeyBytes);
  slots_count_ = static_cast<std::uint32_t>((bytes + kKeyBytes - 1) / kKeyBytes);
  if (!live.empty()) slots_count_ = std::max(slots_count_, index(*live.rbegin()) + 1);
  for (std::uint32_t i = 0; i < slots_count_; ++i) {
    if (!live.contains(Slot{i})) {
      TRY(overwrite(Slot{i}));
    } else if (i >= whole_slots_count) {  // its key is lost, yet the slot is not free: the job's row names it
      TRY(file_->write(offset_of(Slot{i}), kEmpty));
    }
  }
  return file_->sync();
}

base::Result<std::pair<Slot, Key>> PayloadKeys::create() {
  const Slot slot = free_.empty() ? Slot{slots_count_} : *free_.begin();
  Key key;
  entropy_.fill(std::as_writable_bytes(std::span(key.bytes)));
  free_.erase(slot);
  erasing_.erase(slot);
  slots_count_ = std::max(slots_count_, index(slot) + 1);
  if (auto written = file_->write(offset_of(slot), key.bytes); !written) {
    erase(slot);  // a part of the key may have reached the file
    return base::fail(std::move(written).error());
  }
  return std::pair(slot, key);
}

base::Result<Key> PayloadKeys::read(Slot slot) {
  Key key;
  if (index(slot) < slots_count_) TRY(file_->read(offset_of(slot), key.bytes));
  if (key.bytes == kEmpty) {
    return base::fail(base::ErrorCode::kCorruptFile, "the payload's key is not in payload.keys any more");
  }
  return key;
}

void PayloadKeys::erase(Slot slot) {
  erasing_.insert(slot);
  (void)overwrite(slot);  // what the disk refuses is not free, and tried again by sync()
}

base::Result<> PayloadKeys::sync() {
  std::set<Slot> refused;
  for (const Slot slot : erasing_) {
    if ((write_again_ || !free_.contains(slot)) && !overwrite(slot)) refused.insert(slot);
  }
  auto synced = file_->sync();
  write_again_ = !synced;
  if (synced) erasing_ = std::move(refused);
  return synced;
}

base::Result<> PayloadKeys::overwrite(Slot slot) {
  TRY(file_->write(offset_of(slot), kEmpty));
  free_.insert(slot);
  return {};
}

}  // namespace llorch::orchestratord::state_store::payload
