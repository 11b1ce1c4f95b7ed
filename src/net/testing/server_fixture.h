#pragma once
// A server with a few routes, and connections of a test's own to it.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/server.h"
#include "net/test_socket.h"

namespace llorch::net {

inline std::string get(std::string_view target, std::string_view extra = "") {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(extra) + "\r\n";
}
inline int status_of(const std::string& response) {
  return response.size() > 12 ? std::stoi(response.substr(9, 3)) : 0;
}
inline std::string code_of(const std::string& response) {
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

}  // namespace llorch::net
