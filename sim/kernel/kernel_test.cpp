#include <gtest/gtest.h>

#include <vector>

#include "sim/kernel/network.h"

namespace llorch::sim {
namespace {

struct Net {
  Loop loop;
  Network network;
  Process client{.name = "client", .host = 1}, server{.name = "server", .host = 2};
  explicit Net(std::uint64_t seed, NetworkOptions options = {})
      : network(loop, Dice(seed, DiceStream::kNetwork), options) {
    client.start();
    server.start();
  }
  ~Net() { loop.clear(); }
  void run() {
    while (loop.step()) {
    }
  }
};

TEST(Dice, IsAFunctionOfSeedAndStream) {
  Dice a(7, DiceStream::kNetwork), b(7, DiceStream::kNetwork), other(7, DiceStream::kFaults);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t n = a.below(1'000'000);
    EXPECT_EQ(n, b.below(1'000'000));
    EXPECT_TRUE(n >= 0 && n < 1'000'000);
    differs |= n != other.below(1'000'000);
  }
  EXPECT_TRUE(differs);
}

TEST(Loop, RunsByTimeThenByOrderOfScheduling) {
  Loop loop;
  std::vector<int> order;
  loop.at(20, [&] { order.push_back(3); });
  loop.at(10, [&] { order.push_back(1); });
  loop.at(10, [&] { order.push_back(2); });
  while (loop.step()) {
  }
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_EQ(loop.now_us(), 20);
}

TEST(Loop, WhatADeadProcessHadToDoIsGoneAndAHungOneDoesItLater) {
  Loop loop;
  Process p{.name = "p"};
  p.start();
  int ran = 0;
  loop.post(p, 10, [&] { ++ran; });
  p.start();  // another life
  loop.post(p, 20, [&] {
    ++ran;
    EXPECT_EQ(loop.now_us(), 500);
  });
  p.hung_until_us = 500;
  while (loop.step()) {
  }
  EXPECT_EQ(ran, 1);
}

TEST(Network, OneConnectionKeepsItsOrder) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Net net(seed, {.delay_us_max = 5'000, .slow_permille = 300, .slow_us_max = 100'000});
    std::vector<int> got;
    const WirePtr wire = net.network.connect(
        net.client, net.server, [](const WirePtr&) {}, [] { FAIL(); });
    for (int i = 0; i < 20; ++i) wire->send(Wire::kClient, [&got, i] { got.push_back(i); });
    net.run();
    ASSERT_EQ(got.size(), 20u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i) << "seed " << seed;
  }
}

TEST(Network, DifferentConnectionsOvertakeEachOther) {
  bool overtaken = false;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Net net(seed);
    std::vector<int> got;
    for (int i = 0; i < 2; ++i) {
      net.network.connect(
          net.client, net.server, [&got, i](const WirePtr&) { got.push_back(i); }, [] { FAIL(); });
    }
    net.run();
    overtaken |= got == std::vector{1, 0};
  }
  EXPECT_TRUE(overtaken);
}

TEST(Network, ACallEndsExactlyOnceWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Net net(seed);
    Dice dice(seed, DiceStream::kFaults);
    int done = 0;
    if (dice.chance(100)) net.server.alive = false;
    if (dice.chance(200)) net.network.partition(1, 2, 100 * kMs * dice.between(1, 100));
    call<int>(
        net.network, net.client, net.server, 2'000,
        [&](const Reply<int>& reply) {
          if (dice.chance(700)) net.loop.post(net.server, 1'000, [reply] { reply(1); });
        },
        [&](const CallResult<int>& result) {
          ++done;
          EXPECT_EQ(result.value_or(1), 1);
        });
    net.loop.at(dice.below(5'000), [&] {
      if (dice.chance(300)) {
        net.server.alive = false;
        net.network.died(net.server);
      } else if (dice.chance(300)) {
        net.network.reset_one();
      }
    });
    net.run();
    EXPECT_EQ(done, 1) << "seed " << seed;
  }
}

TEST(Network, NobodyListens) {
  Net net(1);
  net.server.alive = false;
  bool refused = false;
  call<int>(
      net.network, net.client, net.server, 10'000, [](const Reply<int>&) { FAIL(); },
      [&](const CallResult<int>& result) { refused = !result && result.error() == CallError::kUnreachable; });
  net.run();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace llorch::sim
