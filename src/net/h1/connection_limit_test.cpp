#include "net/h1/connection_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

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
  ConnectionLimit::Member& add_busy() {
    ConnectionLimit::Member& member = add();
    limit.request_began(member);
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
  limit.request_began(members[0]);
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
  limit.request_began(members[0]);
  limit.request_began(members[1]);
  limit.request_began(members[2]);
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

}  // namespace
}  // namespace llorch::net::h1
