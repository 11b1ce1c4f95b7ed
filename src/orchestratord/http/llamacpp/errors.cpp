#include "orchestratord/http/llamacpp/errors.h"

#include <fmt/format.h>

#include <string_view>

#include "base/json_text.h"
#include "net/http/error_response.h"
#include "orchestratord/http/chat/context_excess.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 503: return "unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  net::http::Response response = net::http::error_response(error, correlation_id);
  // What the envelope settles, such as a 429's delay and what is redacted, is settled here as well.
  const wire::ErrorBody body = wire::error_body(net::http::error_of(response), correlation_id);
  const int status = base::info(error.code).http_status;
  response.body = fmt::format(R"({{"error":{{"code":{},"message":)", status);
  const auto excess = chat::context_excess(body);
  if (excess && excess->prompt_tokens) {
    base::append_json_string(response.body, "the request exceeds the available context size. " + body.message);
    response.body += fmt::format(R"(,"type":"exceed_context_size_error","n_prompt_tokens":{},"n_ctx":{})",
                                 *excess->prompt_tokens, excess->context_tokens);
  } else {
    base::append_json_string(response.body, body.message);
    response.body.append(R"(,"type":")").append(type_of(status)).append("\"");
  }
  response.body.append(R"(,"llorch":)").append(wire::encode(body)).append("}}");
  return response;
}

}  // namespace llorch::orchestratord::http::llamacpp
