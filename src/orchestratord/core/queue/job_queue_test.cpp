#include "orchestratord/core/queue/job_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/testing/allocation_counter.h"

namespace llorch::orchestratord::core::queue {
namespace {

using config::QueueConfig;
using config::QueuePolicy;

Entry entry(std::uint64_t arrival, Priority priority = Priority::kInteractive, std::uint64_t group = 0,
            std::int64_t queued_ms = 0) {
  return {.arrival = {arrival}, .group = {group}, .priority = priority, .queued_ms = queued_ms};
}

// Admits and commits.
Verdict admit(JobQueue& queue, const Entry& e) {
  const Verdict verdict = queue.reserve(e);
  if (verdict.accepted) queue.make_ready(e.arrival);
  return verdict;
}

// Everything dispatchable in dispatch order, as one scheduling pass with unlimited workers would take it.
std::vector<std::uint64_t> drain(JobQueue& queue) {
  std::vector<std::uint64_t> out;
  for (const Priority p : {Priority::kInteractive, Priority::kBatch}) {
    std::optional<Arrival> after;
    while (const auto head = queue.next_head(p, after)) {
      after = head->arrival;
      out.push_back(head->arrival.value);
      EXPECT_TRUE(queue.remove(head->arrival));
    }
  }
  return out;
}

// ORCH-1010, ORCH-3004, OC-CORE-1001, OC-CORE-1003#arrival-order, OC-CORE-1004, SYS-7.1.1: interactive first, FIFO inside a class.
TEST(JobQueue, ServesInteractiveFirstAndKeepsArrivalOrder) {
  JobQueue queue(QueueConfig{});
  admit(queue, entry(1, Priority::kBatch));
  admit(queue, entry(2, Priority::kInteractive));
  admit(queue, entry(3, Priority::kBatch, 1));
  admit(queue, entry(4, Priority::kInteractive, 1));
  EXPECT_EQ(queue.position({2}), 0);
  EXPECT_EQ(queue.position({4}), 1);
  EXPECT_EQ(queue.position({1}), 2);
  EXPECT_EQ(queue.position({3}), 3);
  EXPECT_EQ(queue.ahead_in({1}, Priority::kBatch, {3}), 1);
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{2, 4, 1, 3}));
  EXPECT_EQ(queue.depth(), 0);
}

TEST(JobQueue, AnotherGroupChangesNothingElse) {
  JobQueue queue(QueueConfig{.batch_promotion_ms = 1'000});
  admit(queue, entry(1, Priority::kBatch, 1));
  queue.advance(1'000);  // promoted
  admit(queue, entry(2, Priority::kInteractive, 1));
  queue.put_back(entry(3, Priority::kInteractive, 1), 5'000, 1'000);
  admit(queue, entry(4));
  for (const std::uint64_t arrival : {3u, 2u, 1u}) queue.regroup({arrival}, {7});
  EXPECT_EQ(queue.count_of({1}), 0u);
  EXPECT_EQ(queue.count_of({7}), 3u);
  EXPECT_EQ(queue.find({1})->priority, Priority::kInteractive);
  EXPECT_EQ(queue.delayed_until_ms({3}), 5'000);
  EXPECT_EQ(queue.head_of({7})->second, Arrival{1});
  EXPECT_EQ(queue.waiting_in({7}).size(), 3u);
  queue.advance(5'000);
  EXPECT_EQ(queue.depth(), 4);
  EXPECT_EQ(queue.position({4}), 3);
  EXPECT_TRUE(queue.remove({1}));
  EXPECT_EQ(queue.head_of({7})->second, Arrival{2});
}

TEST(JobQueue, TellsTheOldestOfAGroup) {
  using Oldest = std::array<std::optional<Arrival>, 2>;
  JobQueue queue(QueueConfig{});
  EXPECT_EQ(queue.oldest_of({0}), Oldest{});
  admit(queue, entry(1, Priority::kBatch));
  admit(queue, entry(2));
  admit(queue, entry(3, Priority::kInteractive, 1));
  admit(queue, entry(4));
  EXPECT_EQ(queue.oldest_of({0}), (Oldest{Arrival{2}, Arrival{1}}));
  EXPECT_EQ(queue.oldest_of({1}), (Oldest{Arrival{3}, std::nullopt}));
  EXPECT_TRUE(queue.remove({2}) && queue.remove({1}));
  EXPECT_EQ(queue.oldest_of({0}), (Oldest{Arrival{4}, std::nullopt}));
}

// ORCH-1010, ORCH-3004, ORCH-3005, OC-CORE-1002: bounded over both classes; reject refuses.
TEST(JobQueue, RejectRefusesWhenFull) {
  JobQueue queue(QueueConfig{.capacity = 2, .policy = QueuePolicy::kReject});
  EXPECT_TRUE(queue.reserve(entry(1, Priority::kBatch)).accepted);  // a reserved place counts
  EXPECT_TRUE(admit(queue, entry(2)).accepted);
  const Verdict refused = queue.reserve(entry(3));
  EXPECT_FALSE(refused.accepted);
  EXPECT_FALSE(refused.displaced);
  EXPECT_EQ(queue.depth(), 2);
}

// ORCH-3005, OC-CORE-1002, ORCH-3904: drop-lru takes the oldest batch job, then the oldest, and never a started or
// uncommitted one.
TEST(JobQueue, DropLruDisplacesTheOldestBatchJob) {
  JobQueue queue(QueueConfig{.capacity = 3, .policy = QueuePolicy::kDropLru});
  admit(queue, entry(1));
  admit(queue, entry(2, Priority::kBatch));
  admit(queue, entry(3, Priority::kBatch));
  EXPECT_EQ(queue.reserve(entry(4)).displaced, Arrival{2});
  queue.make_ready({4});
  EXPECT_EQ(admit(queue, entry(5)).displaced, Arrival{3});
  EXPECT_FALSE(admit(queue, entry(6, Priority::kBatch)).accepted);  // only interactive ones left
  EXPECT_EQ(admit(queue, entry(7)).displaced, Arrival{1});
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{4, 5, 7}));

  JobQueue busy(QueueConfig{.capacity = 2, .policy = QueuePolicy::kDropLru});
  Entry started = entry(1);
  started.displaceable = false;
  busy.put_back(started, 0, 0);
  busy.reserve(entry(2));  // not committed
  EXPECT_FALSE(busy.reserve(entry(3)).accepted);
}

// OC-CORE-1002: shed-low-priority takes the newest batch job for an interactive one.
TEST(JobQueue, ShedLowPriorityDisplacesTheNewestBatchJob) {
  JobQueue queue(QueueConfig{.capacity = 3, .policy = QueuePolicy::kShedLowPriority});
  admit(queue, entry(1, Priority::kBatch));
  admit(queue, entry(2, Priority::kBatch));
  admit(queue, entry(3));
  EXPECT_FALSE(admit(queue, entry(4, Priority::kBatch)).accepted);
  EXPECT_EQ(admit(queue, entry(5)).displaced, Arrival{2});
  EXPECT_EQ(admit(queue, entry(6)).displaced, Arrival{1});
  EXPECT_FALSE(admit(queue, entry(7)).accepted);
}

TEST(JobQueue, MinusOneIsUnbounded) {
  JobQueue queue(QueueConfig{.capacity = -1, .policy = QueuePolicy::kQueue});
  for (std::uint64_t i = 1; i <= 5000; ++i) EXPECT_TRUE(admit(queue, entry(i)).accepted);
  EXPECT_EQ(queue.position({5000}), 4999);
}

// OC-CORE-1005: a cancelled entry is gone and cannot be dispatched; the second cancel finds nothing.
TEST(JobQueue, RemoveIsFinalAndIdempotent) {
  JobQueue queue(QueueConfig{});
  admit(queue, entry(1));
  admit(queue, entry(2));
  EXPECT_TRUE(queue.remove({1}));
  EXPECT_FALSE(queue.remove({1}));
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{2}));
}

TEST(JobQueue, AnUncommittedHeadHoldsItsGroupOnly) {
  JobQueue queue(QueueConfig{});
  queue.reserve(entry(1, Priority::kInteractive, 0));
  admit(queue, entry(2, Priority::kInteractive, 0));
  admit(queue, entry(3, Priority::kInteractive, 1));
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{3}));
  queue.make_ready({1});
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{1, 2}));
}

// SCHED-11041, ORCH-1022: a batch job that waited five minutes joins the interactive class at its place by arrival.
TEST(JobQueue, PromotesBatchJobsThatWaitedTooLong) {
  JobQueue queue(QueueConfig{});
  admit(queue, entry(1, Priority::kBatch, 0, 1000));
  admit(queue, entry(2, Priority::kBatch, 0, 2000));
  admit(queue, entry(3, Priority::kInteractive, 0, 3000));
  EXPECT_EQ(queue.next_due_ms(), 301'000);
  EXPECT_FALSE(queue.advance(300'999));
  EXPECT_TRUE(queue.advance(301'000));
  EXPECT_EQ(queue.find({1})->priority, Priority::kInteractive);
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{1, 3, 2}));

  JobQueue never(QueueConfig{.batch_promotion_ms = 0});
  admit(never, entry(1, Priority::kBatch));
  EXPECT_FALSE(never.advance(1'000'000'000));
}

// SYS-6.1.6: a job backing off lets others pass and comes back to its place by arrival.
TEST(JobQueue, DelayedEntriesReturnToTheirPlace) {
  JobQueue queue(QueueConfig{.capacity = 2});
  admit(queue, entry(2));
  admit(queue, entry(3));
  queue.put_back(entry(1), 500, 0);  // over capacity: accepted work always comes back
  EXPECT_EQ(queue.depth(), 3);
  EXPECT_EQ(queue.head_of({0})->second, Arrival{2});
  EXPECT_EQ(queue.delayed_until_ms({1}), 500);
  EXPECT_EQ(queue.position({1}), 0);
  EXPECT_TRUE(queue.advance(500));
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{1, 2, 3}));
}

// The same behaviour, written as plainly as possible.
struct NaiveQueue {
  struct Item {
    Entry entry;
    bool ready = false;
  };
  std::vector<Item> items;

  std::optional<Arrival> head(Priority p, std::uint64_t group) const {
    const Item* first = nullptr;
    for (const Item& i : items) {
      if (i.entry.priority != p || i.entry.group.value != group) continue;
      if (!first || i.entry.arrival < first->entry.arrival) first = &i;
    }
    return first && first->ready ? std::optional(first->entry.arrival) : std::nullopt;
  }
};

// OC-CORE-1003#arrival-order, OC-CORE-1004, OC-CORE-1005: any interleaving agrees with the naive queue.
TEST(JobQueue, AgreesWithANaiveModel) {
  EXPECT_TRUE(rc::check([] {
    JobQueue queue(QueueConfig{.capacity = 12, .batch_promotion_ms = 0});
    NaiveQueue naive;
    std::uint64_t arrivals = 0;
    const auto steps = *rc::gen::container<std::vector<std::uint32_t>>(80, rc::gen::arbitrary<std::uint32_t>());
    for (const std::uint32_t step : steps) {
      const auto pick = [&] { return naive.items.begin() + (step >> 8) % naive.items.size(); };
      if (step % 4 < 2) {
        const Entry e = entry(++arrivals, step & 4 ? Priority::kBatch : Priority::kInteractive, (step >> 4) % 3);
        const bool room = naive.items.size() < 12;
        RC_ASSERT(queue.reserve(e).accepted == room);
        if (room) naive.items.push_back({e, false});
      } else if (!naive.items.empty() && step % 4 == 2) {
        if (const auto it = pick(); !it->ready) {
          queue.make_ready(it->entry.arrival);
          it->ready = true;
        }
      } else if (!naive.items.empty()) {
        const auto it = pick();
        RC_ASSERT(queue.remove(it->entry.arrival));
        naive.items.erase(it);
      }
      RC_ASSERT(queue.depth() == static_cast<std::int64_t>(naive.items.size()));
      for (const Priority p : {Priority::kInteractive, Priority::kBatch}) {
        std::vector<Arrival> want, got;
        for (std::uint64_t m = 0; m < 3; ++m) {
          if (const auto h = naive.head(p, m)) want.push_back(*h);
        }
        std::sort(want.begin(), want.end());
        std::optional<Arrival> after;
        while (const auto h = queue.next_head(p, after)) got.push_back(h->arrival), after = h->arrival;
        RC_ASSERT(got == want);
      }
      for (const auto& item : naive.items) {
        const auto before = std::count_if(naive.items.begin(), naive.items.end(), [&](const auto& other) {
          return std::pair(other.entry.priority, other.entry.arrival) <
                 std::pair(item.entry.priority, item.entry.arrival);
        });
        RC_ASSERT(queue.position(item.entry.arrival) == before);
      }
    }
  }));
}

// OC-CORE-1003#constant-time: a place costs as many allocations behind a hundred thousand jobs as behind one, and where it goes needs no
// search (arrivals only grow). What it costs in time `budgets_bench` prints.
TEST(JobQueue, AdmissionAllocatesTheSameHoweverManyWait) {
  JobQueue queue(QueueConfig{.capacity = -1});
  std::uint64_t arrival = 0;
  const auto allocations_of_next = [&] {
    const std::uint64_t before = base::testing::allocations_count();
    EXPECT_TRUE(queue.reserve(entry(++arrival)).accepted);
    return base::testing::allocations_count() - before;
  };
  allocations_of_next();
  const std::uint64_t behind_one = allocations_of_next();
  EXPECT_GT(behind_one, 0U);
  while (arrival < 100'000) ASSERT_EQ(allocations_of_next(), behind_one) << arrival;
}

std::vector<config::TenantConfig> tenants(std::initializer_list<const char*> ids) {
  std::vector<config::TenantConfig> out;
  for (const char* id : ids) out.push_back({.id = id, .token_file = {}, .throttle = {}, .quotas = {}});
  return out;
}
Entry of_tenant(std::size_t tenant, Entry e) {
  e.tenant = tenant;
  return e;
}

// Entries stay where they are, each of the tenant that has it now; who is none any more has the operator's share.
TEST(JobQueue, OtherTenantsShareThePlacesAnew) {
  JobQueue queue(QueueConfig{.capacity = 4, .policy = QueuePolicy::kDropLru}, tenants({"gone", "stays"}));
  const std::map<std::uint64_t, std::string> whose{{1, "gone"}, {2, "stays"}, {3, "new"}, {4, "stays"}};
  for (const auto& [arrival, tenant] : whose) {
    admit(queue, of_tenant(queue.tenant_number(tenant), entry(arrival, Priority::kBatch)));
  }
  queue.set_tenants(tenants({"stays", "new", "other"}),
                    [&](Arrival arrival) -> std::string_view { return whose.at(arrival.value); });
  EXPECT_EQ(queue.tenants_count(), 4U);
  EXPECT_EQ(queue.share(), 1);
  EXPECT_EQ(queue.tenant_number("gone"), 0U);
  EXPECT_EQ(queue.count_of_tenant(0), 1);
  EXPECT_EQ(queue.count_of_tenant(queue.tenant_number("stays")), 2);
  EXPECT_EQ(queue.count_of_tenant(queue.tenant_number("new")), 1);
  const std::size_t other = queue.tenant_number("other");
  EXPECT_EQ(admit(queue, of_tenant(other, entry(5))).displaced, Arrival{2}) << "of the tenant that has most";
  EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{5, 1, 3, 4}));
  for (std::size_t tenant = 0; tenant < queue.tenants_count(); ++tenant) EXPECT_EQ(queue.count_of_tenant(tenant), 0);
}

// One tenant fills the queue; the operator and every other one still has its share, and no accepted entry ends for that.
TEST(JobQueue, WhoHasLessThanItsShareGetsIntoAFullQueue) {
  JobQueue queue(QueueConfig{.capacity = 7}, tenants({"a", "b"}));
  EXPECT_EQ(queue.share(), 2);
  const std::size_t a = queue.tenant_number("a"), b = queue.tenant_number("b");
  EXPECT_EQ(queue.tenant_number("localhost"), 0U);
  std::uint64_t arrival = 0;
  const auto submit = [&](std::size_t tenant) { return admit(queue, of_tenant(tenant, entry(++arrival))); };
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(submit(a).accepted) << "nobody else wants the places";
  EXPECT_FALSE(submit(a).accepted);
  for (const std::size_t other : {std::size_t{0}, b}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(queue.refuses(Priority::kInteractive, other));
      const Verdict verdict = submit(other);
      EXPECT_TRUE(verdict.accepted && !verdict.displaced);
    }
    EXPECT_TRUE(queue.refuses(Priority::kInteractive, other));
    EXPECT_FALSE(submit(other).accepted);
  }
  EXPECT_EQ(queue.depth(), 11);
  for (std::uint64_t run = 1; run <= 4; ++run) {
    EXPECT_FALSE(submit(a).accepted) << "what the others have is taken from what it has above its share";
    EXPECT_TRUE(queue.remove({run}));
  }
  EXPECT_EQ(queue.depth(), 7);
  EXPECT_TRUE(queue.remove({5}));
  EXPECT_TRUE(submit(a).accepted);
}

TEST(JobQueue, AQueueSmallerThanItsTenantsHasAPlaceForEach) {
  JobQueue queue(QueueConfig{.capacity = 1}, tenants({"a", "b", "c"}));
  for (std::size_t tenant = 0; tenant < 4; ++tenant) {
    EXPECT_TRUE(admit(queue, of_tenant(tenant, entry(2 * tenant + 1))).accepted);
    EXPECT_FALSE(admit(queue, of_tenant(tenant, entry(2 * tenant + 2))).accepted);
  }
}

// Only the tenant that has most loses jobs to others; whoever has its share loses its own to its own.
TEST(JobQueue, OnlyTheTenantAboveItsShareIsDisplaced) {
  for (const QueuePolicy policy : {QueuePolicy::kDropLru, QueuePolicy::kShedLowPriority}) {
    const bool lru = policy == QueuePolicy::kDropLru;
    JobQueue queue(QueueConfig{.capacity = 6, .policy = policy}, tenants({"a", "b"}));
    const std::size_t a = queue.tenant_number("a"), b = queue.tenant_number("b");
    admit(queue, of_tenant(b, entry(1, Priority::kBatch)));
    for (std::uint64_t i = 2; i <= 6; ++i) admit(queue, of_tenant(a, entry(i, Priority::kBatch)));
    EXPECT_EQ(admit(queue, of_tenant(a, entry(7))).displaced, Arrival{lru ? 2U : 6U}) << "b's is the oldest";
    EXPECT_EQ(admit(queue, of_tenant(0, entry(8))).displaced, Arrival{lru ? 3U : 5U});
    EXPECT_EQ(admit(queue, of_tenant(0, entry(9))).displaced, Arrival{4});
    const Verdict own = admit(queue, of_tenant(0, entry(10)));
    EXPECT_EQ(own.displaced, lru ? std::optional(Arrival{8}) : std::nullopt) << "it has its share";
    EXPECT_EQ(own.accepted, lru);
    EXPECT_EQ(queue.count_of_tenant(a), 3);
    EXPECT_TRUE(queue.find({1}));
  }
}

// Whoever submits whatever: nobody below its share is refused, nobody else's entry within a share is displaced, and what waits above
// the capacity is one share for each other tenant at most.
TEST(JobQueue, SharesHoldWhateverIsSubmitted) {
  EXPECT_TRUE(rc::check([] {
    const auto policy = *rc::gen::element(QueuePolicy::kReject, QueuePolicy::kDropLru, QueuePolicy::kShedLowPriority);
    const std::int64_t capacity = *rc::gen::inRange(1, 12);
    JobQueue queue(QueueConfig{.capacity = capacity, .policy = policy, .batch_promotion_ms = 50}, tenants({"a", "b"}));
    std::map<std::uint64_t, std::size_t> waiting;  // whose, by arrival
    std::uint64_t arrival = 0;
    std::int64_t now_ms = 0;
    const auto steps = *rc::gen::container<std::vector<std::uint32_t>>(120, rc::gen::arbitrary<std::uint32_t>());
    for (const std::uint32_t step : steps) {
      queue.advance(++now_ms);
      if (step % 5 == 0 && !waiting.empty()) {
        const auto it = std::next(waiting.begin(), (step >> 8) % waiting.size());
        RC_ASSERT(queue.remove({it->first}));
        waiting.erase(it);
        continue;
      }
      const std::size_t tenant = std::array<std::size_t, 6>{0, 1, 1, 1, 1, 2}[(step >> 4) % 6];
      const Entry e =
          of_tenant(tenant, entry(++arrival, step & 8 ? Priority::kBatch : Priority::kInteractive, 0, now_ms));
      std::array<std::int64_t, 3> before{};
      for (std::size_t t = 0; t < 3; ++t) before[t] = queue.count_of_tenant(t);
      const bool room = queue.depth() < capacity, refuses = queue.refuses(e.priority, tenant);
      const Verdict verdict = step & (1U << 20) ? queue.reserve(e) : admit(queue, e);
      RC_ASSERT(refuses == !verdict.accepted);
      RC_ASSERT(verdict.accepted || (!room && before[tenant] >= queue.share()));
      if (verdict.accepted) waiting.emplace(arrival, tenant);
      if (verdict.displaced) {
        const std::size_t loser = waiting.at(verdict.displaced->value);
        RC_ASSERT(!room && (loser == tenant ? before[tenant] >= queue.share()
                                            : before[tenant] < queue.share() && before[loser] > queue.share()));
        waiting.erase(verdict.displaced->value);
      }
      RC_ASSERT(queue.depth() == static_cast<std::int64_t>(waiting.size()));
      RC_ASSERT(queue.depth() <= capacity + 2 * queue.share());
    }
    for (std::size_t t = 0; t < 3; ++t) {
      RC_ASSERT(queue.count_of_tenant(t) ==
                std::ranges::count_if(waiting, [&](const auto& item) { return item.second == t; }));
    }
  }));
}

// Asked before there is a job: the same as reserve() says of one, under every policy and whatever is in the queue.
TEST(JobQueue, RefusesIsWhatReserveWouldSay) {
  rc::check([] {
    const auto policy = *rc::gen::element(QueuePolicy::kReject, QueuePolicy::kDropLru, QueuePolicy::kShedLowPriority);
    JobQueue queue(QueueConfig{.capacity = *rc::gen::inRange(0, 4), .policy = policy});
    std::uint64_t arrival = 0;
    for (const int what : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4))) {
      const Priority priority = what % 2 == 0 ? Priority::kInteractive : Priority::kBatch;
      const Entry newcomer = entry(++arrival, priority);
      const bool refuses = queue.refuses(priority);
      const Verdict verdict = what < 2 ? queue.reserve(newcomer) : admit(queue, newcomer);
      RC_ASSERT(refuses == !verdict.accepted);
    }
  });
}

}  // namespace
}  // namespace llorch::orchestratord::core::queue
