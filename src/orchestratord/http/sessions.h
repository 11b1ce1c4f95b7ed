#pragma once
// /v2/sessions: budgets and turns of a client's jobs, made, looked at and ended.
#include "orchestratord/http/context.h"
#include "wire/session.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class Sessions {
 public:
  explicit Sessions(const Context& context) : context_(context) {}

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void remove(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  void answer_view(const net::http::Principal& caller, const net::ExchangePtr& exchange, core::AnswerSession answer);

  const Context& context_;
};

// X-Budget-Tokens-Remaining, X-Budget-Time-Remaining-Ms, X-Budget-Cost-Remaining, of the budgets there are.
void add_budget_headers(const wire::BudgetRemaining& left, net::http::Headers& headers);

}  // namespace llorch::orchestratord::http
