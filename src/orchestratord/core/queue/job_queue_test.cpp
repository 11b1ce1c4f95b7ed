#include "orchestratord/core/queue/job_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

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
