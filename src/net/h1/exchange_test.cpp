#include "net/h1/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace llorch::net::h1 {
namespace {

struct CountingPort : ConnectionPort {
  bool can_write_now() const override { return true; }
  std::size_t write_now(std::string_view wire) override {
    const std::size_t taken = std::min(room, wire.size());
    room -= taken;
    written += wire.substr(0, taken);
    return taken;
  }
  void flush_soon() override { ++flushes; }
  void abort_soon() override { ++aborts; }
  int flushes = 0;
  int aborts = 0;
  std::size_t room = 0;  // what write_now() takes in all
  std::string written;
};

struct ExchangeTest : testing::Test {
  std::shared_ptr<CountingPort> port = std::make_shared<CountingPort>();
  std::shared_ptr<ExchangeState> state = make({.correlation_id = base::CorrelationId("c1")});

  std::shared_ptr<ExchangeState> make(ExchangeInfo info) { return std::make_shared<ExchangeState>(info, port); }
  static std::string body_of(std::string_view wire) { return std::string(wire.substr(wire.find("\r\n\r\n") + 4)); }
};

TEST_F(ExchangeTest, OneAnswerOnly) {
  EXPECT_FALSE(state->write("early"));
  EXPECT_FALSE(state->end());
  EXPECT_TRUE(state->respond({200, {}, "one"}));
  EXPECT_FALSE(state->respond({200, {}, "two"}));
  EXPECT_FALSE(state->start_stream(200, {}));
  const auto batch = state->take();
  EXPECT_TRUE(batch.is_last);
  EXPECT_EQ(body_of(batch.wire()), "one");
  EXPECT_EQ(state->queued_bytes(), batch.wire().size());
  state->sent(batch.wire().size());
  EXPECT_EQ(state->queued_bytes(), 0u);
  EXPECT_EQ(state->sent_bytes(), batch.wire().size());
}

TEST_F(ExchangeTest, WritesAreOrderedAndShareAChunkAndAFlush) {
  ASSERT_TRUE(state->start_stream(200, {}));
  EXPECT_TRUE(state->write("ab"));
  EXPECT_TRUE(state->write(""));
  EXPECT_TRUE(state->write("cd"));
  EXPECT_EQ(port->flushes, 1);
  const auto first = state->take();
  EXPECT_EQ(body_of(first.wire()), "4\r\nabcd\r\n");
  EXPECT_FALSE(first.is_last);
  EXPECT_TRUE(state->write("e"));
  EXPECT_EQ(port->flushes, 2);
  EXPECT_TRUE(state->end());
  EXPECT_FALSE(state->write("late"));
  const auto last = state->take();
  EXPECT_EQ(last.wire(), "1\r\ne\r\n0\r\n\r\n");
  EXPECT_TRUE(last.is_last);
  EXPECT_EQ(state->take().wire(), "");
  state->sent(first.wire().size() + last.wire().size());
  EXPECT_EQ(state->queued_bytes(), 0u);
}

TEST_F(ExchangeTest, WritesGoThroughWhileTheSocketHasRoom) {
  ASSERT_TRUE(state->start_stream(200, {}));
  port->room = 1000;
  EXPECT_TRUE(state->write("ab"));  // the head waits: nothing may overtake it
  EXPECT_EQ(port->written, "");
  const std::size_t first = state->take().wire().size();
  state->sent(first);
  EXPECT_TRUE(state->write("0123456789abcdef"));
  EXPECT_TRUE(state->write(std::string(5000, 'x')));  // too long for the stack
  EXPECT_EQ(port->written, "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(state->sent_bytes(), first + port->written.size());
  EXPECT_EQ(port->flushes, 2);
  state->sent(state->take().wire().size());
  EXPECT_EQ(state->queued_bytes(), 0u);
}

TEST_F(ExchangeTest, WhatTheSocketLeavesOfAWriteComesNext) {
  ASSERT_TRUE(state->start_stream(200, {}));
  state->sent(state->take().wire().size());
  for (std::size_t room = 0; room <= 7; ++room) {
    port->written.clear();
    port->room = room;
    const int flushes = port->flushes;
    EXPECT_TRUE(state->write("ab"));
    const std::string left = std::string("2\r\nab\r\n").substr(room);
    EXPECT_EQ(port->flushes, flushes + (left.empty() ? 0 : 1));
    EXPECT_EQ(state->queued_bytes(), room == 0 ? 2u : left.size());  // before or after it is framed
    if (!left.empty()) {
      EXPECT_TRUE(state->write("c"));
    }
    const auto batch = state->take();
    EXPECT_EQ(port->written + std::string(batch.wire()), room == 0      ? "3\r\nabc\r\n"
                                                         : left.empty() ? "2\r\nab\r\n"
                                                                        : "2\r\nab\r\n1\r\nc\r\n");
    state->sent(batch.wire().size());
    EXPECT_EQ(state->queued_bytes(), 0u);
  }
}

TEST_F(ExchangeTest, ABigWriteLeavesNoBigBuffer) {
  ASSERT_TRUE(state->start_stream(200, {}));
  EXPECT_TRUE(state->write(std::string(100'000, 'x')));
  std::string spent = state->take().bytes;
  ASSERT_GT(spent.capacity(), 100'000u);
  EXPECT_EQ(state->take(std::move(spent)).wire(), "");
  EXPECT_TRUE(state->write("y"));
  const auto batch = state->take();
  EXPECT_EQ(batch.wire(), "1\r\ny\r\n");
  EXPECT_LT(batch.bytes.capacity(), 1000u);
}

TEST_F(ExchangeTest, Http10StreamEndsWithItsConnection) {
  state = make({.is_http_1_0 = true});
  ASSERT_TRUE(state->start_stream(200, {}));
  EXPECT_TRUE(state->write("ab"));
  EXPECT_FALSE(state->keep_alive());
  EXPECT_EQ(body_of(state->take().wire()), "ab");
  port->room = 10;
  EXPECT_TRUE(state->write("cd"));
  EXPECT_EQ(port->written, "cd");
  EXPECT_TRUE(state->end());
  EXPECT_EQ(state->take().wire(), "");
}

TEST_F(ExchangeTest, DrainFiresOnceAtLowWater) {
  ASSERT_TRUE(state->start_stream(200, {}));
  state->sent(state->take().wire().size());
  int drained = 0;
  EXPECT_TRUE(state->write(std::string(100, 'x')));
  state->on_drain(50, [&] { ++drained; });
  const std::size_t bytes = state->take().wire().size();
  state->sent(bytes - 51);
  EXPECT_EQ(drained, 0);
  state->sent(1);
  EXPECT_EQ(drained, 1);
  state->sent(50);
  EXPECT_EQ(drained, 1);
}

TEST_F(ExchangeTest, CloseIsReportedOnceAndDropsLaterWrites) {
  ASSERT_TRUE(state->start_stream(200, {}));
  int closed = 0;
  state->on_close([&](CloseReason reason) {
    EXPECT_EQ(reason, CloseReason::kPeerGone);
    ++closed;
  });
  state->on_drain(0, [] { FAIL() << "drained after close"; });
  state->close(CloseReason::kPeerGone);
  state->close(CloseReason::kFinished);
  EXPECT_EQ(closed, 1);
  EXPECT_TRUE(state->closed());
  EXPECT_FALSE(state->write("x"));
  EXPECT_FALSE(state->end());
  EXPECT_EQ(state->queued_bytes(), 0u);
  state->abort();
  EXPECT_EQ(port->aborts, 0);

  const auto other = make({});
  other->close(CloseReason::kAborted);
  other->on_close([&](CloseReason reason) {
    EXPECT_EQ(reason, CloseReason::kAborted);
    ++closed;
  });
  EXPECT_EQ(closed, 2);
}

TEST_F(ExchangeTest, LettingGoUnansweredAnswersInternal) {
  make_exchange(state, {}).reset();
  EXPECT_NE(state->take().wire().find("\"INTERNAL\""), std::string::npos);
  const auto streaming = make({});
  auto handle = make_exchange(streaming, {});
  ASSERT_TRUE(handle->start_stream(200, {}));
  handle.reset();
  EXPECT_EQ(port->aborts, 1);
  const auto ended = make({});
  handle = make_exchange(ended, {});
  ASSERT_TRUE(handle->respond({}));
  handle.reset();
  EXPECT_EQ(port->aborts, 1);
}

TEST_F(ExchangeTest, OutlivesItsConnection) {
  port.reset();
  EXPECT_TRUE(state->start_stream(200, {}));
  EXPECT_TRUE(state->write("x"));
  state->abort();
  EXPECT_TRUE(state->end());
}

}  // namespace
}  // namespace llorch::net::h1
