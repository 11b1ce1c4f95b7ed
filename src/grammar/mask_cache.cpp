#include "grammar/mask_cache.h"

#include <string_view>
#include <type_traits>
#include <utility>

#include "base/keyed_hash.h"

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
  static_assert(std::has_unique_object_representations_v<PlaceKey>);
  return base::KeyedHash{}(std::string_view(reinterpret_cast<const char*>(&key), sizeof key));
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
