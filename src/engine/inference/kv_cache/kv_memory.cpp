#include "engine/inference/kv_cache/kv_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/inference/kv_cache/miss_rule.h"
#include "engine/inference/parallel/devices.h"

namespace llorch::engine::inference::kv_cache {

using paging::PageCounts;
using paging::PageId;
using plan::DeviceBuffer;
using plan::MemoryPurpose;

namespace {

// A page has a 32-bit id; this many are more than any device holds.
constexpr std::uint64_t kPagesMax = std::uint64_t{1} << 31;
// What a new slab holds: a quarter of what load took, so that a few of them cover any growth, and no less than this.
constexpr std::uint32_t kGrowthPagesMin = 16;

paging::PageTablesOptions tables_options(const KvPlan& plan) {
  paging::PageTablesOptions options{
      .groups = {}, .slots = plan.limits.slots, .context_tokens = plan.limits.context_tokens};
  for (const KvGroup& group : plan.groups) {
    options.groups.push_back(
        {.pages_total = static_cast<std::uint32_t>(group.pages), .window_tokens = group.window_tokens});
  }
  return options;
}

std::uint64_t free_bytes(const plan::Backend& backend) {
  const std::uint64_t budget = backend.memory_budget_bytes();
  return budget - std::min(budget, backend.memory_used_bytes());
}

}  // namespace

// One event, from before the change to its end.
class KvMemory::Report {
 public:
  Report(KvMemory& memory, std::uint32_t group, SlabEvent::Kind kind) : memory_(memory) {
    if (memory.observer_ == nullptr) return;
    const PageCounts counts = memory.tables_.counts(group);
    const Group& g = memory.groups_[group];
    event = {.kind = kind,
             .state_id = g.plan.state_id,
             .free_frac = counts.total == 0 ? 0.0 : static_cast<double>(counts.free()) / counts.total,
             .largest_free_bytes = g.places[0].slabs.largest_free(memory.is_live(group)) * g.plan.page_bytes};
    begin_us_ = memory.observer_->now_us();
  }
  void done() {
    if (memory_.observer_ == nullptr) return;
    event.ms = static_cast<double>(memory_.observer_->now_us() - begin_us_) / 1000.0;
    memory_.observer_->on_slabs(event);
  }
  SlabEvent event;

 private:
  KvMemory& memory_;
  std::int64_t begin_us_ = 0;
};

KvMemory::KvMemory(const KvPlan& plan)
    : limits_(plan.limits),
      pages_per_slot_(static_cast<std::uint32_t>(plan.pages_per_slot())),
      tables_(tables_options(plan)) {
  groups_.reserve(plan.groups.size());
}

base::Result<std::unique_ptr<KvMemory>> KvMemory::make(const KvPlan& plan, std::span<plan::Backend* const> devices) {
  for (const KvGroup& group : plan.groups) {
    if (group.pages_max < kPagesMax) continue;
    return base::fail(base::ErrorCode::kOutOfDeviceMemory,
                      fmt::format("a cache of {} pages; at most {} have a number", group.pages_max, kPagesMax - 1));
  }
  // The devices' memory first: what they refuse costs nothing here.
  std::vector<Group> groups;
  for (const KvGroup& group : plan.groups) groups.push_back(TRY(take_group(plan, group, devices)));
  std::unique_ptr<KvMemory> memory(new KvMemory(plan));
  memory->groups_ = std::move(groups);
  return memory;
}

base::Result<KvMemory::Group> KvMemory::take_group(const KvPlan& plan, const KvGroup& group,
                                                   std::span<plan::Backend* const> devices) {
  Group taken{.plan = group, .places = {}};
  const std::uint64_t entries = plan.limits.slots * plan.pages_per_slot();
  for (plan::Backend* backend : devices) {
    const auto of_device = [&](base::Error error) {
      return base::fail(parallel::error_at(std::move(error), static_cast<std::uint32_t>(taken.places.size()),
                                           static_cast<std::uint32_t>(devices.size())));
    };
    Place place{.backend = backend,
                .slabs = PageSlabs({group.page_bytes, plan.limits.dtype}, *backend),
                .addresses = {},
                .table = {},
                .handle = {}};
    base::Result<DeviceBuffer> slab = place.slabs.allocate(group.pages);
    if (!slab) return of_device(std::move(slab).error());
    auto table = DeviceBuffer::allocate(*backend, entries * sizeof(std::byte*), MemoryPurpose::kTables);
    if (!table) return of_device(std::move(table).error());
    place.table = *std::move(table);
    std::vector<PageId> pages;
    for (std::uint32_t page = 0; page < group.pages; ++page) pages.push_back(PageId{page});
    place.slabs.add_slab(*std::move(slab), pages);
    place.addresses.resize(entries, nullptr);
    backend->copy_to_device(place.table.data(), std::as_bytes(std::span(place.addresses)));
    place.handle = {.id = group.state_id,
                    .align_bytes = 64,
                    .size = group.page_bytes,
                    .pages = reinterpret_cast<std::byte* const*>(place.table.data()),
                    .pages_stride = static_cast<std::uint32_t>(plan.pages_per_slot())};
    taken.places.push_back(std::move(place));
  }
  return taken;
}

std::vector<plan::StateBlockHandle> KvMemory::handles(std::uint32_t device) const {
  std::vector<plan::StateBlockHandle> result;
  for (const Group& group : groups_) result.push_back(group.places[device].handle);
  return result;
}

std::uint64_t KvMemory::bytes() const {
  std::uint64_t sum = 0;
  for (const Group& group : groups_) sum += group.places[0].slabs.bytes();
  return sum;
}

bool KvMemory::reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens) {
  if (tables_.reserve(slot, held, tokens)) return true;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const std::uint32_t missing = tables_.pages_short(g, slot, held, tokens);
    if (missing > 0 && !make_room(g, tables_.counts(g).takeable() + missing)) return false;
  }
  return tables_.reserve(slot, held, tokens);
}

bool KvMemory::make_room(const paging::Growth& growth) {
  const auto pages_needed = [&](std::uint32_t g) { return tables_.group(g).pages_at_once(growth); };
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    if (!make_room(g, pages_needed(g))) return false;
  // A group that found no memory may have got that of one before it.
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    if (tables_.counts(g).takeable() < pages_needed(g)) return false;
  return true;
}

bool KvMemory::make_room(std::uint32_t group, std::uint32_t pages_needed) {
  bool compacted = false;
  for (;;) {
    const PageCounts counts = tables_.counts(group);
    if (counts.takeable() >= pages_needed) return true;
    switch (miss_action({.pages_total = counts.total,
                         .pages_free = counts.free(),
                         .pages_growable = growable(group),
                         .compacted = compacted})) {
      case MissAction::kCompact: compact(group); break;
      case MissAction::kNewSlab:
        if (!grow(group, pages_needed - counts.takeable())) return false;
        break;
      case MissAction::kRefuse: return false;
    }
    compacted = true;
  }
}

void KvMemory::compact(std::uint32_t group) {
  Report report(*this, group, SlabEvent::Kind::kCompact);
  tables_.expire(std::numeric_limits<std::int64_t>::max());
  report.done();
}

std::uint32_t KvMemory::growable(std::uint32_t group) const {
  return static_cast<std::uint32_t>(groups_[group].plan.pages_max - tables_.counts(group).total);
}

bool KvMemory::grow(std::uint32_t group, std::uint32_t pages_needed) {
  const std::uint32_t most = growable(group);
  if (pages_needed > most) return false;
  const auto usual = std::max(kGrowthPagesMin, static_cast<std::uint32_t>(groups_[group].plan.pages / 4));
  const std::uint32_t wanted = std::min(most, std::max(usual, pages_needed));
  if (add_slab(group, wanted)) return true;
  if (pages_needed < wanted && add_slab(group, pages_needed)) return true;
  std::uint64_t given_back = 0;
  for (std::uint32_t other = 0; other < groups_.size(); ++other)
    if (other != group) given_back += give_back(other);
  return given_back > 0 && add_slab(group, pages_needed);
}

bool KvMemory::add_slab(std::uint32_t group, std::uint32_t pages_count) {
  Report report(*this, group, SlabEvent::Kind::kNewSlab);
  Group& g = groups_[group];
  std::vector<DeviceBuffer> taken;  // by device: all or none
  for (Place& place : g.places) {
    auto memory = place.slabs.allocate(pages_count);
    if (!memory) {
      if (observer_ != nullptr) {
        observer_->on_oom({.stage = "run",
                           .purpose = std::string(plan::memory_purpose_name(MemoryPurpose::kState)),
                           .requested_bytes = pages_count * g.plan.page_bytes,
                           .free_bytes = free_bytes(*place.backend),
                           .action = fmt::format("no slab of {} pages", pages_count)});
      }
      return false;
    }
    taken.push_back(*std::move(memory));
  }
  report.event.bytes_taken = taken[0].size_bytes();
  const std::vector<PageId> pages = tables_.grow(group, pages_count);
  for (std::size_t device = 0; device < taken.size(); ++device)
    g.places[device].slabs.add_slab(std::move(taken[device]), pages);
  report.done();
  return true;
}

PageSlabs::IsLive KvMemory::is_live(std::uint32_t group) const {
  return [this, group](PageId page) { return tables_.is_live(group, page); };
}

std::uint64_t KvMemory::release_idle() {
  std::uint64_t bytes = 0;
  for (std::uint32_t group = 0; group < groups_.size(); ++group) bytes += give_back(group);
  return bytes;
}

std::uint64_t KvMemory::give_back(std::uint32_t group) {
  Group& g = groups_[group];
  PageSlabs& slabs = g.places[0].slabs;
  std::uint64_t bytes = 0;
  for (auto slab = slabs.emptiest(is_live(group)); slab; slab = slabs.emptiest(is_live(group))) {
    const std::uint32_t leaving = slabs.pages_count(*slab);
    if (tables_.counts(group).free() < leaving) break;
    Report report(*this, group, SlabEvent::Kind::kCompact);
    report.event.bytes_given_back = leaving * g.plan.page_bytes;
    const std::vector<PageId> pages = tables_.withdraw(group, leaving);
    for (Place& place : g.places) report.event.bytes_moved = place.slabs.give_back(*slab, pages, is_live(group));
    for (std::uint32_t slot = 0; slot < limits_.slots; ++slot) upload(group, slot, 0, pages_per_slot_);
    bytes += report.event.bytes_given_back;
    report.done();
  }
  return bytes;
}

void KvMemory::upload() {
  tables_.take_changes([this](std::uint32_t group, std::uint32_t slot, std::uint32_t begin, std::uint32_t end) {
    upload(group, slot, begin, end);
  });
}

void KvMemory::upload(std::uint32_t group, std::uint32_t slot, std::uint32_t begin, std::uint32_t end) {
  const std::span<const PageId> row = tables_.row(group, slot);
  const std::size_t first = std::size_t{slot} * pages_per_slot_;
  for (Place& place : groups_[group].places) {
    for (std::uint32_t i = begin; i < end; ++i) {
      place.addresses[first + i] = row[i] == paging::kNoPage ? nullptr : place.slabs.address_of(row[i]);
    }
    place.backend->copy_to_device(place.table.data() + (first + begin) * sizeof(std::byte*),
                                  std::as_bytes(std::span(place.addresses).subspan(first + begin, end - begin)));
  }
}

void KvMemory::copy(std::span<const paging::PageCopy> copies) {
  for (const paging::PageCopy& copy : copies)
    for (Place& place : groups_[copy.group].places) place.slabs.copy(copy.from, copy.to);
}

}  // namespace llorch::engine::inference::kv_cache
