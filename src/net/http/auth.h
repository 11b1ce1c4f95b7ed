#pragma once
// The bearer-token seam (AUTH-1001..1008, SEC-AUTH-2001..2004, C-3, C-6): pure rules, no sockets.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/http/message.h"

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

// The identity that authorize() gives whoever comes with this token.
std::string identity_of(std::string_view token);

// Time depends on the length of `given` only, not on where the two differ.
bool constant_time_equal(std::string_view given, std::string_view expected);

struct AuthRules {
  std::vector<std::string> tokens;        // each is valid (two while one is rotated out); empty = open
  bool loopback_optional = false;         // AUTH_OPTIONAL: loopback peers may skip the token
  std::vector<std::string> exempt_paths;  // exact paths open to all; none by default
};
struct AuthInput {
  const Headers* headers = nullptr;  // REQUIRES not null
  std::string_view path;
  std::string_view peer_address;
};
// The caller's identity ("localhost", "token:<fp6>", "anonymous"), or MISSING_TOKEN / BAD_TOKEN with details.auth_code
// 40101 / 40102.
base::Result<std::string> authorize(const AuthRules& rules, const AuthInput& input);

}  // namespace llorch::net::http
