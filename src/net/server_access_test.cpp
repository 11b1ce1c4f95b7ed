// Who may ask for what: tokens, roles, pages of other sites.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "base/log.h"
#include "net/testing/server_fixture.h"

namespace llorch::net {
namespace {

using base::ErrorCode;

const std::string kToken(40, 't');

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

// Other credentials count from the next request on, of connections that are there as well; what is under way goes on.
TEST_F(ServerTest, OtherCredentialsCountFromTheNextRequestOn) {
  const std::string old_token(40, 'o'), new_token(40, 'n');
  const auto bearer = [](const std::string& token) { return "Authorization: Bearer " + token + "\r\n"; };
  options.auth.credentials = {http::make_credential(old_token, http::Role::kTenant, "research").value()};
  start();
  TestSocket streaming(server->port());
  streaming.send(get("/keep", bearer(old_token)));
  const ExchangePtr exchange = wait_kept();
  ASSERT_TRUE(exchange->start_stream(200, {}));
  TestSocket idle(server->port());
  idle.send(get("/hello", bearer(old_token)));
  EXPECT_EQ(status_of(idle.read_until("hello")), 200);
  server->set_auth({.credentials = {http::make_credential(new_token, http::Role::kTenant, "research").value()}});
  idle.send(get("/hello", bearer(old_token) + "Connection: close\r\n"));
  const std::string refused = idle.read_all();
  EXPECT_EQ(status_of(refused), 401);
  EXPECT_EQ(code_of(refused), "BAD_TOKEN");
  EXPECT_EQ(status_of(ask_and_close("/hello", bearer(new_token))), 200);
  EXPECT_TRUE(exchange->write("the rest"));
  EXPECT_TRUE(exchange->end());
  EXPECT_NE(streaming.read_until("the rest").find("the rest"), std::string::npos);
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

// A program's window asks first, without its token, and then shows it. Where callers of this machine need none, nothing but the list
// says which program may call.
TEST_F(ServerTest, ProgramsAreLetInWhereEverybodyShowsAToken) {
  options.auth.credentials = {http::make_credential(kToken, http::Role::kOperator).value()};
  options.browsers.cors_key = "some.origins";
  start();
  const std::string program = "Origin: tauri://localhost\r\nSec-Fetch-Site: cross-site\r\n";
  const std::string asks = "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n" + program +
                           "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
  const std::string good = "Authorization: Bearer " + kToken + "\r\n";
  EXPECT_EQ(status_of(ask(asks)), 204);
  const std::string served = ask_and_close("/hello", program + good);
  EXPECT_EQ(status_of(served), 200);
  EXPECT_NE(served.find("Access-Control-Allow-Origin: tauri://localhost\r\n"), std::string::npos) << served;
  EXPECT_EQ(code_of(ask_and_close("/hello", program)), "MISSING_TOKEN");
  EXPECT_EQ(status_of(ask_and_close("/hello", good + "Origin: null\r\n")), 403);
  EXPECT_EQ(status_of(ask_and_close("/hello", good + "Origin: http://tauri.localhost\r\n")), 403);
  server->stop(0);
  options.auth.optional_on_loopback = true;
  start();
  EXPECT_EQ(status_of(ask(asks)), 403);
  const std::string refused = ask_and_close("/hello", program);
  EXPECT_EQ(code_of(refused), "FORBIDDEN");
  EXPECT_NE(refused.find("to some.origins"), std::string::npos) << refused;
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
  Server second(runtime, {.component = "second", .bind_key = "some.bind", .port = server->port()});
  const auto taken = second.start();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kPortInUse);
  EXPECT_NE(taken.error().message.find("second cannot listen on 127.0.0.1:" + std::to_string(server->port())),
            std::string::npos);
  EXPECT_NE(taken.error().message.find("choose another port in some.bind"), std::string::npos) << taken.error().message;
}

}  // namespace
}  // namespace llorch::net
