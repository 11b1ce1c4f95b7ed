#include "net/h1/exchange.h"

#include <gtest/gtest.h>

namespace llorch::net::h1 {
namespace {

struct CountingPort : ConnectionPort {
  void flush_soon() override { ++flushes; }
  void abort_soon() override { ++aborts; }
  int flushes = 0;
  int aborts = 0;
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
  make_exchange(state).reset();
  EXPECT_NE(state->take().wire().find("\"INTERNAL\""), std::string::npos);
  const auto streaming = make({});
  auto handle = make_exchange(streaming);
  ASSERT_TRUE(handle->start_stream(200, {}));
  handle.reset();
  EXPECT_EQ(port->aborts, 1);
  const auto ended = make({});
  handle = make_exchange(ended);
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
