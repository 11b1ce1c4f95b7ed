#include "orchestratord/http/ollama/errors.h"

#include "base/json_text.h"
#include "net/http/error_response.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::ollama {

void append_error(std::string& out, const wire::ErrorBody& error) {
  out += R"({"error":)";
  base::append_json_string(out, error.message);
  out.append(R"(,"llorch":)").append(wire::encode(error)).append("}");
}

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  net::http::Response response = net::http::error_response(error, correlation_id);
  // What the envelope settles, such as a 429's delay and what is redacted, is settled here as well.
  const wire::ErrorBody body = wire::error_body(net::http::error_of(response), correlation_id);
  response.body.clear();
  append_error(response.body, body);
  return response;
}

}  // namespace llorch::orchestratord::http::ollama
