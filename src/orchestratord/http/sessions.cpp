#include "orchestratord/api/sessions.h"

#include <fmt/core.h>

#include "base/utf8.h"
#include "contract/json.h"
#include "orchestratord/api/tenancy.h"

namespace llorch::orchestratord::api {
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

base::Result<contract::CreateSessionRequest> parse_request(const std::string& body) {
  if (body.empty()) return contract::CreateSessionRequest{};
  if (!base::is_valid_utf8(body)) {
    return base::fail(base::Error{base::ErrorCode::kInvalidParams, "the body is not valid UTF-8", {}}.with(
        "reason", std::string("utf8")));
  }
  return contract::decode<contract::CreateSessionRequest>(body, contract::UnknownKeys::kRefuse);
}

}  // namespace

void add_budget_headers(const contract::BudgetRemaining& left, net::http::Headers& headers) {
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
  context_.brain->ask<brain::AnswerSession>(
      brain::OpenSession{.request = {}, .session = std::move(*parsed)},
      [this, caller, exchange](brain::AnswerSession answer) { answer_view(caller, exchange, std::move(answer)); });
}

void Sessions::answer_view(const Principal& caller, const net::ExchangePtr& exchange, brain::AnswerSession answer) {
  if (!answer.result) return refuse(context_, exchange, shown(caller, std::move(answer.result).error()));
  answer.result->session_id = shown_id(caller, answer.result->session_id);
  exchange->respond(net::http::json_response(answer.created ? 201 : 200, contract::encode(*answer.result)));
}

void Sessions::list(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.brain->ask<brain::AnswerQuerySessions>(
      brain::QuerySessions{}, [caller = request.peer.principal, exchange](brain::AnswerQuerySessions answer) {
        contract::SessionList out;
        for (contract::SessionView& session : answer.sessions) {
          if (!owns_id(caller, session.session_id)) continue;
          session.session_id = shown_id(caller, session.session_id);
          out.sessions.push_back(std::move(session));
        }
        exchange->respond(net::http::json_response(200, contract::encode(out)));
      });
}

void Sessions::show(const net::Request& request, const net::ExchangePtr& exchange) {
  auto id = session_id_of(request);
  if (!id) return refuse(context_, exchange, std::move(id).error());
  context_.brain->ask<brain::AnswerSession>(
      brain::QuerySession{.request = {}, .session_id = std::move(*id)},
      [this, caller = request.peer.principal, exchange](brain::AnswerSession answer) {
        answer_view(caller, exchange, std::move(answer));
      });
}

void Sessions::remove(const net::Request& request, const net::ExchangePtr& exchange) {
  auto id = session_id_of(request);
  if (!id) return refuse(context_, exchange, std::move(id).error());
  context_.brain->ask<brain::AnswerSession>(
      brain::CloseSession{.request = {}, .session_id = std::move(*id)},
      [this, caller = request.peer.principal, exchange](brain::AnswerSession answer) {
        if (!answer.result) return refuse(context_, exchange, shown(caller, std::move(answer.result).error()));
        const contract::SessionDeleted out{.session_id = shown_id(caller, answer.result->session_id)};
        exchange->respond(net::http::json_response(200, contract::encode(out)));
      });
}

}  // namespace llorch::orchestratord::api
