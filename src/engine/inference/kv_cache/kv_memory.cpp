#include "engine/inference/kv_cache/kv_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/inference/kv_cache/miss_rule.h"

namespace llorch::engine::inference::kv_cache {

using contract::DeviceBuffer;
using contract::MemoryPurpose;
using paging::PageCounts;
using paging::PageId;

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

std::uint64_t free_bytes(const contract::Backend& backend) {
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
             .largest_free_bytes = g.slabs.largest_free(memory.is_live(group)) * g.plan.page_bytes};
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

KvMemory::KvMemory(const KvPlan& plan, contract::Backend& backend)
    : backend_(&backend),
      limits_(plan.limits),
      pages_per_slot_(static_cast<std::uint32_t>(plan.pages_per_slot())),
      tables_(tables_options(plan)) {
  groups_.reserve(plan.groups.size());
}

base::Result<std::unique_ptr<KvMemory>> KvMemory::make(const KvPlan& plan, contract::Backend& backend) {
  for (const KvGroup& group : plan.groups) {
    if (group.pages_max < kPagesMax) continue;
    return base::fail(base::ErrorCode::kOutOfDeviceMemory,
                      fmt::format("a cache of {} pages; at most {} have a number", group.pages_max, kPagesMax - 1));
  }
  // The device's memory first: what it refuses costs nothing here.
  std::vector<DeviceBuffer> slabs, tables;
  for (const KvGroup& group : plan.groups) {
    slabs.push_back(TRY(PageSlabs({group.page_bytes, plan.limits.dtype}, backend).allocate(group.pages)));
    const std::uint64_t table_bytes = plan.table_bytes() / plan.groups.size();
    tables.push_back(TRY(DeviceBuffer::allocate(backend, table_bytes, MemoryPurpose::kTables)));
  }
  std::unique_ptr<KvMemory> memory(new KvMemory(plan, backend));
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    memory->add_group(plan.groups[g], std::move(slabs[g]), std::move(tables[g]));
  return memory;
}

void KvMemory::add_group(const KvGroup& plan, DeviceBuffer slab, DeviceBuffer table) {
  Group group{.plan = plan,
              .slabs = PageSlabs({plan.page_bytes, limits_.dtype}, *backend_),
              .addresses = std::vector<std::byte*>(std::size_t{limits_.slots} * pages_per_slot_, nullptr),
              .table = std::move(table),
              .handle = {}};
  std::vector<PageId> pages;
  for (std::uint32_t page = 0; page < plan.pages; ++page) pages.push_back(PageId{page});
  group.slabs.add_slab(std::move(slab), pages);
  backend_->copy_to_device(group.table.data(), std::as_bytes(std::span(group.addresses)));
  group.handle = {.id = plan.state_id,
                  .align_bytes = 64,
                  .size = plan.page_bytes,
                  .pages = reinterpret_cast<std::byte* const*>(group.table.data()),
                  .pages_stride = pages_per_slot_};
  groups_.push_back(std::move(group));
}

std::vector<contract::StateBlockHandle> KvMemory::handles() const {
  std::vector<contract::StateBlockHandle> result;
  for (const Group& group : groups_) result.push_back(group.handle);
  return result;
}

std::uint64_t KvMemory::bytes() const {
  std::uint64_t sum = 0;
  for (const Group& group : groups_) sum += group.slabs.bytes();
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
  auto memory = g.slabs.allocate(pages_count);
  if (!memory) {
    if (observer_ != nullptr) {
      observer_->on_oom({.stage = "run",
                         .purpose = std::string(contract::memory_purpose_name(MemoryPurpose::kState)),
                         .requested_bytes = pages_count * g.plan.page_bytes,
                         .free_bytes = free_bytes(*backend_),
                         .action = fmt::format("no slab of {} pages", pages_count)});
    }
    return false;
  }
  report.event.bytes_taken = memory->size_bytes();
  g.slabs.add_slab(*std::move(memory), tables_.grow(group, pages_count));
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
  std::uint64_t bytes = 0;
  for (auto slab = g.slabs.emptiest(is_live(group)); slab; slab = g.slabs.emptiest(is_live(group))) {
    const std::uint32_t leaving = g.slabs.pages_count(*slab);
    if (tables_.counts(group).free() < leaving) break;
    Report report(*this, group, SlabEvent::Kind::kCompact);
    report.event.bytes_given_back = leaving * g.plan.page_bytes;
    report.event.bytes_moved = g.slabs.give_back(*slab, tables_.withdraw(group, leaving), is_live(group));
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
  Group& g = groups_[group];
  const std::span<const PageId> row = tables_.row(group, slot);
  const std::size_t first = std::size_t{slot} * pages_per_slot_;
  for (std::uint32_t i = begin; i < end; ++i) {
    g.addresses[first + i] = row[i] == paging::kNoPage ? nullptr : g.slabs.address_of(row[i]);
  }
  backend_->copy_to_device(g.table.data() + (first + begin) * sizeof(std::byte*),
                           std::as_bytes(std::span(g.addresses).subspan(first + begin, end - begin)));
}

void KvMemory::copy(std::span<const paging::PageCopy> copies) {
  for (const paging::PageCopy& copy : copies) groups_[copy.group].slabs.copy(copy.from, copy.to);
}

}  // namespace llorch::engine::inference::kv_cache
