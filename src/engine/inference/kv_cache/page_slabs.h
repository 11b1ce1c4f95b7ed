#pragma once
// Where the cache pages of one group lie. Pages live inside slabs: large allocations of pages of one kind, taken at load
// and when the cache grows, and used over and over by whoever holds the pages. A page keeps its id while its place changes.
//
// Thread rule: one thread at a time, between steps.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/inference/paging/page_pool.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference::kv_cache {

// Pages with one key can take each other's places.
struct SlabKey {
  std::uint64_t page_bytes =
      0;  // kv width of all layers of the group x 64 positions, each layer's part padded to 64 bytes
  plan::DType dtype = plan::DType::kF16;
};

class PageSlabs {
 public:
  // Whether what the page holds is of use to anyone.
  using IsLive = std::function<bool(paging::PageId)>;

  PageSlabs(const SlabKey& key, plan::Backend& backend) : key_(key), backend_(&backend) {}

  // Memory for a slab. Errors: OUT_OF_DEVICE_MEMORY. REQUIRES: at least one page.
  base::Result<plan::DeviceBuffer> allocate(std::uint64_t pages_count);
  // Gives each of `pages`, which have no place, one in the new slab.
  void add_slab(plan::DeviceBuffer memory, std::span<const paging::PageId> pages);

  const SlabKey& key() const { return key_; }
  std::size_t slabs_count() const { return slabs_.size(); }
  std::uint64_t bytes() const;
  std::byte* address_of(paging::PageId page) const { return places_[static_cast<std::size_t>(page)].address; }
  void copy(paging::PageId from, paging::PageId to) {
    backend_->copy_on_device(address_of(to), address_of(from), key_.page_bytes);
  }
  // The longest run of neighbouring places without a live page.
  std::uint32_t largest_free(const IsLive& is_live) const;

  // The slab that is cheapest to give back: the one with the fewest live pages among those that came after the first.
  std::optional<std::size_t> emptiest(const IsLive& is_live) const;
  std::uint32_t pages_count(std::size_t slab) const { return static_cast<std::uint32_t>(slabs_[slab].pages.size()); }
  // Gives a slab back to the device. As many pages as it has leave and have no place any more; the slab's other pages take
  // the places of those that leave from elsewhere, with their bytes if live. Returns the bytes moved.
  // REQUIRES: leaving.size() == pages_count(slab); none of them is live.
  std::uint64_t give_back(std::size_t slab, std::span<const paging::PageId> leaving, const IsLive& is_live);

 private:
  struct Slab {
    plan::DeviceBuffer memory;
    std::vector<paging::PageId> pages;  // by place
  };
  struct Place {
    std::byte* address = nullptr;
    std::uint32_t slab = 0, index = 0;
  };
  Place& place(paging::PageId page) { return places_[static_cast<std::size_t>(page)]; }
  void settle(paging::PageId page, std::uint32_t slab, std::uint32_t index);

  SlabKey key_;
  plan::Backend* backend_;
  std::vector<Slab> slabs_;
  std::vector<Place> places_;  // by page; address null: none
};

}  // namespace llorch::engine::inference::kv_cache
