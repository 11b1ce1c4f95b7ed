#include "net/h1/connection_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

namespace llorch::net::h1 {
namespace {

using Room = ConnectionLimit::Room;

struct ConnectionLimitTest : testing::Test {
  ConnectionLimit limit{16};  // and 2 to spare
  std::deque<ConnectionLimit::Member> members;

  ConnectionLimit::Member& add() {
    members.emplace_back();
    limit.add(members.back());
    return members.back();
  }
  ConnectionLimit::Member& add_busy(const std::string& account = "research") {
    ConnectionLimit::Member& member = add();
    limit.request_began(member, account);
    return member;
  }
  ConnectionLimit::Member& add_waiting() {
    ConnectionLimit::Member& member = add_busy();
    limit.request_ended(member);
    return member;
  }
  void TearDown() override {
    for (ConnectionLimit::Member& member : members) limit.remove(member);
  }
};

TEST_F(ConnectionLimitTest, TheOneThatWaitedLongestGivesWay) {
  for (int i = 0; i < 15; ++i) add_waiting();
  EXPECT_EQ(limit.gives_way(), nullptr);
  add_waiting();
  EXPECT_EQ(limit.gives_way(), &members[0]);
  limit.request_began(members[0], "research");
  EXPECT_EQ(limit.gives_way(), &members[1]);
  limit.request_ended(members[0]);  // from now on it waits anew
  EXPECT_EQ(limit.gives_way(), &members[1]);
  limit.request_ended(members[1]);  // no request of its had begun
  EXPECT_EQ(limit.gives_way(), &members[1]);
}

TEST_F(ConnectionLimitTest, TheLargerGroupGivesWay) {
  for (int i = 0; i < 9; ++i) add_waiting();
  for (int i = 0; i < 7; ++i) add();
  EXPECT_EQ(limit.gives_way(), &members[0]) << "more clients wait than nobody vouches for";
  limit.request_began(members[0], "research");
  limit.request_began(members[1], "research");
  limit.request_began(members[2], "research");
  EXPECT_EQ(limit.gives_way(), &members[9]);
}

TEST_F(ConnectionLimitTest, RequestsKeepTheirPlaces) {
  for (int i = 0; i < 16; ++i) add_busy();
  EXPECT_EQ(limit.gives_way(), nullptr) << "a new one is told that there is no room";
  add();
  add();
  EXPECT_EQ(limit.gives_way(), &members[16]) << "and gives way to the next";
}

TEST_F(ConnectionLimitTest, TheLastPlacesAreForThisMachine) {
  for (int i = 0; i < 15; ++i) add_busy();
  EXPECT_EQ(limit.room(), Room::kForAll);
  add_busy();
  EXPECT_EQ(limit.room(), Room::kForThisMachine);
  add_busy();
  EXPECT_EQ(limit.room(), Room::kForThisMachine);
  add_busy();
  EXPECT_EQ(limit.room(), Room::kNone);
  limit.request_ended(members[0]);
  EXPECT_EQ(limit.room(), Room::kForThisMachine);
}

// Three quarters of what the others leave; one place of sixteen is for operators and nodes.
struct Shares : ConnectionLimitTest {
  std::size_t fill(const std::string& account) {
    std::size_t count = 0;
    for (; limit.share_of(account).has_room(); ++count) add_busy(account);
    return count;
  }
};

TEST_F(Shares, OneCallerLeavesPlacesToTheNext) {
  EXPECT_EQ(fill("research"), 12u);
  EXPECT_EQ(fill("billing"), 3u);
  EXPECT_EQ(limit.room(), Room::kForAll) << "for operators and nodes";
  const auto share = limit.share_of("research");
  EXPECT_EQ(share.busy, 12u);
  EXPECT_EQ(share.busy_max, 9u) << "as others leave less";
}

TEST_F(Shares, WhatEndsIsShared) {
  EXPECT_EQ(fill("research"), 12u);
  for (std::size_t i = 0; i < 8; ++i) limit.request_ended(members[i]);
  EXPECT_EQ(limit.share_of("research").busy, 4u);
  for (std::size_t i = 0; i < 7; ++i) limit.request_began(members[i], "billing");
  EXPECT_EQ(limit.share_of("billing").busy, 7u);
  EXPECT_EQ(limit.share_of("billing").busy_max, 9u);
  EXPECT_EQ(limit.share_of("research").busy_max, 6u);
}

TEST_F(Shares, WhatOperatorsHoldIsNotShared) {
  for (int i = 0; i < 16; ++i) add_busy("localhost");
  EXPECT_EQ(limit.share_of("research").busy_max, 0u);
}

}  // namespace
}  // namespace llorch::net::h1
