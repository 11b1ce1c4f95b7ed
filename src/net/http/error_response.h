#pragma once
// The error envelope (SYS-5.5.1, AAPI-15060) and the 429 contract (ORCH-2007).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "net/http/message.h"

namespace llorch::net::http {

// {"error":{"code","message","details"?,"retriable","retry_after_ms"?,"policy_label"?,"correlation_id"}} with the HTTP
// status of the error table. The details `retry_after_ms` (integer) and `policy_label` (string) move up into the error
// object. A retry_after_ms sets Retry-After (whole seconds, at least 1) and X-Backoff-Ms; a 429 always has all of them
// (retry_after_ms 1000 and policy_label "reject" if not given). Secrets in the message are redacted.
Response error_response(const base::Error& error, const base::CorrelationId& correlation_id);

// Writes an error as the clients of some paths expect it; the same status and headers as error_response().
using ErrorWriter = Response (*)(const base::Error& error, const base::CorrelationId& correlation_id);
// Paths that begin with `prefix` ("/v1/"), whose clients were written for another API.
struct Gateway {
  std::string prefix;
  ErrorWriter write_error = error_response;
  // Its clients send a token whether or not they were given one: where none is configured, theirs is not looked at.
  bool always_sends_token = false;
  // Its clients send their token in the header X-Api-Key, which is read where Authorization is absent.
  bool takes_api_key = false;
  // Bodies may be forms (multipart/form-data), as files are sent. A page of another site is refused for its Origin all the same.
  bool takes_forms = false;
};
// The first one that `target` (path, maybe a query) begins with; null: none.
const Gateway* gateway_of(const std::vector<Gateway>& gateways, std::string_view target);

// The reverse, for clients: the error of an envelope. A body that is no envelope, or names an unknown code, becomes
// INTERNAL with the status and the code's name in the message. REQUIRES response.status >= 400.
base::Error error_of(const Response& response);
// The same of an envelope that error_response() wrote: it names a correlation id. Nothing: another program answered. REQUIRES as above.
std::optional<base::Error> own_error_of(const Response& response);

}  // namespace llorch::net::http
