#include "net/server.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <future>
#include <mutex>

#include "base/assert.h"
#include "base/clock.h"
#include "base/descriptor_limit.h"
#include "base/log.h"
#include "base/log_limiter.h"
#include "net/h1/connection.h"
#include "net/http/router.h"
#include "net/http/url.h"
#include "net/live_set.h"

namespace llorch::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kUnsupportedMediaType = 415;
constexpr std::int64_t kRetryAfterMs = 1000;  // of a connection that has no room
constexpr auto kAcceptRetry = std::chrono::milliseconds(50);
// Anybody can be refused as often as they like; the log says enough of it.
constexpr std::int64_t kAuthFailureLinesMax = 10;
constexpr std::int64_t kAuthFailurePeriodMs = 10'000;
constexpr std::int64_t kGaveWayLinesMax = 1;
constexpr std::int64_t kGaveWayPeriodMs = 10'000;

base::Result<asio::ip::address> parse_bind_address(std::string_view text) {
  std::string host(text);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) return address;
  return base::fail(base::ErrorCode::kConfigInvalid,
                    fmt::format("the bind address {} is not an IP address; use 127.0.0.1, ::1 or an address of this "
                                "machine",
                                text));
}

// "192.0.2.7:80" -> "192.0.2.7"
std::string_view without_port(std::string_view endpoint) { return endpoint.substr(0, endpoint.rfind(':')); }

// The kernel takes no packet from elsewhere that comes from an address of this machine.
bool is_of_this_machine(const h1::ConnectionHost::Head& head) {
  return http::is_loopback(head.peer_address) || without_port(head.peer_address) == without_port(head.local_address);
}

http::Headers joined(http::Headers headers, const http::Headers& more) {
  for (const auto& [name, value] : more.fields()) headers.set(name, value);
  return headers;
}

base::Error listen_error(const error_code& error, const tcp::endpoint& endpoint, const ServerOptions& options) {
  const std::string what = fmt::format("{} cannot listen on {}", options.component, h1::text_of(endpoint));
  if (error == asio::error::address_in_use) {
    return base::Error{base::ErrorCode::kPortInUse,
                       fmt::format("{}: another process has the port; stop it (`ss -ltnp 'sport = :{}'` names it) or "
                                   "choose another port{}{}",
                                   what, endpoint.port(), options.bind_key.empty() ? "" : " in ", options.bind_key),
                       {}}
        .with("address", h1::text_of(endpoint));
  }
  // No fault of the configuration: DHCP and VPNs bring an address after the boot, and services try again.
  if (error == boost::system::errc::address_not_available) {
    return base::Error{base::ErrorCode::kIoError,
                       fmt::format("{}: no interface of this machine has the address yet; a service tries again until "
                                   "one has. If none will, bind 127.0.0.1 or an address that `ip address` lists",
                                   what),
                       {}};
  }
  if (error == asio::error::access_denied) {
    return base::Error{
        base::ErrorCode::kIoError, fmt::format("{}: not permitted; choose a port of 1024 or more", what), {}};
  }
  return base::Error{base::ErrorCode::kIoError, fmt::format("{}: {}", what, error.message()), {}};
}

// Idle clients leave descriptors for everything else: connections to workers and pools, files.
ServerOptions within_descriptors(ServerOptions options) {
  const std::size_t limit = base::descriptor_limit();
  options.connections_max = std::min(options.connections_max, limit - limit / 4);
  return options;
}

}  // namespace

class Server::Impl final : public h1::ConnectionHost, public std::enable_shared_from_this<Server::Impl> {
 public:
  Impl(IoRuntime& runtime, ServerOptions options)
      : runtime_(runtime),
        options_(within_descriptors(std::move(options))),
        auth_(std::make_shared<const http::AuthRules>(options_.auth)),
        budget_({.bytes_max = options_.request_bytes_in_flight_max, .requests_max = options_.requests_in_flight_max}),
        connections_(options_.connections_max),
        acceptor_(runtime.context().get_executor()),
        retry_(acceptor_.get_executor()) {}

  void route(std::string_view method, std::string_view pattern, Scope scope, Handler handler, HeadCheck check) {
    ASSERT(!endpoint_, "routes are added before start()");
    router_.add(method, pattern);
    routes_.push_back({std::string(method), std::string(pattern), scope});
    handlers_.push_back(std::move(handler));
    checks_.push_back(std::move(check));
  }

  const std::vector<RouteInfo>& routes() const { return routes_; }

  void set_auth(http::AuthRules rules) {
    auto next = std::make_shared<const http::AuthRules>(std::move(rules));
    const std::lock_guard lock(auth_mutex_);
    auth_.swap(next);
  }

  base::Result<> start() {
    ASSERT(!endpoint_, "start() called twice");
    if (auto allowed = check_options(options_); !allowed) {
      if (allowed.error().code == base::ErrorCode::kNonLoopbackWithoutToken) {
        base::log_event(base::LogLevel::kError, "startup_bind_refused", {}, "Refuses to listen beyond this machine.",
                        {{"bind", options_.bind_address}});
      }
      return allowed;
    }
    const tcp::endpoint wanted(TRY(parse_bind_address(options_.bind_address)), options_.port);
    error_code error;
    if (options_.listener_fd >= 0) {
      acceptor_.assign(wanted.protocol(), options_.listener_fd, error);
    } else {
      acceptor_.open(wanted.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(wanted, error);
    }
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      error_code ignored;
      acceptor_.close(ignored);
      return base::fail(listen_error(error, wanted, options_));
    }
    endpoint_ = acceptor_.local_endpoint(error);
    log_routes();
    asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->accept(); });
    return {};
  }

  const tcp::endpoint& endpoint() const {
    ASSERT(endpoint_.has_value(), "start() has not succeeded");
    return *endpoint_;
  }

  void stop(std::int64_t grace_ms) {
    ASSERT(!runtime_.on_io_thread());
    if (!endpoint_) return;
    if (runtime_.stopped()) {
      close_acceptor();
      for (const auto& connection : live_.close()) connection->close(CloseReason::kAborted);
      return;
    }
    // Shared, because set_value() may still be on its way out when wait() returns.
    const auto closed = std::make_shared<std::promise<void>>();
    asio::post(acceptor_.get_executor(), [self = shared_from_this(), closed] {
      self->close_acceptor();
      closed->set_value();
    });
    closed->get_future().wait();
    for (const auto& connection : live_.close()) connection->drain_soon();
    if (grace_ms > 0) live_.wait_empty_for(std::chrono::milliseconds(grace_ms));
    for (const auto& connection : live_.close()) connection->abort_soon();
    live_.wait_empty();
  }

  // What handlers captured must not outlive the server's owner.
  void drop_handlers() {
    handlers_.clear();
    checks_.clear();
  }

  const ServerOptions& options() const override { return options_; }

  tl::expected<Admitted, Refused> admit(const Head& head) override {
    runtime_.count_request();
    const auto refused = [](base::Error error, http::Headers headers = {}) {
      return tl::unexpected(Refused{std::move(error), std::move(headers)});
    };
    if (!has_room(head)) {
      return refused(base::Error{
          base::ErrorCode::kServerBusy,
          fmt::format("all {} connections of this server have a request; try again shortly", options_.connections_max),
          {}}.with("retry_after_ms", kRetryAfterMs));
    }
    const auto auth = rules();
    const auto page = http::check_browser(options_.browsers,
                                          {.headers = head.headers,
                                           .local_address = head.local_address,
                                           .token_needed = !auth->credentials.empty() && !auth->optional_on_loopback});
    if (!page) return refused(page.error());
    const http::Headers cors = *page ? http::cors_headers(**page) : http::Headers{};
    auto target = http::parse_target(head.target);
    if (target && *page && http::is_preflight(head.method, *head.headers)) return preflight(std::move(*target));
    const http::Gateway* gateway = http::gateway_of(options_.gateways, head.target);
    const bool is_open = target && !head.headers->get("Authorization") && is_open_route(head.method, *target);
    auto principal = is_open ? base::Result<http::Principal>(http::nobody())
                             : http::authorize(*auth, {.headers = head.headers,
                                                       .peer_address = head.peer_address,
                                                       .always_sends_token = gateway && gateway->always_sends_token,
                                                       .takes_api_key = gateway && gateway->takes_api_key});
    if (!is_open) log_auth(head, *auth, principal);
    if (!principal) return refused(principal.error(), cors);
    if (!target) return refused(target.error(), cors);
    auto match = find_route(head.method, *target);
    if (!match) return refused(match.error().error, joined(std::move(match.error().headers), cors));
    if (auto permitted = http::check_scope(routes_[match->route].scope, *principal); !permitted) {
      return refused(permitted.error(), cors);
    }
    if (auto shared = check_share(*principal); !is_open && !shared) return refused(std::move(shared).error(), cors);
    const auto body_type = gateway != nullptr && gateway->takes_forms ? http::BodyType::kForm : http::BodyType::kJson;
    if (auto typed = http::check_media_type(*head.headers, body_type); !typed) {
      return tl::unexpected(Refused{std::move(typed).error(), cors, kUnsupportedMediaType});
    }
    if (const HeadCheck& check = checks_[match->route]) {
      if (auto served = check(*principal); !served) return refused(std::move(served).error(), cors);
    }
    return Admitted{.handler = &handlers_[match->route],
                    .path_params = std::move(match->params),
                    .query_params = std::move(target->query),
                    .path = std::move(target->path),
                    .principal = std::move(*principal),
                    .headers = cors,
                    .is_authorised = !is_open};
  }

  h1::RequestBudget& budget() override { return budget_; }
  h1::RequestBudget& answers() override { return answers_; }
  h1::ChunkPool& chunks() override { return chunks_; }
  base::LogLimiter& cut_answer_lines() override { return cut_answers_; }
  void request_began(h1::Connection& connection, const std::string& account) override {
    connections_.request_began(connection, account);
  }
  void request_ended(h1::Connection& connection) override { connections_.request_ended(connection); }
  void closed(h1::Connection& connection) override {
    connections_.remove(connection);
    live_.remove(&connection);
  }

 private:
  std::shared_ptr<const http::AuthRules> rules() const {
    const std::lock_guard lock(auth_mutex_);
    return auth_;
  }

  bool has_room(const Head& head) const {
    const h1::ConnectionLimit::Room room = connections_.room();
    if (room == h1::ConnectionLimit::Room::kForThisMachine) return is_of_this_machine(head);
    return room == h1::ConnectionLimit::Room::kForAll;
  }

  // Operators and nodes keep the service going; what a tenant holds, and a reader, is no reason to keep others out.
  base::Result<> check_share(const http::Principal& caller) const {
    if (caller.role == http::Role::kOperator || caller.role == http::Role::kNode) return {};
    const h1::ConnectionLimit::Share share = connections_.share_of(caller.account);
    if (share.has_room()) return {};
    return base::fail(base::Error{
        base::ErrorCode::kQuotaExceeded,
        fmt::format("requests and streams of this caller keep {} connections, and {} is what other callers "
                    "leave to it (this server has {} in all); end some, or try again in {} ms",
                    share.busy, share.busy_max, options_.connections_max, kRetryAfterMs),
        {}}.with("connections", static_cast<std::int64_t>(share.busy))
                          .with("connections_max", static_cast<std::int64_t>(share.busy_max))
                          .with("retry_after_ms", kRetryAfterMs));
  }

  bool is_open_route(std::string_view method, const http::Target& target) const {
    const http::Router::Match match = router_.match(method, target.segments);
    return match.outcome == http::Router::Outcome::kFound && routes_[match.route].scope == Scope::kOpen;
  }

  tl::expected<http::Router::Match, Refused> find_route(std::string_view method, const http::Target& target) const {
    http::Router::Match match = router_.match(method, target.segments);
    if (match.outcome == http::Router::Outcome::kNoPath) {
      return tl::unexpected(Refused{
          base::Error{base::ErrorCode::kNotFound, "nothing is served at this path", {}}.with("path", target.path)});
    }
    if (match.outcome == http::Router::Outcome::kNoMethod) {
      return tl::unexpected(
          Refused{base::Error{base::ErrorCode::kMethodNotAllowed,
                              fmt::format("this path does not take this method; use {}", match.allowed),
                              {}}
                      .with("allow", match.allowed),
                  {{"Allow", match.allowed}}});
    }
    return match;
  }

  // A browser asks for a page of a listed site. Whether the request may be made is its caller's to show, who has a token then.
  Admitted preflight(http::Target target) const {
    return Admitted{.handler = &answer_preflight_, .path = std::move(target.path)};
  }

  void log_routes() const {
    std::string text;
    for (const RouteInfo& route : routes_) {
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", route.method, route.pattern, name_of(route.scope));
    }
    base::log_event(base::LogLevel::kInfo, "http.routes", {}, "What is served, and for whom.",
                    {{"listener", options_.component}, {"routes", text}});
  }

  void log_auth(const Head& head, const http::AuthRules& auth, const base::Result<http::Principal>& principal) {
    if (principal && auth.credentials.empty()) return;  // everybody is let in
    if (principal) {
      base::log_event(base::LogLevel::kDebug, "auth_success", *head.correlation_id, "A request is authorised.",
                      {{"identity", principal->identity}, {"peer", head.peer_address}});
    } else if (const auto left_out = auth_failures_.admit(base::SystemClock().now().mono_ms)) {
      base::log_event(
          base::LogLevel::kWarn, "auth_failed", *head.correlation_id, "A request is not authorised.",
          {{"code", principal.error().name()}, {"peer", head.peer_address}, {"left_out_before", *left_out}});
    }
  }

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](const error_code& error, TcpSocket socket) {
      self->accepted(error, std::move(socket));
    });
  }

  void accepted(const error_code& error, TcpSocket socket) {
    if (!acceptor_.is_open()) return;
    if (error == asio::error::no_descriptors || error == boost::system::errc::too_many_files_open_in_system ||
        error == asio::error::no_buffer_space || error == asio::error::no_memory) {
      base::log_event(base::LogLevel::kWarn, "http.accept_failed", {}, "Cannot accept a connection now.",
                      {{"error", error.message()}});
      retry_.expires_after(kAcceptRetry);
      retry_.async_wait([self = shared_from_this()](const error_code& cancelled) {
        if (!cancelled && self->acceptor_.is_open()) self->accept();
      });
      return;
    }
    const Acceptance next{*this};
    if (error) return;
    make_room();
    auto connection = std::make_shared<h1::Connection>(std::move(socket), shared_from_this());
    if (!live_.add(connection)) return;
    connections_.add(*connection);
    connection->start();
  }
  // For one more connection.
  void make_room() {
    while (h1::ConnectionLimit::Member* const member = connections_.gives_way()) {
      const auto connection = static_cast<h1::Connection*>(member)->shared_from_this();
      if (connection->is_streaming()) {  // of an open route: its handler knows for whom
        connections_.request_began(*connection, http::nobody().account);
        continue;
      }
      if (const auto left_out = gave_way_.admit(base::SystemClock().now().mono_ms)) {
        base::log_event(base::LogLevel::kWarn, "http.connections_full", {},
                        "A connection that waited for a request is closed for a new one; there are no more.",
                        {{"connections_max", options_.connections_max}, {"left_out_before", *left_out}});
      }
      connection->close(CloseReason::kAborted);
    }
  }
  // Also where there is no memory for this one.
  struct Acceptance {
    Impl& server;
    ~Acceptance() { server.accept(); }
  };

  void close_acceptor() {
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

  IoRuntime& runtime_;
  const ServerOptions options_;
  mutable std::mutex auth_mutex_;
  std::shared_ptr<const http::AuthRules> auth_;
  h1::RequestBudget budget_;
  h1::RequestBudget answers_{{.bytes_max = options_.request_bytes_in_flight_max}};
  h1::ChunkPool chunks_;
  http::Router router_;
  std::vector<RouteInfo> routes_;
  const Handler answer_preflight_ = [this](const Request& request, const ExchangePtr& exchange) {
    const auto target = http::parse_target(request.path);
    const std::string methods = target ? router_.match("OPTIONS", target->segments).allowed : "";
    const std::string_view wanted = request.headers.get("Access-Control-Request-Headers").value_or("");
    exchange->respond({204, http::preflight_headers(*request.headers.get("Origin"), methods, wanted), {}});
  };
  std::vector<Handler> handlers_;
  std::vector<HeadCheck> checks_;
  h1::ConnectionLimit connections_;
  TcpAcceptor acceptor_;
  SteadyTimer retry_;
  std::optional<tcp::endpoint> endpoint_;
  LiveSet<h1::Connection> live_;
  base::LogLimiter auth_failures_{kAuthFailureLinesMax, kAuthFailurePeriodMs};  // I/O thread
  base::LogLimiter gave_way_{kGaveWayLinesMax, kGaveWayPeriodMs};               // I/O thread
  base::LogLimiter cut_answers_{10, 10'000};                                    // I/O thread
};

base::Result<> check_options(const ServerOptions& options) {
  TRY(http::validate_bind(options.bind_address, !options.auth.credentials.empty()));
  TRY(http::validate_rules(options.auth));
  TRY(parse_bind_address(options.bind_address));
  return {};
}

Server::Server(IoRuntime& runtime, ServerOptions options)
    : impl_(std::make_shared<Impl>(runtime, std::move(options))) {}

Server::~Server() {
  stop(0);
  impl_->drop_handlers();
}

void Server::route(std::string_view method, std::string_view pattern, Scope scope, Handler handler, HeadCheck check) {
  impl_->route(method, pattern, scope, std::move(handler), std::move(check));
}
const std::vector<RouteInfo>& Server::routes() const { return impl_->routes(); }
void Server::set_auth(http::AuthRules rules) { impl_->set_auth(std::move(rules)); }
base::Result<> Server::start() { return impl_->start(); }
std::uint16_t Server::port() const { return impl_->endpoint().port(); }
std::string Server::url() const { return "http://" + h1::text_of(impl_->endpoint()); }
void Server::stop(std::int64_t grace_ms) { impl_->stop(grace_ms); }

}  // namespace llorch::net
