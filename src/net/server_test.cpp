#include "net/server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <future>
#include <random>
#include <thread>

#include "base/log.h"
#include "net/test_socket.h"

namespace llorch::net {
namespace {

using base::ErrorCode;

const std::string kToken(40, 't');

std::string get(std::string_view target, std::string_view extra = "") {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(extra) + "\r\n";
}
int status_of(const std::string& response) { return response.size() > 12 ? std::stoi(response.substr(9, 3)) : 0; }
std::string code_of(const std::string& response) {
  const std::size_t body = response.find("\r\n\r\n");
  if (body == std::string::npos) return "no response";
  return std::string(boost::json::parse(response.substr(body + 4)).at("error").at("code").as_string());
}

struct ServerTest : testing::Test {
  IoRuntime runtime;
  ServerOptions options{.component = "test"};
  std::unique_ptr<Server> server;

  // What handlers keep for the test to use.
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ExchangePtr> kept;

  void start() {
    server = std::make_unique<Server>(runtime, options);
    server->route("GET", "/hello", Scope::kPublic,
                  [](Request, ExchangePtr exchange) { exchange->respond(http::text_response(200, "hello")); });
    server->route("GET", "/v2/tasks/{id}/events", Scope::kPublic, [](Request request, ExchangePtr exchange) {
      exchange->respond(http::text_response(
          200, request.path_param("id") + "|" + std::string(request.query_param("verbose").value_or("none")) + "|" +
                   request.correlation_id.value + "|" + request.peer.principal.identity + "|" + request.path));
    });
    server->route("POST", "/echo", Scope::kPublic, [](Request request, ExchangePtr exchange) {
      exchange->respond(http::text_response(201, std::move(request.body)));
    });
    server->route("GET", "/keep", Scope::kPublic, [this](Request, ExchangePtr exchange) { keep(std::move(exchange)); });
    server->route("GET", "/drop", Scope::kPublic, [](Request, ExchangePtr) {});
    server->route("GET", "/throw", Scope::kPublic, [](Request, ExchangePtr) { throw std::runtime_error("broken"); });
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
  ExchangePtr wait_kept(std::size_t index = 0) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return kept.size() > index; });
    return kept[index];
  }
  struct SlowStream {
    TestSocket socket;
    ExchangePtr exchange;  // a stream that has begun
  };
  // Starts the server. Few bytes fit between the stream and a client that does not read.
  SlowStream start_slow_stream() {
    options.send_buffer_bytes = 16 << 10;
    start();
    TestSocket socket(server->port(), 4096);
    EXPECT_TRUE(socket.send("GET /keep HTTP/1.0\r\n\r\n"));
    ExchangePtr exchange = wait_kept();
    EXPECT_TRUE(exchange->start_stream(200, {}));
    return {std::move(socket), std::move(exchange)};
  }
  // One exchange on a connection of its own.
  std::string ask(const std::string& request) {
    TestSocket socket(server->port());
    EXPECT_TRUE(socket.send(request));
    return socket.read_all();
  }
  std::string ask_and_close(std::string_view target, std::string_view extra = "") {
    return ask(get(target, std::string(extra) + "Connection: close\r\n"));
  }
};

TEST_F(ServerTest, AnswersWithParametersAndQuery) {
  start();
  const std::string response =
      ask_and_close("/v2/tasks/job%2F1/events?verbose=true", "X-Correlation-Id: corr-accept-1\r\n");
  EXPECT_EQ(status_of(response), 200);
  EXPECT_TRUE(response.ends_with("\r\n\r\njob/1|true|corr-accept-1|localhost|/v2/tasks/job%2F1/events")) << response;
}

// SYS-5.6.1, OC-CTRL-2052, ORCH-1092: on every response, streams and errors included.
TEST_F(ServerTest, CorrelationIdIsEchoedOrMade) {
  start();
  const std::string given = "X-Correlation-Id: c-42\r\n";
  EXPECT_NE(ask_and_close("/hello", given).find(given), std::string::npos);
  const std::string missing = ask_and_close("/nothing", given);
  EXPECT_NE(missing.find(given), std::string::npos);
  EXPECT_NE(missing.find("\"correlation_id\":\"c-42\""), std::string::npos);

  for (const std::string& made :
       {ask_and_close("/hello"), ask_and_close("/hello", "X-Correlation-Id: not valid!\r\n"), ask("garbage\r\n\r\n")}) {
    const std::size_t at = made.find("X-Correlation-Id: ");
    ASSERT_NE(at, std::string::npos) << made;
    EXPECT_TRUE(base::is_uuid(made.substr(at + 18, 36))) << made;
  }

  TestSocket stream(server->port());
  stream.send(get("/keep", given));
  wait_kept()->start_stream(200, http::sse_headers());
  EXPECT_NE(stream.read_until("\r\n\r\n").find(given), std::string::npos);
}

TEST_F(ServerTest, RefusalsAreEnvelopes) {
  options.request_bytes_max = 1000;
  start();
  struct Case {
    std::string request;
    int status;
    std::string code;
  };
  const Case cases[] = {
      {get("/nothing", "Connection: close\r\n"), 404, "NOT_FOUND"},
      {"PUT /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405, "METHOD_NOT_ALLOWED"},
      {"OPTIONS /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405, "METHOD_NOT_ALLOWED"},
      {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1001\r\n\r\n" +
           std::string(1001, 'x'),
       413, "PAYLOAD_TOO_LARGE"},
      {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
       "chunked\r\n\r\n3E9\r\n" +
           std::string(1001, 'x'),
       413, "PAYLOAD_TOO_LARGE"},
      {get("/hello", "X: " + std::string(20'000, 'x') + "\r\n"), 431, "PAYLOAD_TOO_LARGE"},
      {"GET /hello HTTP/1.1\r\n\r\n", 400, "INVALID_PARAMS"},
      {"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "INVALID_PARAMS"},
      {"GET hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400, "INVALID_PARAMS"},
      {"nonsense\r\n\r\n", 400, "INVALID_PARAMS"},
      {get("/drop", "Connection: close\r\n"), 500, "INTERNAL"},
      {get("/throw", "Connection: close\r\n"), 500, "INTERNAL"},
  };
  for (const Case& c : cases) {
    const std::string response = ask(c.request);
    EXPECT_EQ(status_of(response), c.status) << c.request.substr(0, 60);
    EXPECT_EQ(code_of(response), c.code) << c.request.substr(0, 60);
  }
  EXPECT_NE(ask(cases[1].request).find("Allow: GET, HEAD\r\n"), std::string::npos);
}

// Refusals before a handler, of a handler and for want of one have the format of their path; status and headers stay.
TEST_F(ServerTest, ErrorsHaveTheFormatOfTheirPath) {
  options.request_bytes_max = 1000;
  options.gateways = {{"/v1/", [](const base::Error& error, const base::CorrelationId& correlation_id) {
                         http::Response response = http::error_response(error, correlation_id);
                         response.body = "other:" + std::string(error.name());
                         return response;
                       }}};
  server = std::make_unique<Server>(runtime, options);
  server->route("GET", "/v1/refused", Scope::kPublic, [](Request, ExchangePtr exchange) {
    exchange->respond_error(base::Error{base::ErrorCode::kConflict, "no", {}});
  });
  server->route("GET", "/v1/drop", Scope::kPublic, [](Request, ExchangePtr) {});
  server->route("POST", "/v1/echo", Scope::kPublic, [](Request request, ExchangePtr exchange) {
    exchange->respond(http::text_response(201, std::move(request.body)));
  });
  ASSERT_TRUE(server->start());
  const std::string close = "Connection: close\r\n";
  struct Case {
    std::string request;
    int status;
    std::string body;
  };
  const Case cases[] = {
      {get("/v1/nothing", close), 404, "other:NOT_FOUND"},
      {get("/v1/echo", close), 405, "other:METHOD_NOT_ALLOWED"},
      {get("/v1/refused", close), 409, "other:CONFLICT"},
      {get("/v1/drop", close), 500, "other:INTERNAL"},
      {"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n" + close + "\r\n{}", 415,
       "other:INVALID_PARAMS"},
      {"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1001\r\n" +
           close + "\r\n",
       413, "other:PAYLOAD_TOO_LARGE"},
  };
  for (const Case& c : cases) {
    const std::string response = ask(c.request);
    EXPECT_EQ(status_of(response), c.status) << c.request;
    EXPECT_TRUE(response.ends_with("\r\n\r\n" + c.body)) << response;
  }
  EXPECT_EQ(code_of(ask_and_close("/v2/nothing")), "NOT_FOUND");
}

TEST_F(ServerTest, LargeRefusedBodyStillGetsItsAnswer) {
  options.request_bytes_max = 1000;
  start();
  TestSocket socket(server->port());
  socket.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n");
  socket.send(std::string(3'000'000, 'x'));  // may be cut short when the server closes
  EXPECT_EQ(status_of(socket.read_all()), 413);
}

TEST_F(ServerTest, KeepAliveAndPipelining) {
  start();
  TestSocket socket(server->port());
  for (int i = 0; i < 3; ++i) {
    socket.send(get("/hello"));
    const std::string response = socket.read_until("hello");
    EXPECT_EQ(status_of(response), 200);
    EXPECT_NE(response.find("Connection: keep-alive"), std::string::npos);
  }
  socket.send(
      get("/keep") +
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\nab" +
      get("/nothing") + get("/hello", "Connection: close\r\n"));
  wait_kept()->respond(http::text_response(200, "first"));
  const std::string all = socket.read_all();
  const std::size_t first = all.find("first");
  const std::size_t second = all.find("HTTP/1.1 201");
  const std::size_t third = all.find("HTTP/1.1 404");
  const std::size_t fourth = all.rfind("HTTP/1.1 200");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, fourth);
  EXPECT_TRUE(all.ends_with("hello"));
}

TEST_F(ServerTest, Continues) {
  start();
  TestSocket socket(server->port());
  socket.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(socket.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send("ab");
  EXPECT_EQ(status_of(socket.read_until("\r\n\r\nab")), 201);
}

TEST_F(ServerTest, ManyConnectionsAtOnce) {
  start();
  std::vector<TestSocket> sockets;
  for (int i = 0; i < 200; ++i) sockets.emplace_back(server->port());
  for (int round = 0; round < 3; ++round) {
    for (TestSocket& socket : sockets) ASSERT_TRUE(socket.send(get("/hello")));
    for (TestSocket& socket : sockets) EXPECT_EQ(status_of(socket.read_until("hello")), 200);
  }
}

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

TEST_F(ServerTest, SlowRequestsEnd) {
  options.request_timeout_ms = 50;
  start();
  const std::string response =
      ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_EQ(status_of(response), 408);
  EXPECT_EQ(code_of(response), "INVALID_PARAMS");
  EXPECT_EQ(status_of(ask("GET /hel")), 408);
}

TEST_F(ServerTest, IdleConnectionsEnd) {
  options.idle_timeout_ms = 50;
  start();
  EXPECT_EQ(TestSocket(server->port()).read_all(), "");
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

TEST_F(ServerTest, PastTheConnectionLimitClientsAreTold) {
  options.connections_max = 2;
  start();
  std::vector<TestSocket> clients;  // one more, as they are of this machine
  for (std::size_t i = 0; i < 3; ++i) {
    clients.emplace_back(server->port());
    clients.back().send(get("/keep"));
    wait_kept(i);
  }
  const std::string refused = ask_and_close("/hello");
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_EQ(code_of(refused), "SERVER_BUSY");
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos);
  clients.back().close();
  for (;;) {  // the server notices the close a moment later
    if (status_of(ask_and_close("/hello")) == 200) break;
  }
}

TEST_F(ServerTest, IdleConnectionsLeaveDescriptorsForEverythingElse) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  start();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);  // the clients are in this process as well
  std::vector<std::unique_ptr<TestSocket>> clients;
  for (int i = 0; i < 48; ++i) {
    clients.push_back(std::make_unique<TestSocket>(server->port()));
    clients.back()->send(get("/hello"));
    clients.back()->read_until("hello");
  }
  EXPECT_EQ(status_of(ask_and_close("/hello")), 200);
  EXPECT_EQ(clients.front()->read_all(), "") << "its descriptor is the new one's";
}

// AUTH-1001, AUTH-1004, AUTH-1008, SEC-AUTH-5002
TEST_F(ServerTest, TokenIsCheckedBeforeAnythingElse) {
  options.auth = {.credentials = {http::make_credential(kToken, http::Role::kOperator).value()}};
  std::mutex lines_mutex;
  std::string lines;
  base::capture_log_lines(
      [&](std::string_view line) {
        const std::lock_guard lock(lines_mutex);
        lines += line;
        lines += '\n';
      },
      base::LogLevel::kDebug);
  start();
  const std::string good = "Authorization: Bearer " + kToken + "\r\n";
  EXPECT_EQ(code_of(ask_and_close("/nothing")), "MISSING_TOKEN");
  EXPECT_EQ(code_of(ask_and_close("/nothing", "Authorization: Bearer wrong\r\n")), "BAD_TOKEN");
  const std::string missing = ask_and_close("/v2/tasks/1/events");
  EXPECT_EQ(status_of(missing), 401);
  EXPECT_NE(missing.find("WWW-Authenticate: Bearer\r\n"), std::string::npos);
  EXPECT_NE(missing.find("\"auth_code\":40101"), std::string::npos);
  EXPECT_EQ(code_of(ask_and_close("/nothing", good)), "NOT_FOUND");
  EXPECT_EQ(status_of(ask_and_close("/hello")), 401) << "no path is free of a token";
  const std::string accepted = ask_and_close("/v2/tasks/1/events", good);
  const std::string identity = "token:" + http::token_fp6(kToken);
  EXPECT_NE(accepted.find(identity), std::string::npos);
  // A body without a token is refused unread.
  EXPECT_EQ(code_of(ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n")), "MISSING_TOKEN");
  server->stop(0);
  base::capture_log_lines({});
  EXPECT_NE(lines.find("\"event\":\"auth_failed\""), std::string::npos);
  EXPECT_NE(lines.find(identity), std::string::npos);
  EXPECT_EQ(lines.find(kToken), std::string::npos);
}

// Who asks decides how much is asked: at info neither a good request nor the hundredth bad one is a line.
TEST_F(ServerTest, RequestsDoNotFillTheLog) {
  options.auth = {.credentials = {http::make_credential(kToken, http::Role::kOperator).value()}};
  std::mutex lines_mutex;
  std::vector<std::string> lines;
  base::capture_log_lines([&](std::string_view line) {
    const std::lock_guard lock(lines_mutex);
    if (line.find("\"event\":\"auth_") != line.npos) lines.emplace_back(line);
  });
  const auto count = [&] {
    const std::lock_guard lock(lines_mutex);
    return lines.size();
  };
  start();
  for (int i = 0; i < 5; ++i) ask_and_close("/v2/tasks/1/events", "Authorization: Bearer " + kToken + "\r\n");
  EXPECT_EQ(count(), 0u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(code_of(ask_and_close("/v2/tasks/1/events")), "MISSING_TOKEN");
  server->stop(0);
  base::capture_log_lines({});
  EXPECT_LT(lines.size(), 40u);
  EXPECT_GE(lines.size(), 10u);
}

// Each role at a route of each scope: what the table permits is answered, the rest is refused before the handler runs.
TEST_F(ServerTest, RolesAndScopes) {
  std::map<http::Role, std::string> tokens;
  for (const http::Role role : http::kRoles) {
    tokens[role] = std::string(40, static_cast<char>('a' + static_cast<int>(role)));
    options.auth.credentials.push_back(http::make_credential(tokens[role], role, "").value());
  }
  std::atomic<int> handled = 0;
  server = std::make_unique<Server>(runtime, options);
  for (const Scope scope : http::kScopes) {
    server->route("POST", "/" + std::string(http::name_of(scope)), scope, [&](Request, ExchangePtr exchange) {
      ++handled;
      exchange->respond(http::text_response(200, "done"));
    });
  }
  EXPECT_EQ(server->routes().size(), http::kScopes.size());
  ASSERT_TRUE(server->start());
  for (const Scope scope : http::kScopes) {
    for (const http::Role role : http::kRoles) {
      const int before = handled;
      const std::string answer = ask("POST /" + std::string(http::name_of(scope)) +
                                     " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n"
                                     "Authorization: Bearer " +
                                     tokens[role] + "\r\n\r\n");
      const bool permitted = http::permits(scope, role);
      EXPECT_EQ(status_of(answer), permitted ? 200 : 403) << http::name_of(scope) << http::name_of(role);
      EXPECT_EQ(handled, before + (permitted ? 1 : 0));
      EXPECT_EQ(permitted ? "FORBIDDEN" : code_of(answer), "FORBIDDEN");
    }
  }
}

// An open route is for who has no token as well; one that is sent is looked at all the same.
TEST_F(ServerTest, AnOpenRouteNeedsNoToken) {
  const std::string token(40, 'o');
  options.auth.credentials.push_back(http::make_credential(token, http::Role::kTenant, "research").value());
  server = std::make_unique<Server>(runtime, options);
  std::string identity;
  const auto answer = [&](Request request, ExchangePtr exchange) {
    identity = request.peer.principal.identity;
    exchange->respond(http::text_response(200, "done"));
  };
  server->route("GET", "/page", Scope::kOpen, answer);
  server->route("POST", "/page", Scope::kPublic, answer);
  ASSERT_TRUE(server->start());
  const auto call = [&](const std::string& line, const std::string& authorization = "") {
    return ask(line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + authorization + "\r\n");
  };
  EXPECT_EQ(status_of(call("GET /page")), 200);
  EXPECT_EQ(identity, "nobody");
  EXPECT_EQ(status_of(call("HEAD /page")), 200);
  EXPECT_EQ(status_of(call("GET /page", "Authorization: Bearer " + token + "\r\n")), 200);
  EXPECT_EQ(identity.substr(0, 6), "token:");
  EXPECT_EQ(status_of(call("GET /page", "Authorization: Bearer " + std::string(40, 'x') + "\r\n")), 401);
  EXPECT_EQ(status_of(call("POST /page")), 401);
  EXPECT_EQ(status_of(call("PUT /page")), 401) << "nobody learns what there is";
  EXPECT_EQ(status_of(call("GET /other")), 401);
  EXPECT_EQ(status_of(ask("GET /page HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")), 403);
}

// The answer of GET without its body, errors and streams included: what comes next on the connection is the next answer.
TEST_F(ServerTest, HeadIsGetWithoutABody) {
  server = std::make_unique<Server>(runtime, options);
  server->route("GET", "/hello", Scope::kPublic,
                [](Request, ExchangePtr exchange) { exchange->respond(http::text_response(200, "hello")); });
  server->route("GET", "/stream", Scope::kPublic, [](Request, ExchangePtr exchange) {
    exchange->start_stream(200, http::sse_headers());
    exchange->write("data: x\n\n");
    exchange->end();
  });
  ASSERT_TRUE(server->start());
  const auto head = [](std::string target) { return "HEAD " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; };
  TestSocket socket(server->port());
  ASSERT_TRUE(
      socket.send(head("/hello") + head("/nothing") + head("/stream") + get("/hello", "Connection: close\r\n")));
  const std::string answers = socket.read_all();
  EXPECT_EQ(status_of(answers), 200);
  EXPECT_NE(answers.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_NE(answers.find("HTTP/1.1 404 Not Found"), std::string::npos);
  EXPECT_NE(answers.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_EQ(answers.find("data: x"), std::string::npos);
  EXPECT_EQ(answers.find("\"error\""), std::string::npos);
  EXPECT_EQ(answers.find("hello"), answers.size() - 5) << answers;
}

// What a page can send without being asked, and what it must ask for first.
TEST_F(ServerTest, PagesOfOtherSites) {
  options.auth.credentials = {http::make_credential(kToken, http::Role::kOperator).value()};
  options.browsers.cors_origins = {"https://chat.example"};
  start();
  const std::string good = "Authorization: Bearer " + kToken + "\r\n";
  const std::string foreign = ask_and_close("/hello", good + "Origin: http://evil.example\r\n");
  EXPECT_EQ(status_of(foreign), 403);
  EXPECT_EQ(code_of(foreign), "FORBIDDEN");
  EXPECT_EQ(foreign.find("Access-Control"), std::string::npos);
  EXPECT_EQ(status_of(ask("GET /hello HTTP/1.1\r\nHost: evil.example\r\n" + good + "Connection: close\r\n\r\n")), 403);
  const std::string form = ask("POST /echo HTTP/1.1\r\nHost: localhost\r\n" + good +
                               "Connection: close\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(status_of(form), 415);
  EXPECT_EQ(code_of(form), "INVALID_PARAMS");
  const std::string page = "Origin: https://chat.example\r\nSec-Fetch-Site: cross-site\r\n";
  const std::string allow = "Access-Control-Allow-Origin: https://chat.example\r\n";
  const std::string asked = ask("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n" + page +
                                "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(asked), 204);
  EXPECT_NE(asked.find(allow), std::string::npos);
  EXPECT_NE(asked.find("Access-Control-Allow-Methods: POST\r\n"), std::string::npos);
  for (const std::string& answer : {ask_and_close("/hello", good + page), ask_and_close("/hello", page)}) {
    EXPECT_NE(answer.find(allow), std::string::npos) << answer;
  }
}

// AUTH-1002
TEST_F(ServerTest, StartRefusals) {
  const auto code = [&](ServerOptions given) {
    Server other(runtime, std::move(given));
    const auto started = other.start();
    EXPECT_FALSE(started);
    return started ? ErrorCode::kInternal : started.error().code;
  };
  EXPECT_EQ(code({.bind_address = "0.0.0.0"}), ErrorCode::kNonLoopbackWithoutToken);
  const auto credential = http::make_credential(kToken, http::Role::kOperator).value();
  EXPECT_EQ(code({.bind_address = "127.0.0.1", .auth = {.credentials = {credential, credential}}}),
            ErrorCode::kConfigInvalid);
  EXPECT_EQ(code({.bind_address = "example.org", .auth = {.credentials = {credential}}}), ErrorCode::kConfigInvalid);
  EXPECT_EQ(code({.bind_address = "192.0.2.1", .auth = {.credentials = {credential}}}), ErrorCode::kIoError);
  start();
  Server second(runtime, {.component = "second", .port = server->port()});
  const auto taken = second.start();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kPortInUse);
  EXPECT_NE(taken.error().message.find("second cannot listen on 127.0.0.1:" + std::to_string(server->port())),
            std::string::npos);
}

// What connects before the server starts waits for it.
TEST_F(ServerTest, ServesASocketThatListensAlready) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener, raw, size), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, raw, &size), 0);
  TestSocket early(ntohs(address.sin_port));
  early.send(get("/hello"));
  options.listener_fd = listener;
  start();
  EXPECT_EQ(server->port(), ntohs(address.sin_port));
  EXPECT_EQ(status_of(early.read_until("hello")), 200);
  server->stop(0);
  options.listener_fd = -1;
  options.port = ntohs(address.sin_port);
  start();  // the server has closed it
}

TEST_F(ServerTest, StopLetsOpenExchangesFinishThenAborts) {
  start();
  TestSocket idle(server->port());
  TestSocket finishing(server->port());
  TestSocket lasting(server->port());
  finishing.send(get("/keep"));
  const ExchangePtr first = wait_kept(0);
  lasting.send(get("/keep"));
  const ExchangePtr second = wait_kept(1);
  second->start_stream(200, {});
  std::promise<CloseReason> closed;
  second->on_close([&](CloseReason reason) { closed.set_value(reason); });
  std::thread late([&] {
    EXPECT_EQ(idle.read_all(), "");  // closed by stop()
    first->respond(http::text_response(200, "done"));
    EXPECT_TRUE(finishing.read_all().ends_with("done"));
    finishing.close();
  });
  server->stop(300);
  late.join();
  EXPECT_EQ(closed.get_future().get(), CloseReason::kAborted);
  EXPECT_FALSE(second->write("x"));
  server->stop(0);
}

TEST_F(ServerTest, ThePortIsFreeAfterStop) {
  start();
  options.port = server->port();
  TestSocket open(server->port());
  open.send(get("/hello"));
  open.read_until("hello");
  server->stop(0);
  start();
  EXPECT_EQ(status_of(ask_and_close("/hello")), 200);
}

TEST_F(ServerTest, SurvivesARuntimeThatStopsFirst) {
  start();
  TestSocket socket(server->port());
  socket.send(get("/keep"));
  const ExchangePtr exchange = wait_kept();
  CloseReason reason = CloseReason::kFinished;
  exchange->on_close([&](CloseReason given) { reason = given; });
  runtime.stop();
  server.reset();
  EXPECT_EQ(reason, CloseReason::kAborted);
  EXPECT_FALSE(exchange->respond({}));
}

TEST_F(ServerTest, GarbageNeverHurtsTheNextClient) {
  options.request_timeout_ms = 20;
  options.idle_timeout_ms = 20;
  start();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string pieces[] = {"GET ",
                                "POST ",
                                "/hello",
                                "/echo",
                                " HTTP/1.1\r\n",
                                "\r\n",
                                "Host: localhost\r\n",
                                ": ",
                                "Content-Length: 5\r\n",
                                "Transfer-Encoding: chunked\r\n",
                                "5\r\nhello\r\n",
                                "0\r\n\r\n"};
  for (int round = 0; round < 300; ++round) {
    TestSocket socket(server->port());
    std::string bytes;
    const unsigned length = random() % 30;
    for (unsigned i = 0; i < length; ++i) {
      if (random() % 4 == 0) {
        bytes += static_cast<char>(random());
      } else {
        bytes += pieces[random() % std::size(pieces)];
      }
    }
    socket.send(bytes);
    if (random() % 8 == 0) socket.read_some();
  }
  EXPECT_EQ(status_of(ask_and_close("/hello")), 200);
}

}  // namespace
}  // namespace llorch::net
