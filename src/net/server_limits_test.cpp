// What clients can make a server hold, and what it refuses before it holds anything.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "net/testing/server_fixture.h"

namespace llorch::net {
namespace {

using http::Scope;

struct ServerLimits : testing::Test {
  IoRuntime runtime;
  ServerOptions options{.component = "test"};
  std::unique_ptr<Server> server;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ExchangePtr> kept;  // of /keep, for the test to answer

  void start() {
    server = std::make_unique<Server>(runtime, options);
    server->route("GET", "/open", Scope::kOpen, [this](Request, ExchangePtr exchange) { keep(std::move(exchange)); });
    server->route("GET", "/hello", Scope::kPublic,
                  [](Request, ExchangePtr exchange) { exchange->respond(http::text_response(200, "hello")); });
    server->route("POST", "/echo", Scope::kPublic, [](Request request, ExchangePtr exchange) {
      exchange->respond(http::text_response(201, std::move(request.body)));
    });
    server->route("GET", "/keep", Scope::kPublic, [this](Request, ExchangePtr exchange) { keep(std::move(exchange)); });
    const auto started = server->start();
    ASSERT_TRUE(started) << started.error().message;
  }
  void TearDown() override {
    server.reset();
    kept.clear();
  }
  void keep(ExchangePtr exchange) {
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(exchange));
    changed.notify_all();
  }
  void wait_kept(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return kept.size() >= count; });
  }
  // One exchange on a connection of its own.
  std::string ask(const std::string& request) {
    TestSocket socket(server->port());
    EXPECT_TRUE(socket.send(request));
    return socket.read_all();
  }
  static std::string get(std::string_view target, std::string_view fields = "") {
    return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
           "Connection: close\r\n\r\n";
  }
  static std::string head(std::string_view target, std::size_t bytes, std::string_view fields = "") {
    return "POST " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
           std::string(fields) + "Content-Length: " + std::to_string(bytes) + "\r\n\r\n";
  }
};

const std::string kClientsToken(40, 't');
const std::string kClientsBearer = "Authorization: Bearer " + kClientsToken + "\r\n";

// A server of four connections, which nobody uses without a token.
struct ConnectionsOfAServer : ServerLimits {
  std::vector<TestSocket> silent;

  void SetUp() override {
    options.connections_max = 4;
    options.auth = {.credentials = {http::make_credential(kClientsToken, http::Role::kOperator).value()}};
    start();
  }
  void connect_silently(int count) {
    for (int i = 0; i < count; ++i) silent.emplace_back(server->port());
  }
  TestSocket connect(std::string_view request) {
    TestSocket socket(server->port());
    EXPECT_TRUE(socket.send(request));
    return socket;
  }
  static std::string get_on(std::string_view target, std::string_view fields) {
    return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) + "\r\n";
  }
  // Of a request whose connection stays open.
  static int hello(TestSocket& socket) {
    return socket.send(get_on("/hello", kClientsBearer)) ? status_of(socket.read_until("hello")) : 0;
  }
  static int refused(TestSocket& socket) {
    return socket.send(get_on("/hello", "")) ? status_of(socket.read_until("\"}}")) : 0;
  }
  // Connections come in their order, so all silent ones are there when this is answered.
  int ask_as_a_client() { return status_of(ask(get("/hello", kClientsBearer))); }
};

TEST_F(ConnectionsOfAServer, ThatAreSilentKeepNobodyOut) {
  connect_silently(100);
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_EQ(silent[0].read_all(), "");
  EXPECT_EQ(silent[96].read_all(), "") << "it had waited longest";
  EXPECT_EQ(hello(silent[97]), 200);
  EXPECT_EQ(hello(silent[99]), 200);
}

TEST_F(ConnectionsOfAServer, ThatHaveARequestOrAStreamStay) {
  TestSocket waiting = connect(get_on("/keep", kClientsBearer));
  wait_kept(1);
  TestSocket stream = connect(get_on("/keep", kClientsBearer));
  wait_kept(2);
  kept[1]->start_stream(200, {});
  stream.read_until("\r\n\r\n");
  TestSocket sender = connect(head("/echo", 10, kClientsBearer + "Expect: 100-continue\r\nConnection: close\r\n"));
  EXPECT_NE(sender.read_until("\r\n\r\n").find(" 100 "), std::string::npos);
  connect_silently(20);
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_TRUE(kept[0]->respond(http::text_response(200, "answered")));
  EXPECT_NE(waiting.read_until("answered").find("answered"), std::string::npos);
  EXPECT_TRUE(kept[1]->write("goes on"));
  EXPECT_NE(stream.read_until("goes on").find("goes on"), std::string::npos);
  EXPECT_TRUE(sender.send("0123456789"));
  EXPECT_EQ(status_of(sender.read_all()), 201);
}

TEST_F(ConnectionsOfAServer, ThatClientsHaveUsedStayBeforeThoseOfStrangers) {
  TestSocket client(server->port());
  EXPECT_EQ(hello(client), 200);
  connect_silently(20);
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_EQ(hello(client), 200);
}

TEST_F(ConnectionsOfAServer, ThatWaitLongestForARequestGiveWayToNewOnes) {
  std::vector<TestSocket> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back(server->port());
    EXPECT_EQ(hello(clients.back()), 200);
  }
  EXPECT_EQ(hello(clients[0]), 200);
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_EQ(clients[1].read_all(), "");
  EXPECT_EQ(hello(clients[0]), 200);
  EXPECT_EQ(hello(clients[2]), 200);
}

// Neither a request that is refused nor one that needs no token keeps a place.
TEST_F(ConnectionsOfAServer, ThatNobodyVouchesForWaitHoweverMuchTheyAsk) {
  TestSocket first(server->port());
  EXPECT_EQ(refused(first), 401);
  connect_silently(3);
  EXPECT_EQ(refused(first), 401);
  EXPECT_TRUE(first.send(get_on("/open", "")));
  wait_kept(1);
  std::promise<CloseReason> closed;
  kept[0]->on_close([&](CloseReason reason) { closed.set_value(reason); });
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_EQ(closed.get_future().get(), CloseReason::kAborted);
  EXPECT_EQ(first.read_all(), "");
}

// Requests and streams of one tenant keep neither another one out, nor an operator, nor a node; it is told by the head alone.
TEST_F(ServerLimits, OneTenantDoesNotKeepAllConnections) {
  options.connections_max = 8;
  const auto bearer_of = [&](char c, http::Role role, const std::string& name) {
    const std::string token(40, c);
    options.auth.credentials.push_back(http::make_credential(token, role, name).value());
    return "Authorization: Bearer " + token + "\r\n";
  };
  const std::string greedy = bearer_of('g', http::Role::kTenant, "greedy");
  const std::string modest = bearer_of('m', http::Role::kTenant, "modest");
  const std::string node = bearer_of('n', http::Role::kNode, "pool-2");
  const std::string owner = bearer_of('o', http::Role::kOperator, "");
  start();
  std::vector<TestSocket> sockets;
  const auto keep = [&](const std::string& bearer) {
    sockets.emplace_back(server->port());
    EXPECT_TRUE(sockets.back().send("GET /keep HTTP/1.1\r\nHost: localhost\r\n" + bearer + "\r\n"));
    wait_kept(sockets.size());
  };
  for (int i = 0; i < 6; ++i) keep(greedy);
  const std::string refused = ask(head("/echo", 9, greedy));
  EXPECT_EQ(status_of(refused), 429);
  EXPECT_EQ(code_of(refused), "QUOTA_EXCEEDED");
  EXPECT_NE(refused.find("keep 6 connections, and 6 is"), std::string::npos) << refused;
  EXPECT_NE(refused.find("Retry-After: 1\r\n"), std::string::npos) << refused;
  EXPECT_EQ(status_of(ask(get("/hello", modest))), 200);
  keep(modest);
  keep(owner);
  EXPECT_EQ(status_of(ask(get("/hello", modest))), 429);
  EXPECT_EQ(status_of(ask(get("/hello", node))), 200);
}

// Its handler checks for whom it streams.
TEST_F(ConnectionsOfAServer, ThatStreamOnAnOpenRouteStay) {
  TestSocket first = connect(get_on("/open", ""));
  wait_kept(1);
  kept[0]->start_stream(200, {});
  first.read_until("\r\n\r\n");
  connect_silently(20);
  EXPECT_EQ(ask_as_a_client(), 200);
  EXPECT_TRUE(kept[0]->write("goes on"));
  EXPECT_NE(first.read_until("goes on").find("goes on"), std::string::npos);
}

// Many connections send large bodies slowly: the bytes that are held stay within the budget, the largest are told, and small
// requests of anybody are served all the while.
TEST_F(ServerLimits, SlowBodiesStayWithinTheBudget) {
  options.request_bytes_in_flight_max = 1 << 20;
  start();
  constexpr std::size_t kBody = 400'000, kSlow = 40;
  std::vector<TestSocket> slow;
  for (std::size_t i = 0; i < kSlow; ++i) {
    slow.emplace_back(server->port());
    ASSERT_TRUE(slow.back().send(head("/echo", kBody)));  // what is announced is not held
  }
  const std::string part(kBody / 8, 'x');
  for (int round = 0; round < 7; ++round) {
    for (TestSocket& socket : slow) socket.send(part);
    EXPECT_EQ(status_of(ask(head("/echo", 5000, "Connection: close\r\n") + std::string(5000, 'y'))), 201);
  }
  // At most two and a half such bodies fit: every other sender was told, in time to read it.
  std::vector<TestSocket*> waiting;
  for (TestSocket& socket : slow) waiting.push_back(&socket);
  std::size_t refused = 0;
  while (refused + 3 < kSlow) {
    std::erase_if(waiting, [&](TestSocket* socket) {
      const std::string answer = socket->read_now();
      if (answer.empty()) return false;
      EXPECT_EQ(status_of(answer), 503);
      EXPECT_EQ(code_of(answer), "SERVER_BUSY");
      EXPECT_NE(answer.find("\"held_max\":1048576"), std::string::npos) << answer;
      ++refused;
      return true;
    });
    ASSERT_EQ(status_of(ask(head("/echo", 5000, "Connection: close\r\n") + std::string(5000, 'y'))), 201);
  }
  // What they held is free again, once the server has seen that they went.
  slow.clear();
  while (status_of(ask(head("/echo", kBody, "Connection: close\r\n") + std::string(kBody, 'z'))) != 201) {
  }
}

// Whole answers that clients do not take: of the caller that holds the most, the largest one is cut short. Those that stay are
// whole, and who takes its answer at once is not concerned.
TEST_F(ServerLimits, UnreadAnswersStayWithinTheBudget) {
  constexpr std::size_t kAnswer = 8 << 20;
  options.request_bytes_in_flight_max = 20 << 20;
  options.write_stall_timeout_ms = 3'600'000;
  start();
  std::vector<TestSocket> slow;
  int cut = 0;  // guarded by mutex
  for (std::size_t i = 0; i < 3; ++i) {
    slow.emplace_back(server->port());
    ASSERT_TRUE(slow.back().send(get("/keep")));
    wait_kept(i + 1);
    kept[i]->on_close([&](CloseReason reason) {
      const std::lock_guard lock(mutex);
      if (reason != CloseReason::kPeerGone) return;
      ++cut;
      changed.notify_all();
    });
  }
  for (const ExchangePtr& exchange : kept) exchange->respond(http::text_response(200, std::string(kAnswer, 'a')));
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return cut == 1; });
  }
  EXPECT_EQ(status_of(ask(head("/echo", kAnswer / 4, "Connection: close\r\n") + std::string(kAnswer / 4, 'y'))), 201);
  int whole = 0;
  for (TestSocket& socket : slow) whole += socket.read_all().size() > kAnswer;
  EXPECT_EQ(whole, 2);
}

TEST_F(ServerLimits, AnswersThatAreCutShortDoNotFillTheLog) {
  constexpr std::size_t kClients = 60, kAnswer = 8 << 20, kWhole = 2;
  options.request_bytes_in_flight_max = 20 << 20;
  options.write_stall_timeout_ms = 3'600'000;
  std::atomic<std::int64_t> lines = 0;
  base::capture_log_lines([&](std::string_view line) { lines += line.find("http.answer_dropped") != line.npos; });
  const std::int64_t begin_ms = base::SystemClock().now().mono_ms;
  start();
  std::vector<TestSocket> slow;
  std::size_t cut = 0;  // guarded by mutex
  for (std::size_t i = 0; i < kClients; ++i) {
    slow.emplace_back(server->port());
    ASSERT_TRUE(slow.back().send(get("/keep")));
    wait_kept(i + 1);
    kept[i]->on_close([&](CloseReason reason) {
      const std::lock_guard lock(mutex);
      if (reason != CloseReason::kPeerGone) return;
      ++cut;
      changed.notify_all();
    });
    kept[i]->respond(http::text_response(200, std::string(kAnswer, 'a')));
  }
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return cut == kClients - kWhole; });
  }
  for (TestSocket& socket : slow) socket.read_all();
  const std::int64_t periods = (base::SystemClock().now().mono_ms - begin_ms) / 10'000 + 1;
  base::capture_log_lines({});
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, 10 * periods);
}

// What a handler makes of a small request counts as well, until it is answered.
TEST_F(ServerLimits, WhatARequestGrowsIntoIsHeld) {
  options.request_bytes_in_flight_max = 16 << 20;
  start();
  std::vector<TestSocket> clients;
  for (std::size_t i = 0; i < 2; ++i) {
    clients.emplace_back(server->port());
    ASSERT_TRUE(clients.back().send(get("/keep")));
    wait_kept(i + 1);
  }
  ASSERT_TRUE(kept[0]->hold(5 << 20));
  const auto refused = kept[1]->hold(5 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kServerBusy);
  ASSERT_TRUE(kept[0]->respond(http::text_response(200, "done")));
  EXPECT_TRUE(kept[0]->hold(5 << 20));  // answered: nothing is held for it
  EXPECT_TRUE(kept[1]->hold(5 << 20));
}

// A body counts as the memory it takes, not as the bytes that filled it: here a chunk for each.
TEST_F(ServerLimits, AByteOfABodyCountsAsItsChunk) {
  options.request_bytes_in_flight_max = 1 << 20;
  start();
  constexpr std::size_t kSenders = 200, kFit = (1 << 20) / (8 << 10);
  std::vector<TestSocket> senders;
  for (std::size_t i = 0; i < kSenders; ++i) {
    senders.emplace_back(server->port());
    ASSERT_TRUE(senders.back().send(head("/echo", 400'000) + "x"));
  }
  std::vector<TestSocket*> waiting;
  for (TestSocket& socket : senders) waiting.push_back(&socket);
  while (waiting.size() > kFit) {
    std::erase_if(waiting, [](TestSocket* socket) {
      const std::string answer = socket->read_now();
      if (answer.empty()) return false;
      EXPECT_EQ(status_of(answer), 503);
      return true;
    });
  }
}

// A caller that leaves does not take back what its requests cost: they count until a handler has let go of them.
TEST_F(ServerLimits, RequestsWhoseClientsLeftStillCount) {
  options.requests_in_flight_max = 3;
  start();
  for (std::size_t i = 0; i < 3; ++i) {
    TestSocket socket(server->port());
    socket.send(get("/keep"));
    wait_kept(i + 1);
  }
  const std::string refused = ask(get("/hello"));
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_EQ(code_of(refused), "SERVER_BUSY");
  EXPECT_NE(refused.find("3 requests of this server are not answered yet"), std::string::npos) << refused;
  kept[0]->start_stream(200, {});  // answered: a stream is not a request that waits
  EXPECT_EQ(status_of(ask(get("/hello"))), 200);
}

// What a check of the head refuses costs no body, and a small one leaves the connection as it was.
TEST_F(ServerLimits, AHeadIsRefusedBeforeItsBody) {
  server = std::make_unique<Server>(runtime, options);
  std::atomic<int> handled = 0;
  server->route(
      "POST", "/full", Scope::kPublic, [&](Request, ExchangePtr) { ++handled; },
      [](const http::Principal& caller) -> base::Result<> {
        return base::fail(
            base::Error{base::ErrorCode::kQueueFull, "full for " + caller.account, {}}.with("retry_after_ms", 70));
      });
  ASSERT_TRUE(server->start());
  TestSocket small(server->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(small.send(head("/full", 20) + std::string(20, 'x')));
    const std::string refused = small.read_until("\"}}");
    EXPECT_EQ(status_of(refused), 429);
    EXPECT_NE(refused.find("\"retry_after_ms\":70"), std::string::npos) << refused;
    EXPECT_NE(refused.find("Connection: keep-alive"), std::string::npos) << refused;
  }
  TestSocket large(server->port());
  ASSERT_TRUE(large.send(head("/full", 4'000'000)));
  const std::string refused = large.read_until("\"}}");  // nobody waited for the body
  EXPECT_EQ(status_of(refused), 429);
  EXPECT_NE(refused.find("Connection: close"), std::string::npos) << refused;
  EXPECT_EQ(handled, 0);
}

TEST_F(ServerLimits, ManyFieldsAreTooLarge) {
  start();
  std::string fields;
  for (int i = 0; i < 98; ++i) fields += "a: b\r\n";
  EXPECT_EQ(status_of(ask(get("/hello", fields))), 200);
  EXPECT_EQ(status_of(ask(get("/hello", fields + "a: b\r\n"))), 431);
}

}  // namespace
}  // namespace llorch::net
