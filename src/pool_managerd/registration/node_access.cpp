#include "pool_managerd/registration/node_access.h"

#include <fmt/core.h>

#include "base/log.h"
#include "net/http/url.h"
#include "pool_managerd/registration/addresses.h"

namespace llorch::pool_managerd::registration {
namespace {

using base::ErrorCode;

base::Result<> check_bind(const NodeAccessInput& input, bool paired, const std::filesystem::path& file) {
  if (paired || !input.api_token.empty() || net::http::is_loopback(input.bind_address)) return {};
  return base::fail(base::Error{
      ErrorCode::kNonLoopbackWithoutToken,
      fmt::format(
          "binding {} would open this pool manager to other machines before it is paired; run `llorch pool pair {}` "
          "where orchestratord runs and write the line it prints into {} (mode 0600), or bind 127.0.0.1",
          input.bind_address, input.config.pool_managerd.pool_id, file.string()),
      {}}.with("bind", input.bind_address));
}

base::Result<net::http::AuthRules> auth_rules(const NodeAccessInput& input, const config::PoolCredential& credential) {
  using net::http::make_credential;
  using net::http::Role;
  // On one machine nobody needs a token until there is one.
  const bool open = input.api_token.empty() && net::http::is_loopback(input.bind_address);
  net::http::AuthRules rules{.optional_on_loopback = open || input.config.auth.optional_on_loopback};
  rules.credentials.push_back(TRY(make_credential(credential.control_token(), Role::kOperator)));
  rules.credentials.push_back(TRY(make_credential(credential.worker_token(), Role::kNode, credential.pool_id().value)));
  if (!input.api_token.empty()) rules.credentials.push_back(TRY(make_credential(input.api_token, Role::kOperator)));
  for (const std::string& token : input.reader_tokens)
    rules.credentials.push_back(TRY(make_credential(token, Role::kReader)));
  return rules;
}

}  // namespace

base::Result<NodeAccess> node_access(const NodeAccessInput& input, base::Entropy& entropy) {
  const auto& pool = input.config.pool_managerd;
  const std::filesystem::path file = config::pool_credential_file(input.config, input.state_directory);
  auto held = TRY(config::load_pool_credential(file));
  if (held && held->pool_id().value != pool.pool_id) {
    return base::fail(
        ErrorCode::kConfigInvalid,
        fmt::format("{} is the credential of pool {}, and pool-managerd.pool_id is {}; set pool_id to it, or "
                    "pair this pool with `llorch pool pair {}`",
                    file.string(), held->pool_id().value, pool.pool_id, pool.pool_id));
  }
  const bool paired = held.has_value();
  TRY(check_bind(input, paired, file));
  if (!paired && !orchestrator_url(input.config).empty()) {
    base::log_event(
        base::LogLevel::kWarn, "pool_not_paired", {},
        "The pool works alone: it is not paired. Run `llorch pool pair` with its id where orchestratord runs, "
        "write the line it prints into the credential file (mode 0600) and start pool-managerd again.",
        {{"pool_id", pool.pool_id}, {"credential_file", file.string()}});
  }
  auto credential = held ? std::move(*held) : config::PoolCredential::make(base::PoolId(pool.pool_id), entropy);
  auto auth = TRY(auth_rules(input, credential));
  auto advertised = TRY(advertised_host(pool.advertise, input.bind_address));
  return NodeAccess{.credential = std::move(credential),
                    .paired = paired,
                    .auth = std::move(auth),
                    .bind_address = input.bind_address,
                    .advertised_host = std::move(advertised),
                    .local_host = net::http::local_host(input.bind_address)};
}

}  // namespace llorch::pool_managerd::registration
