#include "sim/world/api.h"

#include <utility>

#include "net/http/error_response.h"
#include "sim/world/orchestrator.h"
#include "sim/world/world.h"

namespace llorch::sim {
namespace {

using base::ErrorCode;

base::Error error_of(CallError error) {
  switch (error) {
    case CallError::kUnreachable: return {ErrorCode::kUnreachable, "nobody listens there", {}};
    case CallError::kTimeout: return {ErrorCode::kTimeout, "no answer in time", {}};
    case CallError::kBroken: break;
  }
  return {ErrorCode::kIoError, "the connection broke", {}};
}

}  // namespace

void ask_api(World& world, Process& from, ApiCall wanted, std::function<void(const ApiAnswer&)> done) {
  const std::int64_t timeout_ms = wanted.timeout_ms;
  call<net::Response>(
      world.network, from, world.orchestrator_process, timeout_ms,
      [&world, wanted = std::move(wanted)](Reply<net::Response> reply) {
        net::Request request{.method = wanted.method, .path = wanted.path, .body = wanted.body};
        request.peer.principal = wanted.caller;
        world.orchestrator->serve(std::move(request), std::move(reply));
      },
      [done = std::move(done)](CallResult<net::Response> response) {
        if (!response) return done(base::fail(error_of(response.error())));
        if (response->status >= 400) return done(base::fail(net::http::error_of(*response)));
        done(std::move(response->body));
      });
}

bool is_unanswered(const base::Error& error) {
  return error.code == ErrorCode::kUnreachable || error.code == ErrorCode::kTimeout ||
         error.code == ErrorCode::kIoError;
}

std::int64_t retry_after_ms(const base::Error& error) {
  for (const auto& [key, value] : error.details) {
    const auto* number = std::get_if<std::int64_t>(&value);
    if (key == "retry_after_ms" && number != nullptr) return *number;
  }
  return 0;
}

bool ApiExchange::respond(net::Response response) {
  if (reply_ == nullptr) return false;
  std::exchange(reply_, nullptr)(std::move(response));
  return true;
}

bool ApiExchange::respond_error(const base::Error& error) { return respond(net::http::error_response(error, {})); }

}  // namespace llorch::sim
