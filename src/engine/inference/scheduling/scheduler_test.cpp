#include "engine/inference/scheduling/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "base/testing/allocation_counter.h"
#include "engine/inference/scheduling/pace.h"

namespace llorch::engine::inference::scheduling {
namespace {

using base::TokenId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kP = plan::kPageTokens;

SequenceId id(std::uint64_t n) { return SequenceId{n}; }

struct Setup {
  std::uint32_t slots = 3;
  std::uint32_t rows_max = 32;
  std::uint32_t prefill_chunk = 16;
  std::uint32_t pages = 64;
  std::uint32_t context_tokens = 8 * kP;
  bool whole_sequences = false;
  bool cache_prefixes = true;
  std::uint32_t outputs_max = 0;
};

class World {
 public:
  explicit World(const Setup& setup = {})
      : pages({.groups = {{.pages_total = setup.pages}}, .slots = setup.slots, .context_tokens = setup.context_tokens}),
        scheduler({.slots = setup.slots,
                   .rows_max = setup.rows_max,
                   .outputs_max = setup.outputs_max,
                   .prefill_chunk = setup.prefill_chunk,
                   .context_tokens = setup.context_tokens,
                   .whole_sequences = setup.whole_sequences,
                   .cache_prefixes = setup.cache_prefixes},
                  pages) {}

  // Sequences with the same `text` begin alike.
  void add(std::uint64_t n, std::uint32_t prompt_tokens, std::uint32_t text = 0, std::string_view salt = "salt",
           bool wants_prompt = false) {
    std::vector<TokenId> prompt;
    for (std::uint32_t i = 0; i < prompt_tokens; ++i) prompt.push_back(TokenId{text * 10'000 + i});
    scheduler.add({.id = id(n),
                   .prompt = prompt,
                   .tokens_max = static_cast<std::uint32_t>(pages.row(0, 0).size()) * kP,
                   .cache_salt = std::as_bytes(std::span(salt)),
                   .wants_prompt = wants_prompt});
  }
  // (sequence, rows) of the next step, in slot order. The step runs, and every token that is awaited comes.
  using Rows = std::vector<std::pair<std::uint64_t, std::size_t>>;
  Rows step() {
    const Rows rows = plan();
    scheduler.done();
    answer();
    return rows;
  }
  Rows plan() {
    const StepPlan& plan = scheduler.plan(now_ms);
    Rows rows;
    waiting_for.clear();
    all.clear();
    for (const PlannedRows& r : plan.rows) {
      all.push_back(r.wants_all);
      rows.emplace_back(static_cast<std::uint64_t>(r.id), r.tokens.size());
      if (r.wants_logits) waiting_for.push_back(r.id);
    }
    starts.assign(plan.starts.begin(), plan.starts.end());
    forks.assign(plan.forks.begin(), plan.forks.end());
    copies.assign(plan.page_copies.begin(), plan.page_copies.end());
    return rows;
  }
  void answer() {
    for (const SequenceId s : waiting_for) {
      if (scheduler.awaits_token(s)) scheduler.append(s, TokenId{7});
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }

  paging::PageTables pages;
  Scheduler scheduler;
  std::vector<SequenceId> waiting_for;
  std::vector<bool> all;  // whose logits of every row are wanted, of the plan's rows
  std::vector<SlotStart> starts;
  std::vector<SlotFork> forks;
  std::vector<paging::PageCopy> copies;
  std::int64_t now_ms = 0;
};

using Rows = World::Rows;

TEST(Scheduler, AStepHasNoMoreRowsThanItsLimitAndNeverFewerThanSlots) {
  World world;
  world.add(1, 40);
  world.scheduler.limit_rows(8);
  EXPECT_EQ(world.step(), (Rows{{1, 8}}));
  world.scheduler.limit_rows(0);
  EXPECT_EQ(world.step(), (Rows{{1, 3}})) << "as many as there are slots";
  world.scheduler.limit_rows(1000);
  EXPECT_EQ(world.step(), (Rows{{1, 16}})) << "a chunk";
  EXPECT_EQ(world.scheduler.counts().rows, 27U);
}

TEST(Pace, FindsTheRowsThatFitATime) {
  Pace pace(0.25, 512);
  const auto run = [&](double seconds_per_row) {
    pace.ran(pace.rows(), 0.01 + seconds_per_row * pace.rows());
    return pace.rows();
  };
  EXPECT_EQ(pace.rows(), Pace::kRowsFirst);
  EXPECT_EQ(run(0.0001), 128U) << "twice at most";
  for (int i = 0; i < 10; ++i) run(0.0001);
  EXPECT_EQ(pace.rows(), 512U);
  EXPECT_EQ(run(0.01), 256U) << "half at least";
  for (int i = 0; i < 10; ++i) run(0.01);
  EXPECT_EQ(pace.rows(), 16U) << "24 fit";
  for (int i = 0; i < 10; ++i) run(1.0);
  EXPECT_EQ(pace.rows(), Pace::kRowsMin);
}

TEST(Pace, ShortStepsSayNothingUnlessTheyTakeLong) {
  Pace pace(0.25, 512);
  pace.ran(1, 0.02);
  pace.ran(0, 0.0);
  EXPECT_EQ(pace.rows(), 64U);
  pace.ran(1, 0.5);
  EXPECT_EQ(pace.rows(), 32U);
  Pace small(0.25, 5);
  small.ran(5, 1.0);
  EXPECT_EQ(small.rows(), 5U);
}

TEST(Scheduler, DecodesFirstAndPromptsShareTheRestOldestFirst) {
  World world;
  world.add(1, 1);
  EXPECT_EQ(world.step(), (Rows{{1, 1}}));
  world.add(2, 40);
  world.add(3, 40);
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}, {3, 15}})) << "32 rows: one decode, a chunk, what is left";
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}, {3, 15}}));
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 8}, {3, 10}}));
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 1}, {3, 1}}));
  const SchedulerCounts& counts = world.scheduler.counts();
  EXPECT_EQ(counts.steps, 5u);
  EXPECT_EQ(counts.rows, 1u + 32 + 32 + 19 + 3);
  EXPECT_EQ(counts.sequence_steps, 1u + 3 + 3 + 3 + 3);
}

TEST(Scheduler, MoreSequencesThanSlotsWaitInOrder) {
  World world({.slots = 2});
  for (std::uint64_t n = 1; n <= 5; ++n) world.add(n, 4);
  EXPECT_EQ(world.step(), (Rows{{1, 4}, {2, 4}}));
  EXPECT_EQ(world.scheduler.waiting_count(), 3u);
  world.scheduler.remove(id(1));
  world.scheduler.remove(id(4));
  EXPECT_EQ(world.step(), (Rows{{3, 4}, {2, 1}}));
  world.scheduler.remove(id(3));
  EXPECT_EQ(world.step(), (Rows{{5, 4}, {2, 1}}));
  EXPECT_FALSE(world.scheduler.knows(id(4)));
  world.scheduler.remove(id(4));
}

TEST(Scheduler, APlanWithNothingIsEmptyAndNeedsNoAnswer) {
  World world;
  EXPECT_TRUE(world.scheduler.plan(0).empty());
  EXPECT_TRUE(world.scheduler.plan(0).empty());
  world.scheduler.done();
  EXPECT_EQ(world.scheduler.counts().steps, 0u);
}

TEST(Scheduler, APrefixIsFoundAndTheLastTokenStillComputed) {
  World world({.prefill_chunk = 32});
  world.add(1, 2 * kP);
  world.steps(4);
  world.add(2, 2 * kP);
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 31}})) << "the first page, though both are there";
  ASSERT_EQ(world.starts.size(), 1u);
  EXPECT_EQ(world.starts[0].held, kP);
  world.add(3, 2 * kP + 1);
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 31}}));
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 2}, {3, 1}}));
  EXPECT_EQ(world.starts[0].held, 2 * kP);
  EXPECT_EQ(world.scheduler.counts().prefix_tokens_hit, 3u * kP);
  EXPECT_EQ(world.scheduler.counts().prefix_tokens_missed, 2 * kP + kP + 1);
}

// As many rows in a step as there are outputs beside one of each slot, and none of a page that was found.
TEST(Scheduler, LogitsOfAPromptComeAsOutputsAllowAndFromNoCache) {
  World world({.prefill_chunk = 32, .outputs_max = 3 + 15});
  world.add(1, kP + 1);
  world.steps(4);
  world.add(2, kP, 0, "salt", true);
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}}));
  ASSERT_EQ(world.starts.size(), 1u);
  EXPECT_EQ(world.starts[0].held, 0u) << "though its first page is there";
  world.add(3, 30, 7, "salt", true);
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}, {3, 1}})) << "the older one first";
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}, {3, 1}}));
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}, {3, 1}}));
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 1}, {3, 16}})) << "its output";
}

// Once each: what was handed out is computed again without logits, or found.
TEST(Scheduler, LogitsOfAPromptAreNotWantedTwice) {
  for (const bool caches : {true, false}) {
    World world({.rows_max = 2 * kP, .prefill_chunk = kP, .cache_prefixes = caches, .outputs_max = 3 + 2 * kP});
    world.add(1, 3 * kP, 0, "salt", true);
    const auto wants_all = [&](bool runs) {
      EXPECT_EQ(world.plan(), (Rows{{1, kP}})) << caches;
      const bool wants = world.all.at(0);
      runs ? world.scheduler.done() : world.scheduler.failed();
      return wants;
    };
    EXPECT_TRUE(wants_all(true));
    EXPECT_TRUE(wants_all(false));
    if (!caches) {
      EXPECT_FALSE(wants_all(true)) << "the first page again";
    }
    EXPECT_TRUE(wants_all(true));
    if (caches) {
      EXPECT_EQ(world.starts[0].held, kP);
    }
    EXPECT_TRUE(wants_all(true));
    world.answer();
    EXPECT_EQ(world.plan(), (Rows{{1, 1}}));
    EXPECT_FALSE(world.all[0]);
  }
}

TEST(Scheduler, SaltsDoNotShareAndNoneSharesNothing) {
  for (const auto& [salt, cache, held] : {std::tuple{"salt", true, kP}, std::tuple{"other", true, 0u},
                                          std::tuple{"", true, 0u}, std::tuple{"salt", false, 0u}}) {
    World world({.prefill_chunk = 32, .cache_prefixes = cache});
    world.add(1, kP + 1);
    world.steps(4);
    world.add(2, kP + 1, 0, salt);
    world.step();
    EXPECT_EQ(world.starts.at(0).held, held) << salt << cache;
  }
}

TEST(Scheduler, GeneratedPagesAreFoundToo) {
  World world;
  world.add(1, kP - 2);
  world.steps(10);
  std::vector<TokenId> text;
  for (std::uint32_t i = 0; i < kP - 2; ++i) text.push_back(TokenId{i});
  text.insert(text.end(), {TokenId{7}, TokenId{7}, TokenId{9}});
  world.scheduler.remove(id(1));
  const std::string_view salt = "salt";
  world.scheduler.add({.id = id(2), .prompt = text, .tokens_max = 100, .cache_salt = std::as_bytes(std::span(salt))});
  EXPECT_EQ(world.step(), (Rows{{2, 1}}));
  EXPECT_EQ(world.starts.at(0).held, kP);
}

TEST(Scheduler, KeysAreForgottenAfterTheirTime) {
  World world;
  world.add(1, kP + 1);
  world.steps(6);
  world.scheduler.remove(id(1));
  world.now_ms = 600'001;
  world.plan();
  EXPECT_EQ(world.pages.counts(0).cached, 0u);
}

// Eight pages, three sequences that grow until they do not fit: the youngest gives way and comes back.
TEST(Scheduler, TheYoungestGivesWayAndIsComputedAgain) {
  World world({.slots = 2, .rows_max = 128, .prefill_chunk = 64, .pages = 8});
  world.add(1, 3 * kP, 1);
  world.add(2, 3 * kP, 2);
  while (world.scheduler.counts().preemptions == 0) world.step();
  EXPECT_TRUE(world.scheduler.is_running(id(1)));
  EXPECT_FALSE(world.scheduler.is_running(id(2)));
  world.add(3, 1, 3);
  EXPECT_EQ(world.step(), (Rows{{1, 1}})) << "3 would fit but 2 is before it";
  world.scheduler.remove(id(1));
  EXPECT_EQ(world.step(), (Rows{{2, 64}, {3, 1}})) << "65 to compute: its last page was taken";
  EXPECT_EQ(world.starts.at(0).held, 3 * kP);
}

TEST(Scheduler, AFreshSequenceComesInOnlyWithRoomForEverybodysNextPage) {
  World world({.slots = 2, .pages = 8});
  world.add(1, 2 * kP + 1, 1);
  world.steps(20);
  world.add(2, 3 * kP + 1, 2);
  EXPECT_EQ(world.step(), (Rows{{1, 1}})) << "3 pages and one more, 4 pages and one more: 9 of 8";
  world.scheduler.remove(id(2));
  world.add(3, 3 * kP, 2);
  EXPECT_EQ(world.step().size(), 2u);
}

TEST(Scheduler, APausedSequenceGivesNoRowsAndGivesWayFirst) {
  World world({.slots = 2});
  world.add(1, 4, 1);
  world.add(2, 4, 2);
  world.step();
  world.scheduler.set_paused(id(1), true);
  EXPECT_EQ(world.step(), (Rows{{2, 1}}));
  EXPECT_TRUE(world.scheduler.is_running(id(1))) << "nobody needs its place";
  world.add(3, 4, 3);
  EXPECT_EQ(world.step(), (Rows{{3, 4}, {2, 1}}));
  EXPECT_FALSE(world.scheduler.is_running(id(1)));
  world.scheduler.set_paused(id(1), false);
  EXPECT_EQ(world.step(), (Rows{{3, 1}, {2, 1}})) << "comes back when there is a place";
  world.scheduler.remove(id(2));
  EXPECT_EQ(world.step(), (Rows{{3, 1}, {1, 5}}));
}

TEST(Scheduler, AFailedStepIsComputedAgain) {
  World world({.slots = 2});
  world.add(1, 20, 1);
  world.step();
  world.plan();
  world.scheduler.failed();
  EXPECT_EQ(world.scheduler.running_count(), 0u);
  EXPECT_EQ(world.pages.counts(0).used, 0u);
  EXPECT_FALSE(world.scheduler.awaits_token(id(1)));
  EXPECT_EQ(world.step(), (Rows{{1, 16}}));
  EXPECT_EQ(world.scheduler.counts().preemptions, 0u);
  EXPECT_EQ(world.step(), (Rows{{1, 4}}));
}

TEST(Scheduler, FewerMayRunWhenMemoryIsShort) {
  World world;
  for (std::uint64_t n = 1; n <= 3; ++n) world.add(n, 4, static_cast<std::uint32_t>(n));
  world.step();
  world.scheduler.limit_running(1);
  EXPECT_EQ(world.step(), (Rows{{1, 1}}));
  EXPECT_EQ(world.scheduler.counts().preemptions, 2u);
  world.scheduler.limit_running(2);
  EXPECT_EQ(world.step().size(), 2u);
}

TEST(Scheduler, RemovedWhileItsStepRunsItIsGone) {
  World world;
  world.add(1, 4, 1);
  world.add(2, 4, 2);
  world.plan();
  world.scheduler.remove(id(1));
  world.scheduler.done();
  EXPECT_EQ(world.pages.counts(0).used, 1u);
  world.answer();
  world.add(3, 4, 3);
  EXPECT_EQ(world.step(), (Rows{{3, 4}, {2, 1}}));
}

TEST(Scheduler, AForkTakesOverPagesAndState) {
  World world;
  world.add(1, 20);
  world.step();
  world.plan();
  world.scheduler.done();
  ASSERT_TRUE(world.scheduler.awaits_token(id(1)));
  world.scheduler.fork(id(1), id(2));
  EXPECT_TRUE(world.scheduler.awaits_token(id(2)));
  world.scheduler.append(id(1), TokenId{5});
  world.scheduler.append(id(2), TokenId{6});
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 1}}));
  ASSERT_EQ(world.forks.size(), 1u);
  EXPECT_EQ(world.forks[0].from, 0u);
  EXPECT_EQ(world.forks[0].to, 1u);
  EXPECT_EQ(world.copies.size(), 1u);
  EXPECT_THAT(world.starts, IsEmpty());
}

TEST(Scheduler, AForkIsTakenOverBeforeItsTokenComes) {
  World world;
  world.add(1, 4);
  world.plan();
  world.scheduler.done();
  world.scheduler.fork(id(1), id(2));
  const StepPlan& plan = world.scheduler.plan(0);
  EXPECT_TRUE(plan.rows.empty()) << "both await";
  EXPECT_EQ(plan.forks.size(), 1u);
  EXPECT_FALSE(plan.empty()) << "it must be run";
  world.scheduler.done();
  EXPECT_TRUE(world.scheduler.is_running(id(2)));
}

TEST(Scheduler, AForkWithoutItsParentOrAPlaceIsComputed) {
  World world({.slots = 1});
  world.add(1, 4);
  world.plan();
  world.scheduler.done();
  world.scheduler.fork(id(1), id(2));
  world.scheduler.append(id(1), TokenId{5});
  world.scheduler.append(id(2), TokenId{6});
  EXPECT_EQ(world.step(), (Rows{{1, 1}})) << "no place";
  world.scheduler.remove(id(1));
  EXPECT_EQ(world.step(), (Rows{{2, 5}}));
  EXPECT_THAT(world.forks, IsEmpty());
}

TEST(Scheduler, AForkDoesNotOvertakeWhoeverWaits) {
  World world({.slots = 2, .pages = 10});
  world.add(1, 4, 1);
  world.plan();
  world.scheduler.done();
  world.add(2, 8 * kP, 2);  // waits for pages
  world.scheduler.fork(id(1), id(3));
  world.scheduler.append(id(1), TokenId{5});
  world.scheduler.append(id(3), TokenId{6});
  EXPECT_EQ(world.step(), (Rows{{1, 1}, {2, 16}}));
  EXPECT_THAT(world.forks, IsEmpty());
  EXPECT_FALSE(world.scheduler.is_running(id(3)));
}

TEST(Scheduler, ATokenAllocatesNothing) {
  World world;
  world.add(1, 4, 1);
  world.add(2, 4, 2);
  world.steps(2);
  const auto before = base::testing::allocations_count();
  for (int i = 0; i < 40; ++i) {
    const StepPlan& plan = world.scheduler.plan(0);
    const std::size_t rows = plan.rows.size();
    world.scheduler.done();
    for (std::size_t r = 0; r < rows; ++r) world.scheduler.append(id(r + 1), TokenId{7});
  }
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_EQ(world.scheduler.counts().rows, 8u + 2 + 80);
}

// What does not fit into what a step has left waits for the next one, and nobody goes before it.
TEST(Scheduler, AWholeSequenceIsInOneStepOrWaits) {
  World world({.slots = 4,
               .rows_max = 100,
               .prefill_chunk = 100,
               .context_tokens = 100,
               .whole_sequences = true,
               .cache_prefixes = false});
  const std::vector<TokenId> tokens(100, TokenId{1});
  const std::array<std::uint32_t, 6> lengths{40, 50, 20, 10, 100, 1};
  for (std::uint32_t n = 0; n < lengths.size(); ++n)
    world.scheduler.add({.id = id(n), .prompt = std::span(tokens).first(lengths[n]), .tokens_max = lengths[n]});
  const auto step = [&] {
    const World::Rows rows = world.plan();
    world.scheduler.done();
    for (const auto& [sequence, count] : rows) {
      EXPECT_EQ(count, lengths[sequence]);
      EXPECT_TRUE(world.scheduler.awaits_token(id(sequence)));
      world.scheduler.remove(id(sequence));
    }
    std::vector<std::uint64_t> ids;
    for (const auto& [sequence, count] : rows) ids.push_back(sequence);
    std::ranges::sort(ids);
    return ids;
  };
  EXPECT_THAT(step(), ElementsAre(0, 1));
  EXPECT_THAT(step(), ElementsAre(2, 3));
  EXPECT_THAT(step(), ElementsAre(4));
  EXPECT_THAT(step(), ElementsAre(5));
  EXPECT_THAT(step(), IsEmpty());
}

}  // namespace
}  // namespace llorch::engine::inference::scheduling
