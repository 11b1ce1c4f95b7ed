#include "net/h1/request_budget.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace llorch::net::h1 {
namespace {

struct Body : RequestBudget::Reader {
  RequestBudget* budget = nullptr;
  std::size_t bytes = 0;
  bool refused = false;
  void give_way(const base::Error& error) override {
    EXPECT_EQ(error.code, base::ErrorCode::kServerBusy);
    refused = true;
    bytes = 0;
    budget->forget(*this);
  }
  bool take(const std::string& account, std::size_t n) {
    if (budget->hold(*this, account, bytes + n)) {
      bytes += n;
      return true;
    }
    refused = true;
    bytes = 0;
    return false;
  }
};

TEST(RequestBudget, TheLargestBodyOfTheCallerThatHoldsTheMostGivesWay) {
  RequestBudget budget({.bytes_max = 100});
  std::vector<Body> bodies(4);
  for (Body& body : bodies) body.budget = &budget;
  EXPECT_TRUE(bodies[0].take("greedy", 30));
  EXPECT_TRUE(bodies[1].take("greedy", 31));
  EXPECT_TRUE(bodies[2].take("modest", 35));  // the largest of all, but its caller holds less
  EXPECT_TRUE(bodies[3].take("modest", 5));
  EXPECT_TRUE(bodies[1].refused);
  EXPECT_FALSE(bodies[0].refused || bodies[2].refused);
  EXPECT_EQ(budget.received_bytes(), 70u);
  // Who would hold the most is the one to go.
  EXPECT_FALSE(bodies[3].take("modest", 40));
  EXPECT_EQ(budget.received_bytes(), 65u);
}

TEST(RequestBudget, RefusalsSayHowMuchIsHeld) {
  RequestBudget budget({.bytes_max = 100});
  Body body;
  body.budget = &budget;
  const auto refused = budget.hold(body, "a", 101);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "requests of this server hold 101 bytes of bodies, and 100 is what there is for this one (its limit is 100 "
            "in all); send fewer at a time, or try again in 1000 ms");
}

TEST(RequestBudget, HandlersHoldHalfAndLeaveRoomForSmallBodies) {
  constexpr std::size_t kMebibyte = 1 << 20;
  RequestBudget budget({.bytes_max = 8 * kMebibyte});
  std::vector<RequestLease> leases;
  const auto handle = [&](std::size_t bytes) {
    Body body;
    body.budget = &budget;
    EXPECT_TRUE(body.take("a", bytes));
    auto lease = budget.hand_over(body);
    EXPECT_EQ(budget.received_bytes(), 0u);
    if (!lease) return false;
    leases.push_back(std::move(*lease));
    return true;
  };
  EXPECT_TRUE(handle(3 * kMebibyte));
  EXPECT_FALSE(handle(kMebibyte / 2));
  EXPECT_TRUE(handle(64 << 10));
  leases.front().release();
  leases.front().release();  // once is all it gives back
  EXPECT_TRUE(handle(kMebibyte / 2));
  EXPECT_FALSE(handle(3 * kMebibyte));
}

TEST(RequestBudget, RequestsThatAreNotAnsweredAreCounted) {
  RequestBudget budget({.requests_max = 2});
  Body none;
  auto first = budget.hand_over(none);
  auto second = budget.hand_over(none);
  ASSERT_TRUE(first && second);
  const auto third = budget.hand_over(none);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().message, "2 requests of this server are not answered yet, its limit; try again in 1000 ms");
  first->release();
  EXPECT_TRUE(budget.hand_over(none));
}

// Whatever callers do, the budget holds, and of three callers none is refused that holds less than a third.
TEST(RequestBudget, NeverExceededAndFair) {
  rc::check([] {
    constexpr std::size_t kMax = 1000, kCallers = 3, kBodies = 20;
    RequestBudget budget({.bytes_max = kMax});
    std::vector<Body> bodies(kBodies);
    for (Body& body : bodies) body.budget = &budget;
    const auto steps = *rc::gen::container<std::vector<std::pair<std::size_t, std::size_t>>>(
        rc::gen::pair(rc::gen::inRange<std::size_t>(0, kBodies), rc::gen::inRange<std::size_t>(1, 200)));
    for (const auto& [index, bytes] : steps) {
      std::size_t wanted = bytes;
      for (std::size_t i = index % kCallers; i < kBodies; i += kCallers) wanted += bodies[i].bytes;
      const bool taken = bodies[index].take(std::to_string(index % kCallers), bytes);
      std::size_t sum = 0;
      for (const Body& body : bodies) sum += body.bytes;
      RC_ASSERT(sum == budget.received_bytes());
      RC_ASSERT(sum <= kMax);
      RC_ASSERT(taken || wanted > kMax / kCallers);
    }
    for (Body& body : bodies) budget.forget(body);
    RC_ASSERT(budget.received_bytes() == 0u);
  });
}

}  // namespace
}  // namespace llorch::net::h1
