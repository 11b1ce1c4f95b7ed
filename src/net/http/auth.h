#pragma once
// The bearer-token seam (AUTH-1001..1008, SEC-AUTH-2001..2004): pure rules, no sockets. A server without credentials
// may bind loopback only and serves everybody there; with credentials every request needs one of them.
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "net/http/message.h"
#include "net/http/principal.h"

namespace llorch::net::http {

// Whether `address` names this machine only: 127.0.0.0/8, ::1, their mapped form, "localhost"; brackets and a port are
// allowed ("[::1]:8080", "127.0.0.1:8080").
bool is_loopback(std::string_view address);

// No token: only loopback may be bound. Errors: NON_LOOPBACK_WITHOUT_TOKEN, with what to do next.
base::Result<> validate_bind(std::string_view bind_address, bool has_token);

// At least 32 visible ASCII characters, at most 8192. Errors: CONFIG_INVALID. The message never holds the token.
base::Result<> validate_token(std::string_view token);

// First 6 hex digits of the token's SHA-256: names a token in logs.
std::string token_fp6(std::string_view token);

// Time depends on the length of `given` only, not on where the two differ.
bool constant_time_equal(std::string_view given, std::string_view expected);
bool constant_time_equal(const base::Sha256Digest& given, const base::Sha256Digest& expected);

// A token is known by its whole SHA-256; the token itself is not kept.
struct Credential {
  base::Sha256Digest token_sha256{};
  Principal principal;
};
// Errors: as validate_token().
base::Result<Credential> make_credential(std::string_view token, Role role, std::string name = {});
// Of a caller that needs no token: the operator.
Principal local_operator();
// Of a caller without a token at an open route: it may see that route and no other.
Principal nobody();

struct AuthRules {
  std::vector<Credential> credentials;  // those that last as long as the server; empty: callers need none
  bool optional_on_loopback = false;    // callers of this machine need none; a wrong one is refused all the same
  // Credentials that come and go while the server runs: who comes with the token of this digest. Thread-safe; may be empty.
  std::function<std::optional<Principal>(const base::Sha256Digest& token_sha256)> find_more;
};
// Of a server that one token opens, as the operator's; empty: callers need none. Errors: as validate_token().
base::Result<AuthRules> rules_of_one_token(std::string_view token, bool optional_on_loopback);
// Errors: CONFIG_INVALID, if two credentials have one token.
base::Result<> validate_rules(const AuthRules& rules);

struct AuthInput {
  const Headers* headers = nullptr;  // REQUIRES not null
  std::string_view peer_address;
  bool always_sends_token = false;  // these two: see Gateway
  bool takes_api_key = false;
};
// The caller, or MISSING_TOKEN / BAD_TOKEN with details.auth_code 40101 / 40102.
base::Result<Principal> authorize(const AuthRules& rules, const AuthInput& input);

// Errors: FORBIDDEN with the scope that is needed and the role that the caller has.
base::Result<> check_scope(Scope scope, const Principal& principal);

}  // namespace llorch::net::http
