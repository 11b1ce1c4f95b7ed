#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <unordered_map>

#include "base/testing/allocation_counter.h"
#include "engine/inference/speculation/ngram_lookup.h"
#include "engine/inference/speculation/payoff.h"
#include "engine/inference/speculation/speculator.h"

namespace llorch::engine::inference::speculation {
namespace {

using base::TokenId;
using scheduling::SequenceId;

std::vector<TokenId> tokens_of(std::initializer_list<std::uint32_t> numbers) {
  std::vector<TokenId> tokens;
  for (const std::uint32_t number : numbers) tokens.push_back(TokenId{number});
  return tokens;
}

// The header's words without an index.
std::uint32_t naive_propose(std::span<const TokenId> tokens, std::span<TokenId> proposals) {
  std::uint32_t longest = 0;
  std::size_t from = 0;
  for (std::size_t end = tokens.size() - 1; end-- > 0;) {
    std::uint32_t length = 0;
    while (length < kMatchTokensMax && length <= end && tokens[end - length] == tokens[tokens.size() - 1 - length])
      ++length;
    if (length > longest) longest = length, from = end + 1;
  }
  if (longest < kMatchTokensMin) return 0;
  std::vector<TokenId> text(tokens.begin(), tokens.end());
  for (TokenId& proposal : proposals) text.push_back(proposal = text[from++]);
  return longest;
}

TEST(NgramLookup, ProposalsWhatFollowedBefore) {
  NgramLookup lookup(16);
  std::vector<TokenId> proposals(4);
  EXPECT_EQ(lookup.propose(tokens_of({1, 2, 3, 4, 5}), proposals), 0u);
  EXPECT_EQ(lookup.propose(tokens_of({1, 2, 3, 4, 5, 2, 3}), proposals), 2u);
  EXPECT_EQ(proposals, tokens_of({4, 5, 2, 3}));
  // It runs into itself.
  NgramLookup loop(16);
  EXPECT_EQ(loop.propose(tokens_of({7, 8, 9, 8, 9}), proposals), 2u);
  EXPECT_EQ(proposals, tokens_of({8, 9, 8, 9}));
}

TEST(NgramLookup, IsTheNaiveSearch) {
  EXPECT_TRUE(rc::check("lookup", [](const std::vector<std::uint8_t>& bytes) {
    NgramLookup lookup(static_cast<std::uint32_t>(bytes.size()) + 1);
    std::vector<TokenId> tokens;
    for (const std::uint8_t byte : bytes) {
      tokens.push_back(TokenId{byte % 5u});
      // Fewer occurrences than it looks at.
      if (tokens.size() > 30) break;
      std::vector<TokenId> found(6), naive(6);
      RC_ASSERT(lookup.propose(tokens, found) == naive_propose(tokens, naive));
      RC_ASSERT(found == naive);
    }
  }));
}

TEST(StepCosts, LieOnALineBetweenWhatWasSeen) {
  StepCosts costs;
  EXPECT_DOUBLE_EQ(costs.of(1), 1);
  EXPECT_DOUBLE_EQ(costs.of(11), 2);
  costs.observe(2, 10);
  costs.observe(6, 30);
  EXPECT_NEAR(costs.of(4), 20, 0.2);
  EXPECT_LT(costs.of(1), 10);
  EXPECT_GT(costs.of(kCostRowsMax), 30);
  for (int i = 0; i < 100; ++i) costs.observe(2, 40);
  EXPECT_NEAR(costs.of(2), 40, 0.1);
}

// One slow step does not end all trying.
TEST(StepCosts, ForgetWhatIsNotSeenAgain) {
  StepCosts costs;
  costs.observe(4, 1000);
  for (int i = 0; i < 8000; ++i) costs.observe(1, 1);
  EXPECT_NEAR(costs.of(4), 1 + 3 * StepCosts::kRowShare, 0.5);
}

TEST(AcceptanceRecord, FollowsWhatCame) {
  AcceptanceRecord record;
  const double first = record.chance(5);
  EXPECT_GT(record.chance(9), first);
  for (int i = 0; i < 50; ++i) record.add(5, false);
  EXPECT_LT(record.chance(5), 0.05);
  EXPECT_GT(record.chance(9), first) << "a kind of its own";
  for (int i = 0; i < 100; ++i) record.add(5, true);
  EXPECT_GT(record.chance(5), 0.9);
}

AcceptanceRecord record_of(double share) {
  AcceptanceRecord record;
  for (int i = 0; i < 2000; ++i) record.add(9, i % 100 < share * 100);
  return record;
}

TEST(Choose, TakesWhatPays) {
  const AcceptanceRecord good = record_of(0.99), bad = record_of(0);
  std::vector<ProposalOffer> offers{{.record = &bad, .strength = 9, .most = 8},
                                    {.record = &good, .strength = 9, .most = 8}};
  StepCosts cheap;  // nothing seen: a tenth of a step for a row
  choose(offers, {.rows = 2, .tokens = 2, .proposals_max = 16}, cheap);
  EXPECT_EQ(offers[0].take, 0u);
  EXPECT_EQ(offers[1].take, 8u);
  choose(offers, {.rows = 2, .tokens = 2, .proposals_max = 3}, cheap);
  EXPECT_EQ(offers[1].take, 3u) << "the budget";

  StepCosts dear;  // every row costs a step
  for (std::uint32_t rows = kCostRowsMax; rows > 0; --rows) dear.observe(rows, rows);
  choose(offers, {.rows = 1, .tokens = 1, .proposals_max = 16}, dear);
  EXPECT_EQ(offers[0].take + offers[1].take, 0u);
  // Prompts fill the step.
  choose(offers, {.rows = 64, .tokens = 1, .proposals_max = 16}, cheap);
  EXPECT_EQ(offers[0].take + offers[1].take, 0u);
}

TEST(Choose, TakesNothingForASlowMinutesSake) {
  StepCosts costs;
  for (int i = 0; i < 8; ++i) costs.observe(1, 1.2), costs.observe(2, 1.0);
  AcceptanceRecord wrong;
  for (int i = 0; i < 24; ++i) wrong.add(3, false);
  std::array<ProposalOffer, 1> offers{{{.record = &wrong, .strength = 3, .most = 8}}};
  choose(offers, {.rows = 1, .tokens = 1, .proposals_max = 16}, costs);
  EXPECT_EQ(offers[0].take, 0u);
}

// However cheap rows look: whoever is never right is found out by three of them.
TEST(Choose, TakesFewOfWhoIsNotBelieved) {
  StepCosts costs;
  for (std::uint32_t rows = 9; rows > 0; --rows) costs.observe(rows, 1);
  AcceptanceRecord record;
  std::uint32_t taken = 0;
  for (int step = 0; step < 20; ++step) {
    std::array<ProposalOffer, 1> offers{{{.record = &record, .strength = 3, .most = 8}}};
    choose(offers, {.rows = 1, .tokens = 1, .proposals_max = 8}, costs);
    taken += offers[0].take;
    if (offers[0].take > 0) record.add(3, false);
  }
  EXPECT_GT(taken, 0u);
  EXPECT_LE(taken, 3u);
}

// Begins a step of one sequence with one row of its own; returns how many proposals it carries.
std::uint32_t begin_step(Speculator& speculator, SequenceId id, std::span<const TokenId> text, std::uint32_t tokens_max,
                         std::uint32_t proposals_max = 16) {
  std::uint32_t proposed = 0;
  speculator.begin();
  speculator.offer(id, 0, text, tokens_max);
  speculator.choose({.rows = 1, .tokens = 1, .proposals_max = proposals_max},
                    [&](SequenceId, std::span<const TokenId> proposals) {
                      proposed += static_cast<std::uint32_t>(proposals.size());
                    });
  return proposed;
}

TEST(Speculator, LearnsFromEveryTokenAndAllocatesNothing) {
  Speculator speculator({.proposals_max = 4}, 2);
  std::vector<TokenId> text;
  text.reserve(400);
  const auto next = [&](std::uint32_t token) {
    text.push_back(TokenId{token});
    return begin_step(speculator, SequenceId{1}, text, 400, 8);
  };
  // The same pair again and again, and never the same behind it.
  std::uint32_t last = 9;
  for (std::uint32_t i = 0; i < 20; ++i) next(1), last = next(2), next(100 + i);
  EXPECT_EQ(last, 0u);
  // A text that repeats itself.
  for (std::uint32_t i = 0; i < 60; ++i) last = next(10 + i % 20);
  const auto before = base::testing::allocations_count();
  for (std::uint32_t i = 0; i < 40; ++i) last = next(10 + i % 20);
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_EQ(last, 4u);
  speculator.remove(SequenceId{1});
}

// Has a proposal for every row that it is asked for.
struct EagerSource final : ProposalSource {
  bool propose(std::span<Request> requests) override {
    for (Request& request : requests) {
      std::ranges::fill(request.proposals, TokenId{7});
      proposed += request.count = static_cast<std::uint32_t>(request.proposals.size());
    }
    return true;
  }
  void remove(SequenceId) override {}
  std::uint32_t proposed = 0;
};

// Where a row more costs a whole step no proposal pays, however likely it is. A source that always has one never lets a step
// without any show that, unless such a step is made for it.
TEST(Speculator, StopsWhereEveryRowCostsAStep) {
  EagerSource source;
  double clock = 0;
  Speculator speculator({.source = &source, .proposals_max = 8, .spent = [&] { return clock; }}, 1);
  std::vector<TokenId> text(1);
  std::minstd_rand random(5);
  while (text.size() < 2500) {
    source.proposed = 0;
    const std::uint32_t rows = 1 + begin_step(speculator, SequenceId{1}, text, 3000);
    clock += rows + 0.1 * source.proposed;
    speculator.step_ended(rows);
    bool right = true;
    for (std::uint32_t row = 0; row < rows && right; ++row)
      text.push_back(TokenId{(right = random() % 4 != 0) ? 7U : 8U});
  }
  EXPECT_GT(static_cast<double>(text.size()) / clock, 0.98);
  speculator.remove(SequenceId{1});
}

// A source catches up with a prompt before it proposes. Where it was never right, only one sequence of sixteen makes it do so.
TEST(Speculator, AsksNoSourceThatWasWrongForOthers) {
  EagerSource source;
  double clock = 0;
  Speculator speculator({.source = &source, .proposals_max = 8, .spent = [&] { return clock; }}, 1);
  // Writes an answer of 100 tokens; returns how many were proposed.
  const auto answer = [&](std::uint64_t id, TokenId token) {
    source.proposed = 0;
    for (std::vector<TokenId> text(1); text.size() < 100;) {
      const std::uint32_t rows = 1 + begin_step(speculator, SequenceId{id}, text, 200);
      clock += 1 + 0.1 * (rows - 1);
      speculator.step_ended(rows);
      text.push_back(token);
    }
    speculator.remove(SequenceId{id});
    return source.proposed;
  };
  constexpr TokenId kRight{7}, kWrong{8};
  EXPECT_GT(answer(1, kWrong), 0u);
  for (std::uint64_t id = 2; id <= 16; ++id) EXPECT_EQ(answer(id, kWrong), 0u) << id;
  // The text is another now: the next one that is offered proposals shows it.
  EXPECT_GT(answer(17, kRight), 50u);
  EXPECT_GT(answer(18, kRight), 50u);
}

// The try of a sequence that was passed over for long waits until the others leave it a row.
TEST(Speculator, ProposesNoMoreThanAStepHasRoomFor) {
  constexpr std::uint32_t kRoom = 16;
  EagerSource source;
  double clock = 0;
  Speculator speculator({.source = &source, .proposals_max = 8, .spent = [&] { return clock; }}, 3);
  std::vector<std::vector<TokenId>> texts(3, std::vector<TokenId>(1));
  std::vector<std::uint32_t> proposed(3);
  // A step of some of the sequences, of which the source foretells some.
  const auto step = [&](std::initializer_list<std::uint32_t> offered, std::uint32_t foretold) {
    proposed.assign(3, 0);
    const auto rows = static_cast<std::uint32_t>(offered.size());
    speculator.begin();
    for (const std::uint32_t i : offered) speculator.offer(SequenceId{i}, i, texts[i], 20'000);
    speculator.choose({.rows = rows, .tokens = rows, .proposals_max = kRoom},
                      [&](SequenceId id, std::span<const TokenId> tokens) {
                        proposed[static_cast<std::size_t>(id)] = static_cast<std::uint32_t>(tokens.size());
                      });
    const std::uint32_t sum = proposed[0] + proposed[1] + proposed[2];
    clock += 1;
    speculator.step_ended(rows + sum);
    for (const std::uint32_t i : offered)
      for (std::uint32_t row = 0; row < (i < foretold ? 1 + proposed[i] : 1); ++row)
        texts[i].push_back(TokenId{i < foretold ? 7U : 8U});
    return sum;
  };
  for (int i = 0; i < 50; ++i) step({0}, 2), step({1}, 2);
  std::uint32_t filled = 0, tried = 0;
  for (int i = 0; i < 600; ++i) {
    const std::uint32_t sum = step({0, 1, 2}, 2);
    ASSERT_LE(sum, kRoom) << "step " << i;
    filled += sum == kRoom;
  }
  EXPECT_GT(filled, 500U);
  // The second text is another now.
  for (int i = 0; i < 600; ++i) step({0, 1, 2}, 1), tried += proposed[2];
  EXPECT_GT(tried, 0U);
}

// Reads what it does not know of a sequence before it proposes, at a fiftieth of a step for a token, and writes a tenth of a step a
// proposal. The clock counts steps of one row.
struct ReadingSource final : ProposalSource {
  bool propose(std::span<Request> requests) override {
    bool steady = true;
    for (Request& request : requests) {
      const std::uint32_t to_read = behind(request.id, static_cast<std::uint32_t>(request.tokens.size()));
      steady = steady && to_read == 0;
      std::ranges::fill(request.proposals, TokenId{7});
      request.count = static_cast<std::uint32_t>(request.proposals.size());
      held[request.id] = static_cast<std::uint32_t>(request.tokens.size());
      clock += 0.02 * to_read + 0.1 * request.count;
    }
    return steady;
  }
  std::uint32_t behind(SequenceId id, std::uint32_t known) const override {
    const auto found = held.find(id);
    const std::uint32_t has = found == held.end() ? 0 : found->second;
    return known - has <= 9 ? 0 : known - has;
  }
  void remove(SequenceId id) override { held.erase(id); }
  std::unordered_map<SequenceId, std::uint32_t> held;
  double clock = 0;
};

struct ReadingWorker {
  // What an answer of so many tokens costs a token, in steps of one row.
  double answer(std::uint32_t prompt, std::uint32_t tokens, bool right) {
    const SequenceId id{++answers};
    std::vector<TokenId> text(prompt, TokenId{1});
    const double began = source.clock;
    while (text.size() < prompt + tokens) {
      const std::uint32_t rows = 1 + begin_step(speculator, id, text, prompt + tokens);
      source.clock += 1 + 0.1 * (rows - 1);
      speculator.step_ended(rows);
      for (std::uint32_t row = 0; row < (right ? rows : 1); ++row) text.push_back(TokenId{right ? 7U : 8U});
    }
    speculator.remove(id);
    return (source.clock - began) / tokens;
  }
  ReadingSource source;
  Speculator speculator{{.source = &source, .proposals_max = 8, .spent = [this] { return source.clock; }}, 1};
  std::uint64_t answers = 0;
};

// Neither the first answer nor any other pays more than a thirtieth for a source that is never right, however long its prompt is.
TEST(Speculator, PaysLittleForASourceThatIsNeverRight) {
  for (const std::uint32_t prompt : {64U, 600U, 4000U}) {
    for (const std::uint32_t tokens : {128U, 400U, 3000U}) {
      ReadingWorker worker;
      for (int i = 0; i < 20; ++i)
        EXPECT_LT(worker.answer(prompt, tokens, false), 1 / 0.97) << prompt << ", " << tokens << ", " << i;
    }
  }
}

// One that is right is found out by a short prompt, and then reads long ones too where the answer earns it.
TEST(Speculator, ReadsAPromptThatTheAnswerEarns) {
  ReadingWorker worker;
  EXPECT_LT(worker.answer(64, 200, true), 0.7);
  EXPECT_LT(worker.answer(600, 200, true), 0.7);
  EXPECT_DOUBLE_EQ(worker.answer(40'000, 20, true), 1) << "800 steps to read, less than 20 to save";
}

}  // namespace
}  // namespace llorch::engine::inference::speculation
