#include "orchestratord/store/payload/payload_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace llorch::orchestratord::store::payload {
namespace {

constexpr std::array<std::uint8_t, kKeyBytes> kEmpty{};

std::uint64_t offset_of(Slot slot) { return std::uint64_t{index(slot)} * kKeyBytes; }

}  // namespace

base::Result<std::uint64_t> keys_bytes(files::StateFile& file) {
  const std::uint64_t bytes = TRY(file.size());
  if (bytes <= kKeysBytesMax) return bytes;
  return base::fail(
      base::ErrorCode::kCorruptFile,
      fmt::format("payload.keys has {} bytes, and {} are the most; it is not that of a job store: move it "
                  "away",
                  bytes, kKeysBytesMax));
}

base::Result<> PayloadKeys::adopt(const std::set<Slot>& live) {
  const std::uint64_t bytes = TRY(keys_bytes(*file_));
  const auto whole_slots_count = static_cast<std::uint32_t>(bytes / kKeyBytes);
  slots_count_ = static_cast<std::uint32_t>((bytes + kKeyBytes - 1) / kKeyBytes);
  for (std::uint32_t i = 0; i < slots_count_; ++i) {
    const bool free = !live.contains(Slot{i});
    if (free || i >= whole_slots_count) TRY(file_->write(offset_of(Slot{i}), kEmpty));
    if (free) empty_.insert(Slot{i});
  }
  // Not free either, for rows name them.
  lost_.insert(live.lower_bound(Slot{slots_count_}), live.end());
  return file_->sync();
}

base::Result<Slot> PayloadKeys::empty_slot() {
  if (!empty_.empty()) return empty_.extract(empty_.begin()).value();
  while (lost_.contains(Slot{slots_count_})) ++slots_count_;
  if (slots_count_ < kSlotsMax) return Slot{slots_count_++};
  return base::fail(
      base::ErrorCode::kStoreUnavailable,
      fmt::format("the job store has keys for {} live jobs, and no more; wait until some end", kSlotsMax));
}

base::Result<std::pair<Slot, Key>> PayloadKeys::create(std::size_t count) {
  if (durable_.empty()) {
    while (fresh_.size() < std::max(kSpareKeys, count)) {
      renew(TRY(empty_slot()));
    }
    TRY(sync());
  }
  auto next = durable_.front();
  durable_.pop_front();
  return next;
}

base::Result<Key> PayloadKeys::read(Slot slot) {
  Key key;
  if (index(slot) < slots_count_ && !lost_.contains(slot)) TRY(file_->read(offset_of(slot), key.bytes));
  if (key.bytes == kEmpty) {
    return base::fail(base::ErrorCode::kCorruptFile, "the payload's key is not in payload.keys any more");
  }
  return key;
}

base::Result<std::string> PayloadKeys::image(const std::set<Slot>& slots) {
  std::vector<std::uint8_t> held(std::min(TRY(file_->size()), offset_of(Slot{slots_count_})));
  TRY(file_->read(0, held));
  std::string out(held.size(), '\0');
  for (const Slot slot : slots) {
    const std::uint64_t at = offset_of(slot);
    if (at + kKeyBytes <= held.size())
      std::copy_n(held.begin() + static_cast<std::ptrdiff_t>(at), kKeyBytes,
                  out.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return out;
}

void PayloadKeys::erase(Slot slot) {
  if (lost_.erase(slot) > 0) {
    if (index(slot) < slots_count_) empty_.insert(slot);
    return;
  }
  renew(slot);
  (void)write_fresh();
}

bool PayloadKeys::erasure_pending(Slot slot) const {
  return std::ranges::any_of(fresh_, [slot](const Fresh& fresh) { return fresh.slot == slot && !fresh.durable; });
}

void PayloadKeys::renew(Slot slot) {
  Key& key = fresh_.emplace_back(Fresh{.slot = slot}).key;
  entropy_.fill(std::as_writable_bytes(std::span(key.bytes)));
}

// Whatever can be written: where new slots find no room, keys of ended jobs are overwritten all the same.
base::Result<> PayloadKeys::write_fresh() {
  base::Result<> all;
  for (std::size_t i = written_count_; i < fresh_.size(); ++i) {
    Fresh& fresh = fresh_[i];
    if (!fresh.written) {
      auto written = file_->write(offset_of(fresh.slot), fresh.key.bytes);
      fresh.written = written.has_value();
      if (all && !written) all = std::move(written);
    }
    if (fresh.written && i == written_count_) ++written_count_;
  }
  return all;
}

base::Result<> PayloadKeys::sync() {
  auto written = write_fresh();
  auto synced = file_->sync();
  for (Fresh& fresh : fresh_) {
    if (synced) fresh.durable = fresh.written;
    // What a failed sync was to write counts as written and may not be (see files/).
    fresh.written = fresh.durable;
  }
  while (!fresh_.empty() && fresh_.front().durable) {
    durable_.emplace_back(fresh_.front().slot, fresh_.front().key);
    fresh_.pop_front();
  }
  written_count_ = 0;
  return written ? synced : written;
}

base::Result<> PayloadKeys::close() {
  for (const Fresh& fresh : fresh_) durable_.emplace_back(fresh.slot, fresh.key);
  fresh_.clear();
  written_count_ = 0;
  for (const auto& [slot, key] : durable_) TRY(file_->write(offset_of(slot), kEmpty));
  return file_->sync();
}

}  // namespace llorch::orchestratord::store::payload
