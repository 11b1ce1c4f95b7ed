#include "pool_managerd/registration/orchestrator_link.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "net/http/url.h"
#include "wire/json.h"

namespace llorch::pool_managerd::registration {
namespace {

// One request; also the bound on deregistration (POOLREG-18050).
constexpr std::int64_t kRequestTimeoutMs = 5'000;

template <class Reply>
base::Result<Reply> reply_of(base::Result<std::string> body) {
  if (!body) return base::fail(std::move(body).error());
  return wire::decode<Reply>(*body);
}

base::Error refusal(base::Error error, const std::string& pool_id) {
  if (error.code != base::ErrorCode::kBadToken) return error;
  error.message = fmt::format(
      "orchestratord does not know this pool's credential: it was taken back or made anew. Run `llorch pool pair {}` "
      "there, "
      "write the line it prints into pool-managerd.credential_file (mode 0600) and start pool-managerd again",
      pool_id);
  return error;
}

}  // namespace

OrchestratorLink::OrchestratorLink(OrchestratorLinkOptions options, net::Client& client, const base::Clock& clock,
                                   Post post, State state)
    : options_(std::move(options)),
      client_(client),
      clock_(clock),
      post_(std::move(post)),
      state_(std::move(state)),
      core_(options_.registration) {
  while (options_.url.ends_with('/')) options_.url.pop_back();
}

void OrchestratorLink::start() {
  if (!options_.url.empty()) step(Started{});
}
void OrchestratorLink::report(Report report) { step(Queue{std::move(report)}); }
void OrchestratorLink::changed() { step(Changed{}); }
void OrchestratorLink::heard() { step(Heard{}); }
void OrchestratorLink::leave() { step(Leave{}); }
void OrchestratorLink::tick() { step(Tick{}); }

void OrchestratorLink::step(const Event& event) {
  std::vector<Command> commands;
  core_.step(event, clock_.now(), commands);
  for (const Command& command : commands) {
    std::visit([&](const auto& c) { execute(c); }, command);
  }
}

void OrchestratorLink::send(std::string method, std::string path, std::string body,
                            std::function<Event(base::Result<std::string>)> to_event) {
  net::ClientRequest request;
  request.method = std::move(method);
  request.url = options_.url + path;
  request.bearer = options_.token;
  if (!body.empty()) request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  request.timeout_ms = kRequestTimeoutMs;
  client_.request(std::move(request), [this, to_event = std::move(to_event)](base::Result<net::Response> response) {
    base::Result<std::string> result = std::string();
    if (!response) {
      result = base::fail(std::move(response).error());
    } else if (response->status >= 400) {
      result = base::fail(refusal(net::http::error_of(*response), options_.pool_id));
    } else {
      result = std::move(response->body);
    }
    post_([this, to_event, result = std::move(result)]() mutable { step(to_event(std::move(result))); });
  });
}

void OrchestratorLink::execute(const SendRegister&) {
  send("POST", "/v2/pools/register", wire::encode(state_()), [](base::Result<std::string> body) -> Event {
    return RegisterEnded{reply_of<wire::RegisterReply>(std::move(body))};
  });
}

void OrchestratorLink::execute(const SendHeartbeat&) {
  send("POST", "/v2/pools/" + net::http::percent_encode(options_.pool_id) + "/heartbeat", wire::encode(state_()),
       [](base::Result<std::string> body) -> Event {
         return HeartbeatEnded{reply_of<wire::HeartbeatReply>(std::move(body))};
       });
}

void OrchestratorLink::execute(const SendReport& command) {
  const bool ready = std::holds_alternative<wire::WorkerReady>(command.report);
  send("POST", ready ? "/v2/internal/workers/ready" : "/v2/internal/workers/failed",
       std::visit([](const auto& report) { return wire::encode(report); }, command.report),
       [](base::Result<std::string> body) -> Event {
         if (!body) return ReportEnded{base::fail(std::move(body).error())};
         return ReportEnded{};
       });
}

void OrchestratorLink::execute(const SendDeregister&) {
  send("DELETE", "/v2/pools/" + net::http::percent_encode(options_.pool_id), "",
       [](base::Result<std::string>) -> Event { return DeregisterEnded{}; });
}

void OrchestratorLink::execute(const ConnectionChanged& command) {
  if (command.connected) {
    base::log_event(base::LogLevel::kInfo, "pool_registered", {}, "The pool is registered with orchestratord.",
                    {{"pool_id", options_.pool_id}, {"orchestrator_url", options_.url}});
  } else {
    base::log_event(base::LogLevel::kWarn, "pool_offline", {},
                    "Orchestratord does not answer as expected; workers keep running and the pool registers again.",
                    {{"pool_id", options_.pool_id},
                     {"orchestrator_url", options_.url},
                     {"reason", command.reason},
                     {"retry_in_ms", command.retry_in_ms}});
  }
}

}  // namespace llorch::pool_managerd::registration
