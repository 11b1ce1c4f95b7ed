#pragma once
// The cache of a loaded model: whose pages are whose, where they lie, and the tables by which the device finds them. Where
// several devices share the model each has its part of every page: the same pages, the same slabs, its own addresses.
//
// Thread rule: one thread at a time, between steps. reserve() and upload() allocate nothing while there are pages.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/inference/kv_cache/kv_plan.h"
#include "engine/inference/kv_cache/page_slabs.h"
#include "engine/inference/memory/oom_record.h"
#include "engine/inference/paging/page_tables.h"
#include "engine/plan/state.h"

namespace llorch::engine::inference::kv_cache {

// Pages of a group were freed or added.
struct SlabEvent {
  enum class Kind : std::uint8_t { kCompact, kNewSlab };
  Kind kind{};
  std::uint8_t state_id = 0;
  double free_frac = 0;                  // of the group's pages, before
  std::uint64_t largest_free_bytes = 0;  // the longest run of neighbouring free pages, before
  std::uint64_t bytes_moved = 0;
  std::uint64_t bytes_taken = 0;       // from the device
  std::uint64_t bytes_given_back = 0;  // to the device
  double ms = 0;
};
constexpr std::string_view event_name(SlabEvent::Kind kind) {
  return kind == SlabEvent::Kind::kCompact ? "KV_COMPACT" : "KV_NEW_SLAB";
}

// Whoever writes the log.
class KvObserver {
 public:
  virtual ~KvObserver() = default;
  virtual std::int64_t now_us() = 0;  // monotonic
  virtual void on_slabs(const SlabEvent& event) = 0;
  virtual void on_oom(const memory::OomRecord& record) = 0;
};

class KvMemory {
 public:
  // `plan` is each device's. Errors: OUT_OF_DEVICE_MEMORY. REQUIRES: at least one device.
  static base::Result<std::unique_ptr<KvMemory>> make(const KvPlan& plan, std::span<plan::Backend* const> devices);

  // Whoever changes them has what changed copied to the device before the next step: upload().
  paging::PageTables& tables() { return tables_; }
  const paging::PageTables& tables() const { return tables_; }
  // The paged states as a device's adapters get them.
  std::vector<plan::StateBlockHandle> handles(std::uint32_t device) const;
  std::uint64_t bytes() const;  // on each device

  // tables().reserve(), and make_room() when that fails.
  [[nodiscard]] bool reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens);
  // Makes as many pages takeable as a new sequence of this growth holds at once, by the rule of misses (miss_rule.h) and
  // within KvLimits::kv_tokens_max. Where the device has no memory (on_oom()), slabs in which another group of pages is
  // idle go back to it first. False: all that is not enough.
  bool make_room(const paging::Growth& growth);
  // Gives slabs that came by growing back to the device while what is live fits the others: pages move, their ids stay.
  // Returns the bytes given back on each device.
  std::uint64_t release_idle();

  // Copies the entries that changed since the last call to the device.
  void upload();
  void copy(std::span<const paging::PageCopy> copies);

  // Null for nobody. It outlives this or is taken away first.
  void observe(KvObserver* observer) { observer_ = observer; }

 private:
  // Where a group's pages lie on one device.
  struct Place {
    plan::Backend* backend = nullptr;
    PageSlabs slabs;
    std::vector<std::byte*> addresses;  // [slots][pages_per_slot], as on the device
    plan::DeviceBuffer table;
    plan::StateBlockHandle handle;
  };
  struct Group {
    KvGroup plan;
    std::vector<Place> places;  // [devices]; their slabs hold the same pages in the same order
  };
  class Report;

  explicit KvMemory(const KvPlan& plan);
  static base::Result<Group> take_group(const KvPlan& plan, const KvGroup& group,
                                        std::span<plan::Backend* const> devices);
  bool make_room(std::uint32_t group, std::uint32_t pages_needed);
  void compact(std::uint32_t group);
  bool grow(std::uint32_t group, std::uint32_t pages_needed);
  bool add_slab(std::uint32_t group, std::uint32_t pages_count);
  std::uint64_t give_back(std::uint32_t group);
  std::uint32_t growable(std::uint32_t group) const;
  PageSlabs::IsLive is_live(std::uint32_t group) const;
  void upload(std::uint32_t group, std::uint32_t slot, std::uint32_t begin, std::uint32_t end);

  KvLimits limits_;
  std::uint32_t pages_per_slot_;
  paging::PageTables tables_;
  std::vector<Group> groups_;
  KvObserver* observer_ = nullptr;
};

}  // namespace llorch::engine::inference::kv_cache
