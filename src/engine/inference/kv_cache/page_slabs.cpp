#include "engine/inference/kv_cache/page_slabs.h"

#include <algorithm>

namespace llorch::engine::inference::kv_cache {

using paging::PageId;

base::Result<plan::DeviceBuffer> PageSlabs::allocate(std::uint64_t pages_count) {
  return plan::DeviceBuffer::allocate(*backend_, pages_count * key_.page_bytes, plan::MemoryPurpose::kState);
}

void PageSlabs::add_slab(plan::DeviceBuffer memory, std::span<const PageId> pages) {
  ASSERT(memory.size_bytes() == pages.size() * key_.page_bytes, "{} bytes for {} pages of {}", memory.size_bytes(),
         pages.size(), key_.page_bytes);
  const auto slab = static_cast<std::uint32_t>(slabs_.size());
  slabs_.push_back({.memory = std::move(memory), .pages = {pages.begin(), pages.end()}});
  for (std::uint32_t i = 0; i < pages.size(); ++i) settle(pages[i], slab, i);
}

void PageSlabs::settle(PageId page, std::uint32_t slab, std::uint32_t index) {
  const auto number = static_cast<std::size_t>(page);
  if (number >= places_.size()) places_.resize(number + 1);
  places_[number] = {.address = slabs_[slab].memory.data() + index * key_.page_bytes, .slab = slab, .index = index};
  slabs_[slab].pages[index] = page;
}

std::uint64_t PageSlabs::bytes() const {
  std::uint64_t sum = 0;
  for (const Slab& slab : slabs_) sum += slab.memory.size_bytes();
  return sum;
}

std::uint32_t PageSlabs::largest_free(const IsLive& is_live) const {
  std::uint32_t longest = 0;
  for (const Slab& slab : slabs_) {
    std::uint32_t run = 0;
    for (PageId page : slab.pages) {
      run = is_live(page) ? 0 : run + 1;
      longest = std::max(longest, run);
    }
  }
  return longest;
}

std::optional<std::size_t> PageSlabs::emptiest(const IsLive& is_live) const {
  std::optional<std::size_t> best;
  std::ptrdiff_t fewest = 0;
  for (std::size_t i = 1; i < slabs_.size(); ++i) {
    const std::ptrdiff_t live = std::ranges::count_if(slabs_[i].pages, is_live);
    if (best && live >= fewest) continue;
    best = i;
    fewest = live;
  }
  return best;
}

std::uint64_t PageSlabs::give_back(std::size_t slab, std::span<const PageId> leaving, const IsLive& is_live) {
  ASSERT(slab < slabs_.size() && leaving.size() == slabs_[slab].pages.size(), "slab {} of {}, {} pages leave", slab,
         slabs_.size(), leaving.size());
  std::vector<Place> vacated;  // outside of the slab
  for (PageId page : leaving) {
    ASSERT(!is_live(page) && place(page).address != nullptr, "page {} leaves", static_cast<std::uint32_t>(page));
    if (place(page).slab != slab) vacated.push_back(place(page));
    place(page) = {};
  }
  std::uint64_t bytes_moved = 0;
  for (PageId page : slabs_[slab].pages) {
    const std::byte* const from = place(page).address;
    if (from == nullptr) continue;
    const Place to = vacated.back();
    vacated.pop_back();
    if (is_live(page)) {
      backend_->copy_on_device(to.address, from, key_.page_bytes);
      bytes_moved += key_.page_bytes;
    }
    settle(page, to.slab, to.index);
  }
  slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(slab));
  for (std::uint32_t s = 0; s < slabs_.size(); ++s) {
    for (PageId page : slabs_[s].pages) place(page).slab = s;
  }
  return bytes_moved;
}

}  // namespace llorch::engine::inference::kv_cache
