#include "orchestratord/http/sessions.h"

#include <fmt/core.h>

#include "base/utf8.h"
#include "orchestratord/http/tenancy.h"
#include "wire/json.h"

namespace llorch::orchestratord::http {
namespace {

using net::http::Principal;

// As it is kept. The operator names a session of a tenant as it is listed: "<tenant>:<id>".
base::Result<base::SessionId> session_id_of(const net::Request& request) {
  const Principal& caller = request.peer.principal;
  const std::string& text = request.path_param("id");
  const bool is_operator = caller.role == net::http::Role::kOperator;
  if (is_operator ? is_valid_kept_id(text) : base::is_valid_identifier(text)) {
    return base::SessionId(kept_id(caller, text));
  }
  return base::fail(base::ErrorCode::kNotFound,
                    "no session has this id: session ids are 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
}

base::Result<wire::CreateSessionRequest> parse_request(const std::string& body) {
  if (body.empty()) return wire::CreateSessionRequest{};
  if (!base::is_valid_utf8(body)) {
    return base::fail(base::Error{base::ErrorCode::kInvalidParams, "the body is not valid UTF-8", {}}.with(
        "reason", std::string("utf8")));
  }
  return wire::decode<wire::CreateSessionRequest>(body, wire::UnknownKeys::kRefuse);
}

}  // namespace

void add_budget_headers(const wire::BudgetRemaining& left, net::http::Headers& headers) {
  if (left.tokens_budget_remaining) {
    headers.set("X-Budget-Tokens-Remaining", std::to_string(*left.tokens_budget_remaining));
  }
  if (left.time_budget_remaining_ms) {
    headers.set("X-Budget-Time-Remaining-Ms", std::to_string(*left.time_budget_remaining_ms));
  }
  if (left.cost_budget_remaining) {
    headers.set("X-Budget-Cost-Remaining", fmt::format("{:.9f}", *left.cost_budget_remaining));
  }
}

void Sessions::create(const net::Request& request, const net::ExchangePtr& exchange) {
  auto parsed = parse_request(request.body);
  if (!parsed) return refuse(context_, exchange, std::move(parsed).error());
  const Principal& caller = request.peer.principal;
  parsed->session_id = kept_id(caller, parsed->session_id ? *parsed->session_id : base::uuid_v4(*context_.entropy));
  context_.core->ask<core::AnswerSession>(
      core::OpenSession{.request = {}, .session = std::move(*parsed)},
      [this, caller, exchange](core::AnswerSession answer) { answer_view(caller, exchange, std::move(answer)); });
}

void Sessions::answer_view(const Principal& caller, const net::ExchangePtr& exchange, core::AnswerSession answer) {
  if (!answer.result) return refuse(context_, exchange, shown(caller, std::move(answer.result).error()));
  answer.result->session_id = shown_id(caller, answer.result->session_id);
  exchange->respond(net::http::json_response(answer.created ? 201 : 200, wire::encode(*answer.result)));
}

void Sessions::list(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQuerySessions>(
      core::QuerySessions{.request = {}, .prefix = kept_id(request.peer.principal, "")},
      [this, caller = request.peer.principal, exchange](core::AnswerQuerySessions answer) {
        context_.request_executor->post([caller, exchange, sessions = std::move(answer.sessions)]() mutable {
          wire::SessionList out;
          for (wire::SessionView& session : sessions) {
            if (!owns_id(caller, session.session_id)) continue;
            session.session_id = shown_id(caller, session.session_id);
            out.sessions.push_back(std::move(session));
          }
          exchange->respond(net::http::json_response(200, wire::encode(out)));
        });
      });
}

void Sessions::show(const net::Request& request, const net::ExchangePtr& exchange) {
  auto id = session_id_of(request);
  if (!id) return refuse(context_, exchange, std::move(id).error());
  context_.core->ask<core::AnswerSession>(
      core::QuerySession{.request = {}, .session_id = std::move(*id)},
      [this, caller = request.peer.principal, exchange](core::AnswerSession answer) {
        answer_view(caller, exchange, std::move(answer));
      });
}

void Sessions::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  auto id = session_id_of(request);
  if (!id) return refuse(context_, exchange, std::move(id).error());
  context_.core->ask<core::AnswerSession>(
      core::CloseSession{.request = {}, .session_id = std::move(*id)},
      [this, caller = request.peer.principal, exchange](core::AnswerSession answer) {
        if (!answer.result) return refuse(context_, exchange, shown(caller, std::move(answer.result).error()));
        const wire::SessionDeleted out{.session_id = shown_id(caller, answer.result->session_id)};
        exchange->respond(net::http::json_response(200, wire::encode(out)));
      });
}

}  // namespace llorch::orchestratord::http
