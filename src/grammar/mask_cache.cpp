#include "grammar/mask_cache.h"

#include <cstring>
#include <utility>

namespace llorch::grammar {

std::size_t PlaceMask::bytes() const {
  std::size_t bytes = sizeof(PlaceMask) + 256;  // list and hash nodes, control block
  for (const Layer& layer : layers) {
    const std::size_t entries =
        layer.words.capacity() + layer.ids.capacity() + layer.open_nodes.capacity() + 2 * layer.groups.capacity();
    bytes += sizeof(Layer) + sizeof(std::uint32_t) * entries;
  }
  return bytes;
}

std::size_t MaskCache::Hash::operator()(const PlaceKey& key) const {
  std::size_t hash;
  std::memcpy(&hash, key.rule.data(), sizeof(hash));
  for (const std::uint32_t part : {key.state, key.tier}) hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

std::shared_ptr<const PlaceMask> MaskCache::find(const PlaceKey& key) {
  const std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->mask;
}

void MaskCache::insert(const PlaceKey& key, std::shared_ptr<const PlaceMask> mask) {
  const std::lock_guard lock(mutex_);
  if (mask->bytes() > bytes_max_ || index_.contains(key)) return;
  bytes_ += mask->bytes();
  entries_.push_front({key, std::move(mask)});
  index_.emplace(key, entries_.begin());
  while (bytes_ > bytes_max_) {
    bytes_ -= entries_.back().mask->bytes();
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

std::size_t MaskCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace llorch::grammar
