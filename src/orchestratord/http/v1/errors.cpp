#include "orchestratord/http/v1/errors.h"

#include "net/http/error_response.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::v1 {

net::http::Response error_response(const base::Error& error, const base::CorrelationId& correlation_id) {
  net::http::Response response = net::http::error_response(error, correlation_id);
  // What the envelope settles, such as a 429's delay and what is redacted, is settled here as well.
  response.body = wire::encode(wire::error_body(net::http::error_of(response), correlation_id));
  return response;
}

}  // namespace llorch::orchestratord::http::v1
