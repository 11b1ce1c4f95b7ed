// Answers that are streams: their order, clients that read slowly, do not read, or go.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "net/testing/server_fixture.h"

namespace llorch::net {
namespace {

TEST_F(ServerTest, StreamFromAnotherThread) {
  start();
  TestSocket socket(server->port());
  socket.send(get("/keep"));
  const ExchangePtr exchange = wait_kept();
  EXPECT_TRUE(exchange->start_stream(200, http::sse_headers()));
  const std::string head = socket.read_until("\r\n\r\n");
  for (const char* field : {"Content-Type: text/event-stream", "Cache-Control: no-cache", "Connection: keep-alive",
                            "X-Accel-Buffering: no", "Transfer-Encoding: chunked"}) {
    EXPECT_NE(head.find(field), std::string::npos) << field;
  }
  EXPECT_TRUE(exchange->write("data: 1\n\n"));
  EXPECT_EQ(socket.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  std::promise<CloseReason> closed;
  exchange->on_close([&](CloseReason reason) { closed.set_value(reason); });
  EXPECT_TRUE(exchange->end());
  EXPECT_EQ(socket.read_until("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(closed.get_future().get(), CloseReason::kFinished);
  EXPECT_FALSE(exchange->write("late"));
  socket.send(get("/hello"));
  EXPECT_EQ(status_of(socket.read_until("hello")), 200);
}

TEST_F(ServerTest, ConcurrentStreamsKeepTheirOrder) {
  start();
  constexpr int kStreams = 20;
  constexpr int kWrites = 500;
  std::vector<TestSocket> sockets;
  for (int i = 0; i < kStreams; ++i) {
    sockets.emplace_back(server->port());
    sockets.back().send("GET /keep HTTP/1.0\r\n\r\n");  // HTTP/1.0: the body comes without chunks
  }
  wait_kept(kStreams - 1);
  std::thread writer([&] {
    for (const ExchangePtr& exchange : kept) exchange->start_stream(200, {});
    for (int i = 0; i < kWrites; ++i) {
      for (const ExchangePtr& exchange : kept) exchange->write(std::to_string(i) + ",");
    }
    for (const ExchangePtr& exchange : kept) exchange->end();
  });
  std::string want;
  for (int i = 0; i < kWrites; ++i) want += std::to_string(i) + ",";
  for (TestSocket& socket : sockets) {
    const std::string all = socket.read_all();
    EXPECT_EQ(all.substr(all.find("\r\n\r\n") + 4), want);
  }
  writer.join();
}

TEST_F(ServerTest, SlowReaderShowsInTheQueueAndDrains) {
  SlowStream slow = start_slow_stream();
  constexpr std::size_t kBytes = 4 << 20;
  std::promise<void> drained;
  EXPECT_TRUE(slow.exchange->write(std::string(kBytes, 'x')));
  slow.exchange->on_drain(1000, [&] {
    EXPECT_LE(slow.exchange->queued_bytes(), 1000u);
    drained.set_value();
  });
  // The kernel takes what its buffers hold and no more.
  std::future<void> waiting = drained.get_future();
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_GT(slow.exchange->queued_bytes(), kBytes / 2);
  EXPECT_LT(slow.exchange->sent_bytes(), kBytes / 2);
  std::size_t received = 0;
  std::thread reader([&] {
    const std::string all = slow.socket.read_all();
    received = all.size() - all.find("\r\n\r\n") - 4;
  });
  waiting.wait();
  slow.exchange->end();
  reader.join();
  EXPECT_EQ(received, kBytes);
}

// What the io thread writes goes straight to a socket that has room, and behind what waits for one that is full.
TEST_F(ServerTest, WritesOfTheIoThreadKeepTheirOrderPastAFullSocket) {
  SlowStream slow = start_slow_stream();
  slow.socket.read_until("\r\n\r\n");
  std::string sent;
  std::promise<void> written;
  std::size_t queued_max = 0;
  runtime.post([&] {
    for (int i = 0; i < 2000; ++i) {
      const std::string piece = std::to_string(i) + std::string(static_cast<std::size_t>(i % 3000), 'x');
      EXPECT_TRUE(slow.exchange->write(piece));
      sent += piece;
      EXPECT_TRUE(i > 0 || slow.exchange->queued_bytes() == 0);  // the first is there already
      queued_max = std::max(queued_max, slow.exchange->queued_bytes());
    }
    written.set_value();
  });
  written.get_future().wait();
  EXPECT_GT(queued_max, 0u);
  slow.exchange->end();
  EXPECT_TRUE(slow.socket.read_all() == sent);
}

TEST_F(ServerTest, DrainOfAnEmptyQueueComesAtOnce) {
  start();
  TestSocket socket(server->port());
  socket.send(get("/keep"));
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, {});
  socket.read_until("\r\n\r\n");
  std::promise<void> drained;
  exchange->on_drain(0, [&] { drained.set_value(); });
  drained.get_future().wait();
}

// ORCH-2003 and the disconnect rule need this: the client goes while nothing is written.
TEST_F(ServerTest, ClientThatGoesIsNoticedWhileIdle) {
  start();
  for (const bool streaming : {false, true}) {
    TestSocket socket(server->port());
    socket.send(get("/keep"));
    const ExchangePtr exchange = wait_kept(streaming ? 1 : 0);
    if (streaming) {
      exchange->start_stream(200, {});
      socket.read_until("\r\n\r\n");
    }
    std::promise<CloseReason> closed;
    exchange->on_close([&](CloseReason reason) { closed.set_value(reason); });
    socket.close();
    std::future<CloseReason> reason = closed.get_future();
    ASSERT_EQ(reason.wait_for(std::chrono::minutes(3)), std::future_status::ready);
    EXPECT_EQ(reason.get(), CloseReason::kPeerGone);
    EXPECT_FALSE(exchange->write("x"));
    EXPECT_FALSE(exchange->respond({}));
  }
}

TEST_F(ServerTest, AbortCutsTheStreamVisibly) {
  start();
  TestSocket socket(server->port());
  socket.send(get("/keep"));
  const ExchangePtr exchange = wait_kept();
  exchange->start_stream(200, {});
  exchange->write("part");
  socket.read_until("part\r\n");
  exchange->abort();
  EXPECT_EQ(socket.read_all(), "");  // no final chunk
}

TEST_F(ServerTest, StalledResponsesEnd) {
  options.write_stall_timeout_ms = 50;
  options.send_buffer_bytes = 16 << 10;
  start();
  for (const bool streamed : {false, true}) {
    TestSocket socket(server->port(), 4096);
    socket.send(get("/keep"));
    const ExchangePtr exchange = wait_kept(streamed ? 1 : 0);
    std::promise<CloseReason> closed;
    exchange->on_close([&](CloseReason reason) { closed.set_value(reason); });
    if (streamed) {
      exchange->start_stream(200, {});
      exchange->write(std::string(8 << 20, 'x'));
      exchange->on_drain(6 << 20, [&] { ADD_FAILURE() << "nobody reads"; });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      exchange->end();  // from here on nobody else watches this client
    } else {
      exchange->respond(http::text_response(200, std::string(8 << 20, 'x')));
    }
    EXPECT_EQ(closed.get_future().get(), CloseReason::kPeerGone);
  }
}

TEST_F(ServerTest, StalledStreamsEndWhereNobodyElseWatchesThem) {
  options.write_stall_timeout_ms = 50;
  options.cuts_stalled_streams = true;
  options.send_buffer_bytes = 16 << 10;
  start();
  TestSocket socket(server->port(), 4096);
  socket.send(get("/keep"));
  const ExchangePtr exchange = wait_kept(0);
  std::promise<CloseReason> closed;
  exchange->on_close([&](CloseReason reason) { closed.set_value(reason); });
  exchange->start_stream(200, {});
  exchange->write(std::string(8 << 20, 'x'));
  exchange->on_drain(6 << 20, [&] { ADD_FAILURE() << "nobody reads"; });
  EXPECT_EQ(closed.get_future().get(), CloseReason::kPeerGone);
}

}  // namespace
}  // namespace llorch::net
