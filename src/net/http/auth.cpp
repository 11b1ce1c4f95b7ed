#include "net/http/auth.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/sha256.h"

namespace llorch::net::http {
namespace {

constexpr std::size_t kTokenCharsMin = 32;         // SEC-AUTH-4001, C-6
constexpr std::size_t kCredentialBytesMax = 8192;  // SEC-AUTH-2003
constexpr std::size_t kAddressBytesMax = 256;      // SEC-AUTH-2003
constexpr int kMissingTokenNumber = 40101;
constexpr int kBadTokenNumber = 40102;

// "1.2.3.4:80" -> "1.2.3.4", "[::1]:80" -> "::1", "::1" -> "::1"
std::string_view strip_port(std::string_view address) {
  if (address.starts_with('[')) {
    const std::size_t end = address.find(']');
    return end == std::string_view::npos ? address : address.substr(1, end - 1);
  }
  const std::size_t colon = address.find(':');
  const bool one_colon = colon != std::string_view::npos && address.find(':', colon + 1) == std::string_view::npos;
  return one_colon ? address.substr(0, colon) : address;
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The token of "Bearer <token>"; empty if the field is malformed.
std::string_view bearer_token(std::string_view field) {
  constexpr std::string_view kScheme = "Bearer ";
  if (field.size() > kCredentialBytesMax) return {};
  field = trim(field);
  if (field.size() <= kScheme.size() || !equals_ignoring_case(field.substr(0, kScheme.size()), kScheme)) return {};
  const std::string_view token = trim(field.substr(kScheme.size()));
  return token.find_first_of(" \t") == std::string_view::npos ? token : std::string_view{};
}

}  // namespace

bool is_loopback(std::string_view address) {
  if (address.size() > kAddressBytesMax) return false;
  const std::string host(strip_port(address));
  if (equals_ignoring_case(host, "localhost")) return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

base::Result<> validate_bind(std::string_view bind_address, bool has_token) {
  if (has_token || is_loopback(bind_address)) return {};
  return base::fail(base::Error{
      base::ErrorCode::kNonLoopbackWithoutToken,
      fmt::format("binding {} would open this daemon to other machines without a token; put one of 32 "
                  "characters or more into the file that auth.token_file names, or bind 127.0.0.1",
                  bind_address),
      {}}.with("bind", std::string(bind_address)));
}

base::Result<> validate_token(std::string_view token) {
  const bool visible = std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (visible && token.size() >= kTokenCharsMin && token.size() <= kCredentialBytesMax) return {};
  return base::fail(
      base::ErrorCode::kConfigInvalid,
      fmt::format("the token must be {} to {} visible ASCII characters, it has {} bytes{}; make one with "
                  "`openssl rand -hex 32`",
                  kTokenCharsMin, kCredentialBytesMax, token.size(), visible ? "" : " and other characters"));
}

std::string token_fp6(std::string_view token) { return base::to_hex(base::sha256(token)).substr(0, 6); }

std::string identity_of(std::string_view token) { return "token:" + token_fp6(token); }

bool constant_time_equal(std::string_view given, std::string_view expected) {
  // Digests have one length, so neither the length nor the first difference of the token shows in the time.
  const base::Sha256Digest a = base::sha256(given);
  const base::Sha256Digest b = base::sha256(expected);
  volatile std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference = static_cast<std::uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

base::Result<std::string> authorize(const AuthRules& rules, const AuthInput& input) {
  ASSERT(input.headers != nullptr);
  const bool local = is_loopback(input.peer_address);
  const std::string unnamed = local ? "localhost" : "anonymous";
  if (rules.tokens.empty()) return unnamed;
  const auto field = input.headers->get("Authorization");
  if (field && input.headers->count("Authorization") == 1) {
    const std::string_view given = bearer_token(*field);
    bool matches = false;
    for (const std::string& token : rules.tokens) matches |= constant_time_equal(given, token);
    if (matches && !given.empty()) return identity_of(given);
  }
  const bool exempt =
      std::find(rules.exempt_paths.begin(), rules.exempt_paths.end(), input.path) != rules.exempt_paths.end();
  if (exempt || (local && rules.loopback_optional)) return unnamed;
  if (!field) {
    return base::fail(base::Error{
        base::ErrorCode::kMissingToken,
        "this server needs a token; send the header `Authorization: Bearer <token>`",
        {}}.with("auth_code", kMissingTokenNumber));
  }
  return base::fail(base::Error{
      base::ErrorCode::kBadToken,
      "the Authorization header is not `Bearer <token>` with a token this server knows; check "
      "that client and server are configured with the same token",
      {}}.with("auth_code", kBadTokenNumber));
}

}  // namespace llorch::net::http
