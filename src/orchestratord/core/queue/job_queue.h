#pragma once
// Where admitted jobs wait: two priority classes, FIFO by arrival inside a class, one group per class and GroupIndex
// (a model and where its jobs may run), so that what cannot run now holds up nobody else.
//
// An entry is reserved (its admission is not committed yet; it holds its place and blocks its group), ready, or delayed
// (backing off after a failed attempt; it keeps its place by arrival but lets others pass).
//
// The places are shared as the sessions are: each tenant, and the operator, has an equal part of `capacity`. While there is
// room anybody may take it; of a full queue a tenant that has its share gets nothing but the places of its own entries. One
// that has less gets in: it displaces an entry of the tenant that has most, as far as the policy displaces any, else
// it is the one too many. So nobody keeps anybody out, and at most one share for each waits above `capacity`. Without tenants
// the share is the whole queue.
// One thread. Costs: admission amortised O(1) (appended at the end of its maps), everything else O(log n), position() O(n); who
// displaces another tenant's entry looks at the count of each tenant.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "orchestratord/core/jobs/ids.h"
#include "wire/task.h"

namespace llorch::orchestratord::core::queue {

using jobs::Arrival;
using jobs::GroupIndex;
using wire::Priority;

std::string_view policy_label(config::QueuePolicy policy);  // "reject", "drop-lru", "shed-low-priority", "queue"

struct Entry {
  Arrival arrival;
  GroupIndex group;
  Priority priority = Priority::kInteractive;  // rises to interactive when promoted
  std::int64_t queued_ms = 0;                  // monotonic time of admission; promotion counts from here
  bool displaceable = true;                    // false once it was dispatched: a full queue may not drop it any more
  std::size_t tenant = 0;                      // whose it is: JobQueue::tenant_number()
};

struct Verdict {
  bool accepted = false;
  std::optional<Arrival> displaced;  // already removed; it is to end with an error that says why
};

class JobQueue {
 public:
  explicit JobQueue(config::QueueConfig config, const std::vector<config::TenantConfig>& tenants = {});
  // Other tenants, and so other shares and numbers, from now on. Every entry stays; `tenant_of` says whose it is.
  void set_tenants(const std::vector<config::TenantConfig>& tenants,
                   const std::function<std::string_view(Arrival)>& tenant_of);

  // 0: of whoever is none of the tenants, so of the operator.
  std::size_t tenant_number(std::string_view tenant_id) const;

  // Reserves a place, or refuses, or displaces another entry, as the policy says:
  //   reject             a full queue refuses
  //   drop-lru           the oldest batch entry makes room; without one the oldest entry does, for an interactive newcomer
  //   shed-low-priority  the newest batch entry makes room for an interactive newcomer; batch newcomers are refused
  // Whose entry makes room, and who gets in without one, is said above.
  // REQUIRES: an arrival greater than any before.
  Verdict reserve(const Entry& entry);
  // Whether reserve() would refuse a newcomer of this class.
  bool refuses(Priority newcomer, std::size_t tenant = 0) const;
  void make_ready(Arrival arrival);
  // Back after a failed attempt or from the store. Never refused: it was accepted before. `ready_at_ms` <= now: at once.
  void put_back(const Entry& entry, std::int64_t ready_at_ms, std::int64_t now_ms);
  // False if it is not here.
  bool remove(Arrival arrival);
  // To another group; all else of it stays as it is. REQUIRES: it is here.
  void regroup(Arrival arrival, GroupIndex group);

  // Promotes batch entries that waited long enough and wakes delayed ones. True if something became dispatchable.
  bool advance(std::int64_t now_ms);
  // When advance() has something to do next; INT64_MAX: nothing in sight.
  std::int64_t next_due_ms() const;

  // The first ready job of a group in dispatch order after `after` (absent: from the start) inside `priority`.
  struct Head {
    Arrival arrival;
    GroupIndex group;
  };
  std::optional<Head> next_head(Priority priority, std::optional<Arrival> after) const;
  // The first ready job of this group over both classes.
  std::optional<std::pair<Priority, Arrival>> head_of(GroupIndex group) const;

  // The entry of `group` that came first, of each class; delayed ones do not count.
  std::array<std::optional<Arrival>, 2> oldest_of(GroupIndex group) const;

  const Entry* find(Arrival arrival) const;
  bool is_delayed(Arrival arrival) const;
  std::optional<std::int64_t> delayed_until_ms(Arrival arrival) const;
  // Entries to be dispatched before this one, over all models. REQUIRES: it is here.
  std::int64_t position(Arrival arrival) const;
  // Entries of `group` that go before an entry of this class and arrival; delayed ones do not.
  std::int64_t ahead_in(GroupIndex group, Priority priority, Arrival arrival) const;
  // Ready or delayed entries of a group, in order of class and arrival.
  std::vector<Arrival> waiting_in(GroupIndex group) const;
  std::size_t count_of(GroupIndex group) const;
  // All arrivals in the order of the class.
  std::vector<Arrival> snapshot(Priority priority) const;

  std::int64_t depth() const { return static_cast<std::int64_t>(slots_[0].size() + slots_[1].size()); }
  std::int64_t depth(Priority priority) const { return static_cast<std::int64_t>(at(priority).size()); }
  std::int64_t capacity() const { return config_.capacity; }
  bool is_full() const { return config_.capacity >= 0 && depth() >= config_.capacity; }
  std::int64_t share() const { return share_; }
  std::size_t tenants_count() const { return tenants_.size(); }  // with number 0
  const std::string& tenant_id(std::size_t tenant) const { return tenants_[tenant].id; }
  std::int64_t count_of_tenant(std::size_t tenant) const { return tenants_[tenant].count; }

 private:
  enum class Phase : std::uint8_t { kReserved, kReady, kDelayed };
  struct Slot {
    Entry entry;
    Phase phase = Phase::kReserved;
    std::int64_t until_ms = 0;  // kDelayed
  };
  using Slots = std::map<Arrival, Slot>;
  struct JobGroup {
    std::map<Arrival, bool> entries;  // reserved (false) and ready (true)
    std::optional<Arrival> offered;   // what heads_ holds for this group
  };
  struct Tenant {
    std::string id;
    std::int64_t count = 0;
    std::array<std::set<Arrival>, 2> displaceable{};  // ready ones, by class
  };

  static std::size_t index(Priority p) { return static_cast<std::size_t>(p); }
  const Slots& at(Priority p) const { return slots_[index(p)]; }
  Slots& at(Priority p) { return slots_[index(p)]; }
  Slot* slot(Arrival arrival);
  const Slot* slot(Arrival arrival) const;
  void insert(const Slot& slot);
  void count_displaceable(const Slot& slot);
  void enter_group(const Slot& slot);
  void leave_group(const Entry& entry);
  void refresh_head(Priority priority, GroupIndex group);
  bool has_share(std::size_t tenant) const { return tenants_[tenant].count >= share_; }
  std::optional<Arrival> victim_for(Priority newcomer, std::size_t tenant) const;

  config::QueueConfig config_;
  std::int64_t share_ = 0;  // of the places that one tenant may have of a full queue
  std::vector<Tenant> tenants_{1};
  std::map<std::string, std::size_t, std::less<>> number_of_;
  std::array<Slots, 2> slots_;                          // everything, by class
  std::vector<std::array<JobGroup, 2>> groups_;         // by group and class
  std::vector<std::size_t> counts_;                     // entries by group, delayed ones too
  std::array<std::map<Arrival, GroupIndex>, 2> heads_;  // dispatchable group heads, by class
  std::set<std::pair<std::int64_t, Arrival>> delayed_;  // (until, arrival)
};

}  // namespace llorch::orchestratord::core::queue
