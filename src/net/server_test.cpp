#include "net/server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>
#include <random>
#include <thread>

#include "net/testing/server_fixture.h"

namespace llorch::net {
namespace {

using base::ErrorCode;

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

// What connects before the server starts waits for it.
TEST_F(ServerTest, ServesASocketThatListensAlready) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0), on = 1;
  ASSERT_EQ(::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
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
